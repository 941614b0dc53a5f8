// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// What of a job's cgroup is Slurm's and not the job's: the daemon that each step
// has, which waits all the time, and the files by which it governs the cgroup.
const (
	// StepDaemon is that daemon's name.
	StepDaemon  = "slurmstepd"
	cgroupFiles = "/sys/fs/cgroup/"
)

// daemonThreads are the names that the daemon is seen by: a process has the name of the thread that was seen first.
var daemonThreads = []string{StepDaemon, "acctg", "acctg_prof", "acctg_energy", "acctg_fs", "acctg_ib", "acctg_intrcnt"}

// Slurms is what of a result is Slurm's own.
type Slurms struct {
	// Calls of slurmstepd, and Mixed: the names of those that the job makes, too.
	Calls Part
	Mixed []string
	// Files of the cgroup, and the reads and writes of them.
	Files, Moves uint64
}

// None reports whether there is nothing of Slurm's.
func (s Slurms) None() bool { return s.Calls.Count == 0 && s.Files == 0 }

// String describes it in a line.
func (s Slurms) String() string {
	var parts []string
	if s.Calls.Count > 0 {
		parts = append(parts, fmt.Sprintf("%d calls of %s that took %v", s.Calls.Count, StepDaemon, time.Duration(s.Calls.NS).Round(time.Millisecond)))
	}
	if s.Files > 0 {
		parts = append(parts, fmt.Sprintf("%d reads and writes of %d files below %s", s.Moves, s.Files, cgroupFiles))
	}
	return strings.Join(parts, ", and ")
}

// WithoutSlurm takes off what is Slurm's. Of a call that the job makes, too, the
// number and the time are the job's then, and Slurm's time comes off the waits,
// which it consists of; how single ones are spread, and how many failed, stays that
// of both.
func (r *Result) WithoutSlurm() (Result, Slurms) {
	out, off := *r, Slurms{}
	if r.Syscalls != nil {
		out.Syscalls = r.Syscalls.withoutSlurm(&off)
	}
	if r.IO != nil {
		out.IO = r.IO.withoutSlurm(&off)
	}
	return out, off
}

func (s *Syscalls) withoutSlurm(off *Slurms) *Syscalls {
	out, theirs := *s, map[string]Part{}
	out.Processes, out.Calls = nil, nil
	for _, p := range s.Processes {
		if !slices.Contains(daemonThreads, p.Program) {
			out.Processes = append(out.Processes, p)
			continue
		}
		theirs[p.Name] = theirs[p.Name].plus(Part{p.Count, p.NS})
		off.Calls = off.Calls.plus(Part{p.Count, p.NS})
	}
	out.Slowest = slices.DeleteFunc(slices.Clone(s.Slowest), func(c SlowCall) bool { return slices.Contains(daemonThreads, c.Program) })
	for _, c := range s.Calls {
		part := theirs[c.Name]
		if part.Count >= c.Count {
			continue
		}
		if part.Count > 0 {
			off.Mixed = append(off.Mixed, c.Name)
			c = c.less(part)
		}
		out.Calls = append(out.Calls, c)
	}
	out.Sort()
	return &out
}

// waits are the causes that calls of who only waits have, the likeliest first.
var waits = []Cause{CauseWaitJob, CauseWaitOther, CauseWaitDevice, CauseWaitUnknown, CauseWaitPacket, CauseReadyOther, CauseReadyJob, CauseReadyIdle}

func (c Syscall) less(part Part) Syscall {
	c.Count, c.NS = c.Count-part.Count, less(c.NS, part.NS)
	c.Failed = min(c.Failed, c.Count)
	split, left := map[Cause]Part{}, part.NS
	for cause, one := range c.Split {
		split[cause] = one
	}
	for _, cause := range waits {
		one := split[cause]
		taken := min(one.NS, left)
		one.NS, left = one.NS-taken, left-taken
		if split[cause] = one; one.NS == 0 {
			delete(split, cause)
		}
	}
	c.Split = split
	return c
}

func (io *IO) withoutSlurm(off *Slurms) *IO {
	out := *io
	out.Patterns, out.Files, out.Totals = nil, nil, slices.Clone(io.Totals)
	for _, f := range io.Files {
		if !strings.HasPrefix(f.Path, cgroupFiles) {
			out.Files = append(out.Files, f)
		}
	}
	for _, p := range io.Patterns {
		if !strings.HasPrefix(p.Shape, cgroupFiles) {
			out.Patterns = append(out.Patterns, p)
			continue
		}
		off.Files, off.Moves = off.Files+p.Files, off.Moves+p.Read.Calls+p.Write.Calls
		for i, t := range out.Totals {
			if t.Kind == RegularFiles {
				// The least and the most bytes of a call stay: nobody knows whose they were.
				out.Totals[i] = addup.Less(t, Total{Read: p.Read, Write: p.Write})
			}
		}
	}
	return &out
}

func less(a, b uint64) uint64 { return a - min(a, b) }
