// SPDX-License-Identifier: Apache-2.0

// Package callgraph is the collector of where in the kernel a job's time goes.
//
// Each CPU's clock ticks at a steady rate, and at each tick the kernel's stack is sampled if a task of the job has the
// CPU. That needs no hardware counters, so it works on every machine and in virtual ones, and its cost does not depend
// on the number of calls, unlike a function tracer. The price: an edge has samples and no count of calls, and code with
// interrupts off is attributed to where they are enabled again.
//
// The program is in bpf/source/callgraph.bpf.c.
package callgraph

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/kallsyms"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Rate is samples per second: a prime, to avoid step with periodic activity.
const Rate = 499

const (
	deepest = 127
	// The kernel's slots of samples, in the order of callgraph.bpf.c.
	slotKernel, slotUser, slotLost = 0, 1, 2
)

var wanted = bpf.Wanted{Collector: profiling.CollectCallgraph, Object: "callgraph"}

// Collector of the kernel's call graph. Its zero value is ready.
type Collector struct{}

func (Collector) Name() profiling.Collector { return profiling.CollectCallgraph }

// Check reports whether the running kernel has what is needed.
func (Collector) Check() error {
	if err := wanted.Check(); err != nil {
		return err
	}
	if _, err := os.Stat("/proc/sys/kernel/perf_event_paranoid"); err != nil {
		return refuse(profiling.NoPerfEvents, "the kernel has no performance events",
			"build it with CONFIG_PERF_EVENTS")
	}
	_, err := symbols()
	return err
}

func symbols() (*kallsyms.Table, error) {
	table, err := kallsyms.Load()
	if err != nil {
		return nil, refuse(profiling.NoSymbols, err.Error(), kallsyms.Remedy)
	}
	return table, nil
}

func refuse(reason profiling.Reason, detail, remedy string) error {
	return &profiling.Unsupported{Collector: profiling.CollectCallgraph, Reason: reason, Detail: detail, Remedy: remedy}
}

// Start opens a clock on each CPU.
func (Collector) Start(target collect.Target) (collect.Session, error) {
	table, err := symbols()
	if err != nil {
		return nil, err
	}
	programs, err := bpf.Start(wanted, target.Cgroup, nil)
	if err != nil {
		return nil, err
	}
	s := &session{Programs: programs, symbols: table}
	if err := s.tick(); err != nil {
		return nil, refuse(profiling.NoPerfEvents, errors.Join(err, s.Close()).Error(), "")
	}
	return s, nil
}

type session struct {
	*bpf.Programs
	symbols *kallsyms.Table
	clocks  []int
}

// tick opens the clocks. An offline CPU has none.
func (s *session) tick() error {
	program, err := s.Programs.Program("clock_ticks")
	if err != nil {
		return err
	}
	attributes := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: Rate, Bits: unix.PerfBitFreq,
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("CPUs: %w", err)
	}
	for cpu := range cpus {
		clock, err := unix.PerfEventOpen(&attributes, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return fmt.Errorf("clock of CPU %d: %w", cpu, err)
		}
		s.clocks = append(s.clocks, clock)
		if err := unix.IoctlSetInt(clock, unix.PERF_EVENT_IOC_SET_BPF, program.FD()); err != nil {
			return fmt.Errorf("clock of CPU %d: %w", cpu, err)
		}
	}
	runtime.KeepAlive(program)
	return nil
}

// Pause stops the clocks.
func (s *session) Pause() error { return s.each(unix.PERF_EVENT_IOC_DISABLE) }

// Detach has nothing left to do: clocks that stand still cost nothing.
func (s *session) Detach() error { return nil }

// Resume lets the clocks tick again.
func (s *session) Resume() error { return s.each(unix.PERF_EVENT_IOC_ENABLE) }

func (s *session) each(request uint) error {
	for cpu, clock := range s.clocks {
		if err := unix.IoctlSetInt(clock, request, 0); err != nil {
			return fmt.Errorf("clock %d of %d: %w", cpu+1, len(s.clocks), err)
		}
	}
	return nil
}

// Stop closes the clocks.
func (s *session) Stop() error {
	var all []error
	for _, clock := range s.clocks {
		all = append(all, unix.Close(clock))
	}
	s.clocks = nil
	return errors.Join(append(all, s.Programs.Stop())...)
}

// Close stops and releases the maps.
func (s *session) Close() error { return errors.Join(s.Stop(), s.Programs.Close()) }

// Read makes a graph of the stacks.
func (s *session) Read(result *profiling.Result) error {
	graph := &profiling.CallGraph{PeriodNS: uint64(time.Second) / Rate}
	if err := s.samples(graph); err != nil {
		return err
	}
	stacks, err := s.Programs.Map("stacks")
	if err != nil {
		return err
	}
	err = bpf.Counts(s.Programs, "counts", func(id uint32, samples uint64) error {
		var addresses [deepest]uint64
		if err := stacks.Lookup(id, &addresses); err != nil {
			return fmt.Errorf("stack %d: %w", id, err)
		}
		graph.Stacks = append(graph.Stacks, profiling.Stack{Frames: s.frames(addresses[:]), Samples: samples})
		return nil
	})
	if err != nil {
		return err
	}
	// Addresses in one function are one way through it.
	result.CallGraph = addup.Plus(graph, &profiling.CallGraph{})
	return nil
}

func (s *session) samples(graph *profiling.CallGraph) error {
	for slot, to := range map[uint32]*uint64{slotKernel: &graph.Kernel, slotUser: &graph.User, slotLost: &graph.Lost} {
		var err error
		if *to, err = bpf.Sum[uint64](s.Programs, "samples", slot); err != nil {
			return err
		}
	}
	return nil
}

// frames names the addresses, the outermost first, the reverse of the kernel's order. All but the innermost are return
// addresses, which may be after the end of the calling function.
func (s *session) frames(addresses []uint64) []string {
	var names []string
	for i, address := range addresses {
		if address == 0 {
			break
		}
		if i > 0 {
			address--
		}
		names = append(names, s.symbols.Name(address))
	}
	slices.Reverse(names)
	return names
}
