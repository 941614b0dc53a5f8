// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"bytes"
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// The layouts of bpf/source/noise.h, which the tests compare.
const times = 32

type sourceKey struct {
	CPU, Kind uint32
	Name      [16]byte
}

type sourceSum struct {
	Count, NS, Most, MostAt uint64
	Times                   [times]uint64
}

type cpuState struct {
	Mark, JobNS, ThiefNS, LostNS uint64
	IRQBegan, IRQLost            uint64
	SoftBegan, SoftLost          uint64
	ThiefBegan, ThiefLost        uint64
	Occupant, Victim             uint32
	IRQ, Thief                   [16]byte
	Dropped                      uint64
}

// nobody: the CPU is idle; the first of the occupants in the C file.
const nobody = 0

// wanted is how long the job wanted the CPU, up to an instant: the kernel side
// adds up only when the CPU changes hands.
func (s *cpuState) wanted(now uint64) uint64 {
	sum := s.JobNS + s.ThiefNS
	if s.Occupant != nobody && now > s.Mark {
		sum += now - s.Mark
	}
	return sum
}

// kinds in the order of the C file.
var kinds = []profiling.NoiseKind{
	profiling.NoiseIRQ, profiling.NoiseSoftIRQ, profiling.NoiseNMI, profiling.NoiseThread,
}

// vectors of soft interrupts, by number.
var vectors = []string{"hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"}

func (k sourceKey) kind() profiling.NoiseKind {
	if int(k.Kind) < len(kinds) {
		return kinds[k.Kind]
	}
	return profiling.NoiseKind(fmt.Sprintf("kind %d", k.Kind))
}

// name of the source. The kernel side writes a soft interrupt's number as a
// letter.
func (k sourceKey) name() string {
	if k.kind() == profiling.NoiseSoftIRQ {
		if number := int(k.Name[0]) - 'a'; number >= 0 && number < len(vectors) {
			return vectors[number]
		}
	}
	text, _, _ := bytes.Cut(k.Name[:], []byte{0})
	return string(bytes.ToValidUTF8(text, []byte("?")))
}
