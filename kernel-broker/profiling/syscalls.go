// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// Cause is what a part of a system call's time went to. Each nanosecond of a
// call is in one part only, so the parts add up to the whole.
type Cause string

// The causes. "Job" is the job that is observed, all of its processes.
const (
	// CauseCall is the call's own work.
	CauseCall Cause = "call"
	// CauseFault is work of page faults, and their number.
	CauseFault Cause = "fault"
	// CauseFaultWait is what page faults waited, for a disk mostly.
	CauseFaultWait Cause = "fault_wait"
	// CauseIRQ and CauseSoftIRQ came in between, packets apart.
	CauseIRQ     Cause = "irq"
	CauseSoftIRQ Cause = "softirq"
	// CausePacketJob is work on packets for the job's own sockets while the
	// call had the CPU, CausePacketOther on packets for others.
	CausePacketJob   Cause = "packet_job"
	CausePacketOther Cause = "packet_other"
	// The call slept, until a packet came, an interrupt or a timer, a task of
	// this job, another task, or an unknown cause.
	CauseWaitPacket  Cause = "wait_packet"
	CauseWaitDevice  Cause = "wait_device"
	CauseWaitJob     Cause = "wait_job"
	CauseWaitOther   Cause = "wait_other"
	CauseWaitUnknown Cause = "wait_unknown"
	// The call was woken and had no CPU yet: a task of the job had it, another
	// task, or it slept itself.
	CauseReadyJob   Cause = "ready_job"
	CauseReadyOther Cause = "ready_other"
	CauseReadyIdle  Cause = "ready_idle"
	// The call had to leave the CPU to a task of this job, or to another.
	CausePreemptedJob   Cause = "preempted_job"
	CausePreemptedOther Cause = "preempted_other"
)

// Causes lists all, in the order of reports.
func Causes() []Cause {
	return []Cause{
		CauseCall, CauseFault, CauseFaultWait, CauseIRQ, CauseSoftIRQ, CausePacketJob, CausePacketOther,
		CauseWaitPacket, CauseWaitDevice, CauseWaitJob, CauseWaitOther, CauseWaitUnknown,
		CauseReadyJob, CauseReadyOther, CauseReadyIdle, CausePreemptedJob, CausePreemptedOther,
	}
}

// PageFault is the name under which page faults outside of any call stand
// among the calls; ForeignCalls are those of 32-bit programs, in one sum.
const (
	PageFault    = "[page fault]"
	ForeignCalls = "[32-bit call]"
)

// Part of the time of calls. Count is how often it happened, which only the
// call's own work has not.
type Part struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

// Syscall is all calls of one name.
type Syscall struct {
	Name   string `json:"name" sum:"key"`
	Count  uint64 `json:"count"`
	Failed uint64 `json:"failed"`
	NS     uint64 `json:"ns"`
	// MostNS is the longest single call.
	MostNS uint64 `json:"most_ns" sum:"max"`
	// Times has the calls by their nanoseconds.
	Times Histogram `json:"times"`
	// Split has the parts that are not zero.
	Split map[Cause]Part `json:"split"`
}

// ProcessCalls is what one process called.
type ProcessCalls struct {
	Node    string `json:"node"`
	PID     uint32 `json:"pid" sum:"-"`
	Program string `json:"program"`
	Name    string `json:"name"`
	Count   uint64 `json:"count"`
	NS      uint64 `json:"ns"`
}

// Syscalls is what the collector of that name found.
type Syscalls struct {
	Calls     []Syscall      `json:"calls"`
	Processes []ProcessCalls `json:"processes"`
	// Slowest has the MostSlow slowest single calls of each name, without those of
	// Slurm's daemon; absent in results of agents that did not look for them.
	Slowest []SlowCall `json:"slowest,omitempty"`
	// NotListed are calls that are among Calls, but whose process found no room
	// in Processes.
	NotListed Part `json:"not_listed"`
	// LostAway counts calls of which nothing is known, since there was no
	// memory for their state while their task was off the CPU.
	LostAway uint64 `json:"lost_away"`
}

// Named finds a call; its zero value if there was none.
func (s *Syscalls) Named(name string) Syscall {
	for _, c := range s.Calls {
		if c.Name == name {
			return c
		}
	}
	return Syscall{Name: name}
}

// Sort puts the calls that cost most first.
func (s *Syscalls) Sort() {
	slices.SortFunc(s.Calls, func(a, b Syscall) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Processes, func(a, b ProcessCalls) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.PID, b.PID), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Program, b.Program))
	})
	SortSlowest(s.Slowest)
}

