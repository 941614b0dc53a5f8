// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// FuzzSource reads a source and a CPU as the kernel's tables have them.
func FuzzSource(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x01\x00\x00\x00c\x00"), uint64(1), uint64(5), uint32(1))
	f.Add(bytes.Repeat([]byte{0xff}, 24), ^uint64(0), ^uint64(0), ^uint32(0))
	f.Add(append(bytes.Repeat([]byte{0}, 8), bytes.Repeat([]byte{0xff}, 16)...), uint64(0), uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, text []byte, mark, now uint64, occupant uint32) {
		var key sourceKey
		text = append(text, make([]byte, binary.Size(key))...)
		if err := binary.Read(bytes.NewReader(text), binary.NativeEndian, &key); err != nil {
			t.Fatal(err)
		}
		if key.kind() == "" || !utf8.ValidString(key.name()) {
			t.Errorf("kind %q, name %q", key.kind(), key.name())
		}
		state := cpuState{Mark: mark, Occupant: occupant}
		if wanted := state.wanted(now); wanted > now {
			t.Errorf("wanted for %d of %d", wanted, now)
		}
		found := &profiling.Noise{CPUs: []profiling.CPUNoise{{Sources: []profiling.NoiseSource{
			{Kind: key.kind(), Name: key.name(), At: time.Unix(0, 0).Add(time.Duration(mark)).UTC()},
		}}}}
		if _, err := (profiling.Result{Format: profiling.Format, Noise: found}).JSON(); err != nil {
			t.Error(err)
		}
	})
}
