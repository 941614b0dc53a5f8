// SPDX-License-Identifier: Apache-2.0

// Package noise is the collector of CPU time taken from a job: interrupts, soft interrupts and other threads, per CPU,
// with the worst single event. The programs are in bpf/source/noise.bpf.c.
//
// The kernel's own tracer, osnoise, is made for idle CPUs: before 6.3 its threads keep each CPU busy, which would be the
// greatest noise, and Debian's kernels lack it. This collector counts the same things by the same tracepoints while the
// job wants the CPU.
package noise

import (
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

// Name is the collector's.
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