// Bound keeps the processes whose calls took most, and the slowest calls; the
// others stay in the sums.
func (s *Syscalls) Bound(most int) {
	s.Processes = slices.Clone(s.Processes)
	s.Calls = slices.Clone(s.Calls)
	s.Slowest = slices.Clone(s.Slowest)
	s.Sort()
	s.Slowest = s.Slowest[:min(most, len(s.Slowest))]
	if len(s.Processes) <= most {
		return
	}
	for _, p := range s.Processes[most:] {
		s.NotListed = s.NotListed.plus(Part{p.Count, p.NS})
	}
	s.Processes = s.Processes[:most:most]
}

// Below is a time that the share q of the calls took at most. Of the last bucket
// that is the longest call: the histogram's own bound may lie beyond it, or before
// it, since the last bucket that a node counts has no end.
func (c Syscall) Below(q float64) uint64 {
	bound := c.Times.AtMost(q)
	switch last := len(c.Times.Trimmed()); {
	case c.MostNS == 0:
		return bound
	case last > 0 && bound == 1<<last-1:
		return c.MostNS
	}
	return min(bound, c.MostNS)
}

func (p Part) plus(other Part) Part { return Part{p.Count + other.Count, p.NS + other.NS} }

// MostSlow is how many single calls of a name a result has.
const MostSlow = 8

// UnknownFile is the file of a call that has one, when nobody could find out
// which: it was closed meanwhile, or its path was gone from memory.
const UnknownFile = "[unknown]"

// SlowCall is one of the slowest single calls of its name.
type SlowCall struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// PID is the process, TID the thread in it, and Program the thread's name.
	PID     uint32 `json:"pid" sum:"-"`
	TID     uint32 `json:"tid" sum:"-"`
	Program string `json:"program"`
	// At is when the call began, by the clock of its node's begin.
	At     time.Time `json:"at" sum:"-"`
	NS     uint64    `json:"ns" sum:"-"`
	Failed bool      `json:"failed"`
	// Bytes that it moved; absent if it moves none.
	Bytes *uint64 `json:"bytes,omitempty" sum:"-"`
	// File is the path as it was opened or asked for, or the last name alone; the
	// kind in brackets if it has no name, and empty for calls without a file.
	File string `json:"file"`
	// Device and Inode of the file, if it was open at the call's end.
	Device string `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty" sum:"-"`
	// Split has the parts that are not zero.
	Split map[Cause]Part `json:"split" sum:"-"`
}

// SortSlowest puts the slowest first, in one order whatever the order was.
func SortSlowest(all []SlowCall) {
	slices.SortFunc(all, func(a, b SlowCall) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), a.At.Compare(b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID), cmp.Compare(a.Program, b.Program), cmp.Compare(a.File, b.File))
	})
}

// Slow are the slowest calls, at most so many of each name.
func (s *Syscalls) Slow(most int) []SlowCall {
	seen := map[string]int{}
	return slices.DeleteFunc(slices.Clone(s.Slowest), func(c SlowCall) bool {
		seen[c.Name]++
		return seen[c.Name] > most
	})
}

// Sum is what two nodes found: of each name the slowest calls of both.
func (s *Syscalls) Sum(other *Syscalls) *Syscalls {
	type figures Syscalls
	sum := Syscalls(addup.Plus(figures(*s), figures(*other)))
	sum.Sort()
	sum.Slowest = sum.Slow(MostSlow)
	return &sum
}

// NameSlowCalls gives slow calls the whole path of their file, where the io
// collector saw it opened.
func (r *Result) NameSlowCalls() {
	if r.IO == nil || r.Syscalls == nil {
		return
	}
	type inode struct {
		node, device string
		number       uint64
		name         string
	}
	paths := map[inode]string{}
	for _, f := range r.IO.Files {
		if f.WholePath {
			paths[inode{f.Node, f.Device, f.Inode, path.Base(f.Path)}] = f.Path
		}
	}
	for i, c := range r.Syscalls.Slowest {
		// A number may belong to another file by now; that it has the same name is unlikely.
		whole := paths[inode{c.Node, c.Device, c.Inode, path.Base(c.File)}]
		if whole != "" && !strings.HasPrefix(c.File, "/") {
			r.Syscalls.Slowest[i].File = whole
		}
	}
}
