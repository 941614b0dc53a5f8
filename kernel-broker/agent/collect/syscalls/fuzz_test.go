// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unicode/utf8"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// FuzzSlowCall reads a single call as the kernel's table has it.
func FuzzSlowCall(f *testing.F) {
	slow := slowCall{Began: 5, NS: 30, Result: 7, PID: 7, TID: 8, Program: processName{'s', 'h'}, Type: 9}
	copy(slow.Path[:], "/data/a\xff")
	var text bytes.Buffer
	if err := binary.Write(&text, binary.NativeEndian, slow); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes(), uint32(0))
	f.Add(bytes.Repeat([]byte{0xff}, text.Len()), uint32(45))
	f.Add(make([]byte, text.Len()), uint32(3))
	f.Fuzz(func(t *testing.T, text []byte, number uint32) {
		var one slowCall
		if binary.Read(bytes.NewReader(text), binary.NativeEndian, &one) != nil {
			return
		}
		call := one.call(name(number))
		if !utf8.ValidString(call.File) || !utf8.ValidString(call.Program) || call.Failed && call.Bytes != nil {
			t.Errorf("%+v", call)
		}
		found := &profiling.Syscalls{Slowest: []profiling.SlowCall{call}}
		if _, err := (profiling.Result{Format: profiling.Format, Syscalls: found}).JSON(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzCall reads the sums of a call as the kernel's tables have them, for each
// CPU, and the name of a process.
func FuzzCall(f *testing.F) {
	var stats callStats
	stats.Count, stats.NS, stats.Times[3], stats.PartNS[1] = 3, 30, 3, 5
	var text bytes.Buffer
	if err := binary.Write(&text, binary.NativeEndian, stats); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes(), uint32(1), []byte("cat\x00"))
	f.Add(bytes.Repeat([]byte{0xff}, text.Len()), uint32(numberForeign), bytes.Repeat([]byte{0xff}, 16))
	f.Fuzz(func(t *testing.T, text []byte, number uint32, program []byte) {
		var one, sum callStats
		if binary.Read(bytes.NewReader(text), binary.NativeEndian, &one) != nil {
			return
		}
		for range 3 {
			sum = addup.Plus(sum, one)
		}
		var named processName
		copy(named[:], program)
		if name(number) == "" || !utf8.ValidString(named.String()) {
			t.Errorf("call %d is %q, program %q", number, name(number), named.String())
		}
		found := &profiling.Syscalls{Calls: []profiling.Syscall{sum.call(name(number))}}
		found.Sort()
		if _, err := (profiling.Result{Format: profiling.Format, Syscalls: found}).JSON(); err != nil {
			t.Error(err)
		}
	})
}
