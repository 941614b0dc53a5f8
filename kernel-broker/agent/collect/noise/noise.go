// SPDX-License-Identifier: Apache-2.0

// Package noise is the collector of CPU time taken from a job: interrupts, soft interrupts and other threads, per CPU,
// with the worst single event. The programs are in bpf/source/noise.bpf.c.
//
// The kernel's own tracer, osnoise, is made for idle CPUs: before 6.3 its threads keep each CPU busy, which would be the
// greatest noise, and Debian's kernels lack it. This collector counts the same things by the same tracepoints while the
// job wants the CPU.
package noise

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Parts that a kernel may lack.
const (
	interrupts = "interrupts between CPUs and of the timer"
	nmis       = "NMIs"
)

var wanted = bpf.Wanted{
	Collector: profiling.CollectNoise,
	Object:    "noise",
	Parts: map[string]string{
		"local_timer_begins": interrupts, "local_timer_ends": interrupts,
		"reschedule_begins": interrupts, "reschedule_ends": interrupts,
		"call_function_begins": interrupts, "call_function_ends": interrupts,
		"call_single_begins": interrupts, "call_single_ends": interrupts,
		"irq_work_begins": interrupts, "irq_work_ends": interrupts,
		"nmi_ends": nmis,
	},
}

// Collector of noise. Its zero value is ready.
type Collector struct{}

func (Collector) Name() profiling.Collector { return profiling.CollectNoise }

// Check reports whether the running kernel has what is needed.
func (Collector) Check() error { return wanted.Check() }

// Start attaches the programs.
func (Collector) Start(target collect.Target) (collect.Session, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, &profiling.Unsupported{
			Collector: profiling.CollectNoise, Reason: profiling.BrokenStart, Detail: fmt.Sprintf("number of CPUs: %v", err),
		}
	}
	programs, err := bpf.Start(wanted, target.Cgroup, func(spec *ebpf.CollectionSpec) error {
		spec.Maps["cpus"].MaxEntries = uint32(cpus)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &session{Programs: programs, node: target.Node, cpus: cpus}, nil
}

type session struct {
	*bpf.Programs
	node string
	cpus int
	// stopped is when the programs were detached, by the kernel side's clock.
	stopped uint64
}

// Pause ends what is under way on each CPU, of which no program would see the end.
func (s *session) Pause() error {
	now, err := bpf.Clock()
	if err == nil {
		err = s.Programs.Pause()
	}
	if err != nil {
		return err
	}
	cpus, err := s.Map("cpus")
	if err != nil {
		return err
	}
	for number := range uint32(s.cpus) {
		state, err := bpf.Lookup[cpuState](s.Programs, "cpus", number)
		if err == nil && state.cut(now) {
			err = cpus.Put(number, state)
		}
		if err != nil {
			return fmt.Errorf("state of CPU %d: %w", number, err)
		}
	}
	return nil
}

// Stop detaches the programs.
func (s *session) Stop() error {
	err := s.Programs.Stop()
	if s.stopped == 0 {
		now, clockErr := bpf.Clock()
		s.stopped, err = now, errors.Join(err, clockErr)
	}
	return err
}

// Read makes a result of the tables. CPUs that the job never wanted are left
// out.
func (s *session) Read(result *profiling.Result) error {
	now, err := bpf.Clock()
	if err != nil {
		return err
	}
	if s.stopped != 0 {
		now = s.stopped
	}
	found := &profiling.Noise{Method: "bpf"}
	for number := range uint32(s.cpus) {
		state, err := bpf.Lookup[cpuState](s.Programs, "cpus", number)
		if err != nil {
			return err
		}
		if wanted := state.wanted(now); wanted > 0 {
			found.CPUs = append(found.CPUs, profiling.CPUNoise{
				Node: s.node, CPU: number, WantedNS: wanted, LostNS: state.LostNS, Dropped: state.Dropped,
			})
		}
	}
	if err := s.sources(found); err != nil {
		return err
	}
	result.Noise = found
	return nil
}

func (s *session) sources(found *profiling.Noise) error {
	all, err := bpf.Each[sourceKey, sourceSum](s.Programs, "sources")
	if err != nil {
		return err
	}
	boot, err := bootTime()
	if err != nil {
		return err
	}
	byCPU := map[uint32][]profiling.NoiseSource{}
	for key, sum := range all {
		byCPU[key.CPU] = append(byCPU[key.CPU], profiling.NoiseSource{
			Kind: key.kind(), Name: key.name(), Count: sum.Count, NS: sum.NS, MostNS: sum.Most,
			At: boot.Add(time.Duration(sum.MostAt)).UTC(), Times: profiling.Histogram(sum.Times[:]).Trimmed(),
		})
	}
	for i := range found.CPUs {
		found.CPUs[i].Sources = byCPU[found.CPUs[i].CPU]
		profiling.SortSources(found.CPUs[i].Sources)
	}
	return nil
}

// bootTime is the zero of the kernel programs' clock.
func bootTime() (time.Time, error) {
	since, err := bpf.Clock()
	return time.Now().Add(-time.Duration(since)), err
}

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

// The occupants of a CPU in the C file, but for the thread in a job's place. Nobody: the job does not want the CPU.
const (
	nobody = 0
	job    = 1
)

// wanted is how long the job wanted the CPU, up to an instant: the kernel side
// adds up only when the CPU changes hands.
func (s *cpuState) wanted(now uint64) uint64 {
	sum := s.JobNS + s.ThiefNS
	if s.Occupant != nobody && now > s.Mark {
		sum += now - s.Mark
	}
	return sum
}

// cut ends the CPU's state at an instant, and reports whether there was one. A thread that has the job's place is left out,
// with its time: how long it stays is not known.
func (s *cpuState) cut(now uint64) bool {
	if s.Occupant == nobody {
		return false
	}
	if s.Occupant == job && now > s.Mark {
		s.JobNS += now - s.Mark
	}
	s.Occupant, s.Victim, s.IRQBegan, s.SoftBegan = nobody, 0, 0, 0
	return true
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
