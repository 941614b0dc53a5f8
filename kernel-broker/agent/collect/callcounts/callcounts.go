// SPDX-License-Identifier: Apache-2.0

// Package callcounts is the collector of how often the kernel's functions call each other for a job.
//
// A program runs at each function of the kernel that can be traced, for whoever calls it: all kernel code of the node
// becomes many times slower. Its counts are exact, where those of package callgraph are samples at almost no cost.
//
// The program is in bpf/source/callcounts.bpf.c.
package callcounts

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/kallsyms"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

var wanted = bpf.Wanted{Collector: profiling.CollectCallCounts, Object: "callcounts"}

// Collector of calls. Its zero value is ready.
type Collector struct{}

func (Collector) Name() profiling.Collector { return profiling.CollectCallCounts }

// Check reports whether the running kernel has what is needed.
func (Collector) Check() error {
	if err := wanted.Check(); err != nil {
		return err
	}
	_, err := functions()
	return err
}

func refuse(reason profiling.Reason, detail, remedy string) error {
	return &profiling.Unsupported{Collector: profiling.CollectCallCounts, Reason: reason, Detail: detail, Remedy: remedy}
}

// functions are the addresses of those whose calls can be counted.
func functions() ([]uintptr, error) {
	table, err := kallsyms.Load()
	if err != nil {
		return nil, refuse(profiling.NoSymbols, err.Error(), kallsyms.Remedy)
	}
	names, err := traceable()
	if err != nil {
		return nil, refuse(profiling.NoTracer, err.Error(), "build the kernel with CONFIG_FUNCTION_TRACER, or mount tracefs at /sys/kernel/tracing")
	}
	all, err := table.Addresses(bytes.NewReader(watched(names)))
	if err != nil {
		return nil, refuse(profiling.NoTracer, err.Error(), "")
	}
	return all, nil
}

// watched leaves out the functions in which the kernel's RCU does not watch the CPU, so that no program may run there.
func watched(names []byte) []byte {
	lines := slices.DeleteFunc(bytes.SplitAfter(names, []byte("\n")), func(line []byte) bool {
		name := string(bytes.TrimSpace(line))
		return name == "arch_cpu_idle" || name == "default_idle" || bytes.HasPrefix(line, []byte("rcu_"))
	})
	return slices.Concat(lines...)
}

// Start puts the program at all functions.
func (Collector) Start(target collect.Target) (collect.Session, error) {
	all, err := functions()
	if err != nil {
		return nil, err
	}
	programs, err := bpf.Start(wanted, target.Cgroup, nil)
	if err != nil {
		return nil, err
	}
	s := &session{programs: programs}
	program, err := programs.Program("function_called")
	if err == nil {
		s.link, err = link.KprobeMulti(program, link.KprobeMultiOptions{Addresses: all})
	}
	if err != nil {
		return nil, refuse(profiling.BrokenStart, fmt.Sprintf("at %d functions: %v", len(all), errors.Join(err, s.Close())), "")
	}
	return s, nil
}

// session counts each call, and never pauses.
type session struct {
	programs *bpf.Programs
	link     link.Link
	symbols  *kallsyms.Table
}

// Missing implements collect.Session.
func (s *session) Missing() []bpf.Missing { return s.programs.Missing() }

// Spent implements collect.Session.
func (s *session) Spent() (bpf.Cost, error) { return s.programs.Spent() }

// Stop detaches the program.
func (s *session) Stop() error {
	var err error
	if s.link != nil {
		err = s.link.Close()
		s.link = nil
	}
	return errors.Join(err, s.programs.Stop())
}

// Close stops and releases the maps.
func (s *session) Close() error { return errors.Join(s.Stop(), s.programs.Close()) }

// edge is the key of the kernel's map.
type edge struct{ From, To uint64 }

// Read names the counted calls.
func (s *session) Read(result *profiling.Result) error {
	// By now all collectors have started, and their own programs have names.
	if s.symbols == nil {
		table, err := kallsyms.Load()
		if err != nil {
			return err
		}
		s.symbols = table
	}
	counts := &profiling.CallCounts{}
	var err error
	if counts.Lost, err = bpf.Sum[uint64](s.programs, "lost", 0); err != nil {
		return err
	}
	err = bpf.Counts(s.programs, "edges", func(key edge, calls uint64) error {
		counts.Calls += calls
		// A call may be a function's last instruction.
		counts.Edges = append(counts.Edges, profiling.CallCount{From: s.symbols.Name(key.From - 1), To: s.symbols.Name(key.To), Calls: calls})
		return nil
	})
	if err != nil {
		return err
	}
	// A function calls another from several places.
	result.CallCounts = addup.Plus(counts, &profiling.CallCounts{})
	return nil
}
