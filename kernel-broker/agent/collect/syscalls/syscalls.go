// SPDX-License-Identifier: Apache-2.0

// Package syscalls is the collector of system calls: number, duration and use of time of each call. The programs are in
// bpf/source/syscalls.bpf.c; here their maps become a result.
package syscalls

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Parts that a kernel may lack.
const (
	interrupts = "interrupts between CPUs and of the timer"
	packets    = "packets"
	faults     = "page faults"
)

var wanted = bpf.Wanted{
	Collector: profiling.CollectSyscalls,
	Object:    "syscalls",
	Parts: map[string]string{
		"local_timer_begins": interrupts, "local_timer_ends": interrupts,
		"reschedule_begins": interrupts, "reschedule_ends": interrupts,
		"call_function_begins": interrupts, "call_function_ends": interrupts,
		"call_function_single_begins": interrupts, "call_function_single_ends": interrupts,
		"irq_work_begins": interrupts, "irq_work_ends": interrupts,
		"packet_begins": packets, "packet_readable": packets, "packet_tcp": packets,
		"fault_begins": faults, "fault_ends": faults,
	},
	// They end early if no call is observed.
	Stays: map[string]bool{
		"irq_handler_begins": true, "irq_handler_ends": true,
		"local_timer_begins": true, "local_timer_ends": true,
		"reschedule_begins": true, "reschedule_ends": true,
		"call_function_begins": true, "call_function_ends": true,
		"call_function_single_begins": true, "call_function_single_ends": true,
		"irq_work_begins": true, "irq_work_ends": true,
		"softirq_begins": true, "softirq_ends": true,
	},
}

// Collector of system calls. Its zero value is ready.
type Collector struct{}

func (Collector) Name() profiling.Collector { return profiling.CollectSyscalls }

// Check reports whether the running kernel has what is needed.
func (Collector) Check() error { return wanted.Check() }

// Start attaches the programs.
func (Collector) Start(target collect.Target) (collect.Session, error) {
	zero, err := bpf.ClockAt(target.Began)
	if err != nil {
		return nil, err
	}
	gate := bpf.NewGate(func() { unix.Getppid() })
	programs, err := bpf.Start(wanted, target.Cgroup, tell)
	if err != nil {
		return nil, err
	}
	s := &session{Programs: programs, node: target.Node, began: target.Began, zero: zero}
	// A call is two events, entry and exit.
	s.toll = gate.Toll(programs, 2)
	return s, nil
}

type session struct {
	*bpf.Programs
	node string
	toll bpf.Toll
	// began is the run's, zero the same by the programs' clock.
	began time.Time
	zero  uint64
}

func (s *session) Events() (uint64, error) {
	sum, err := bpf.Sum[cpuState](s.Programs, "cpus", 0)
	return sum.Events, err
}

// Toll of the way to the programs.
func (s *session) Toll() bpf.Toll { return s.toll }

func (s *session) Read(result *profiling.Result) error {
	found := &profiling.Syscalls{}
	if err := s.calls(found); err != nil {
		return err
	}
	if err := s.processes(found); err != nil {
		return err
	}
	lost, err := bpf.Sum[losses](s.Programs, "losses", 0)
	if err != nil {
		return err
	}
	found.NotListed, found.LostAway = profiling.Part{Count: lost.Calls, NS: lost.NS}, lost.Away
	found.Sort()
	result.Syscalls = found
	return nil
}

func (s *session) calls(found *profiling.Syscalls) error {
	for number := range uint32(numbers) {
		sum, err := bpf.Sum[callStats](s.Programs, "calls", number)
		if err != nil {
			return err
		}
		if sum.Count == 0 {
			continue
		}
		found.Calls = append(found.Calls, sum.call(name(number)))
		slow, err := s.slowest(number)
		if err != nil {
			return err
		}
		found.Slowest = append(found.Slowest, slow...)
	}
	return nil
}

func (s *session) processes(found *profiling.Syscalls) error {
	programs, err := bpf.Each[uint32, processName](s.Programs, "names")
	if err != nil {
		return err
	}
	all, err := bpf.Each[processKey, processCalls](s.Programs, "processes")
	if err != nil {
		return err
	}
	each, err := bpf.Lookup[[]cpuState](s.Programs, "cpus", 0)
	if err != nil {
		return err
	}
	for _, cpu := range each {
		for _, recent := range cpu.Recent {
			if recent.Count == 0 {
				continue
			}
			all[recent.Key] = addup.Plus(all[recent.Key], processCalls{recent.Count, recent.NS})
		}
	}
	for key, sum := range all {
		found.Processes = append(found.Processes, profiling.ProcessCalls{
			Node: s.node, PID: key.PID, Program: programs[key.PID].String(), Name: name(key.Number),
			Count: sum.Count, NS: sum.NS,
		})
	}
	return nil
}

// name of a call; a number newer than the table is its own name.
func name(number uint32) string {
	switch number {
	case numberFault:
		return profiling.PageFault
	case numberForeign:
		return profiling.ForeignCalls
	}
	if known := names()[number]; known != "" {
		return known
	}
	return fmt.Sprintf("call %d", number)
}

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
