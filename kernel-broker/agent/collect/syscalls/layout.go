// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
	"bytes"
	_ "embed"
	"strconv"
	"strings"
	"sync"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// The layouts of bpf/source/syscalls.h, which the tests compare.
const (
	parts         = 17
	times         = 40
	numbers       = 480
	numberFault   = 478
	numberForeign = 479
	recents       = 16
	pathBytes     = 256
	maxErrno      = 4095
)

type callStats struct {
	Count, Failed, NS uint64
	Most              uint64 `sum:"max"`
	Floor             uint64 `sum:"-"`
	Times             [times]uint64
	PartNS            [parts]uint64
	PartCount         [parts]uint64
}

type processKey struct{ PID, Number uint32 }

type processCalls struct{ Count, NS uint64 }

type processName [16]byte

func (n processName) String() string {
	text, _, _ := bytes.Cut(n[:], []byte{0})
	return string(bytes.ToValidUTF8(text, []byte("?")))
}

// recentCalls are calls of a process that one CPU has added up and that are not
// in the table of processes.
type recentCalls struct {
	Key       processKey
	Count, NS uint64
}

// cpuState is per-CPU state. The rest is the call in progress.
type cpuState struct {
	Events uint64
	Recent [recents]recentCalls `sum:"-"`
	Rest   [448]byte            `sum:"-"`
}

type slowCall struct {
	Began, NS uint64
	Result    int64
	PID, TID  uint32
	Program   processName
	PartNS    [parts]uint64
	PartCount [parts]uint32
	Type      uint32
	File      struct {
		Inode              uint64
		Device, Generation uint32
	}
	Path [pathBytes]byte
}

type slowCalls struct {
	Lock, Unused uint32
	Floor        uint64
	Calls        [profiling.MostSlow]slowCall
}

type losses struct{ Calls, NS, Away uint64 }

// call as the domain has it. The order of the parts is that of Causes.
func (c *callStats) call(name string) profiling.Syscall {
	call := profiling.Syscall{
		Name: name, Count: c.Count, Failed: c.Failed, NS: c.NS, MostNS: c.Most,
		Times: profiling.Histogram(c.Times[:]).Trimmed(),
		Split: map[profiling.Cause]profiling.Part{},
	}
	for i, cause := range profiling.Causes() {
		if part := (profiling.Part{Count: c.PartCount[i], NS: c.PartNS[i]}); part != (profiling.Part{}) {
			call.Split[cause] = part
		}
	}
	return call
}

//go:generate ./generate_names.sh
//go:embed names.txt
var nameList string

// names of the system calls of x86-64 by number.
var names = sync.OnceValue(func() map[uint32]string {
	table := map[uint32]string{}
	for line := range strings.Lines(nameList) {
		text, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number, err := strconv.ParseUint(text, 10, 32); err == nil {
			table[uint32(number)] = name
		}
	}
	return table
})
