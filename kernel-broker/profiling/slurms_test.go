// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"slices"
	"strings"
	"testing"
)

// withSlurms is a job with the daemon of its step: it polls, waits for the
// job's processes, and reads the cgroup's files.
func withSlurms() Result {
	traffic := func(calls uint64) Traffic {
		return Traffic{Calls: calls, Bytes: 10 * calls, Small: calls, Sizes: Histogram{0, 0, 0, calls}}
	}
	r := Result{Format: Format,
		Syscalls: &Syscalls{
			Calls: []Syscall{
				{Name: "futex", Count: 12, NS: 9_000, MostNS: 800, Times: Histogram{0, 12},
					Split: map[Cause]Part{CauseCall: {NS: 500}, CauseWaitJob: {Count: 10, NS: 8_000}, CauseWaitDevice: {Count: 2, NS: 500}}},
				{Name: "wait4", Count: 1, NS: 7_000, MostNS: 7_000},
				{Name: "write", Count: 5, NS: 50, MostNS: 20},
			},
			Processes: []ProcessCalls{
				{PID: 5, Program: "slurmstepd", Name: "futex", Count: 10, NS: 8_200},
				{PID: 5, Program: "slurmstepd", Name: "wait4", Count: 1, NS: 7_000},
				{PID: 7, Program: "a.out", Name: "futex", Count: 2, NS: 800},
				{PID: 7, Program: "a.out", Name: "write", Count: 5, NS: 50},
			},
		},
		IO: &IO{
			Totals: []Total{{Kind: RegularFiles, Read: traffic(30), Write: traffic(4)}, {Kind: "pipe", Read: traffic(1)}},
			Patterns: []Pattern{{Shape: "/sys/fs/cgroup/system.slice/*", Files: 3, Calls: 28, Read: traffic(28)},
				{Shape: "/out/*.data", Files: 1, Calls: 6, Read: traffic(2), Write: traffic(4)}},
			Files: []File{{Path: "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/cpu.stat", Read: traffic(28)}, {Path: "/out/1.data", Read: traffic(2), Write: traffic(4)}},
		},
	}
	r.Syscalls.Sort()
	return r
}

func TestWithoutSlurm(t *testing.T) {
	whole := withSlurms()
	r, off := whole.WithoutSlurm()
	var names []string
	for _, c := range r.Syscalls.Calls {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"futex", "write"}) || len(r.Syscalls.Processes) != 2 {
		t.Errorf("calls %v, processes %v", names, r.Syscalls.Processes)
	}
	futex := r.Syscalls.Named("futex")
	sum := uint64(0)
	for _, part := range futex.Split {
		sum += part.NS
	}
	if futex.Count != 2 || futex.NS != 800 || sum != 800 || futex.Split[CauseCall].NS != 500 {
		t.Errorf("futex: %+v", futex)
	}
	if got := r.IO.Total(RegularFiles); got.Read.Calls != 2 || got.Read.Sizes.Count() != 2 || got.Write.Calls != 4 || len(r.IO.Files) != 1 || len(r.IO.Patterns) != 1 {
		t.Errorf("files: %+v", r.IO)
	}
	if text := off.String(); off.None() || text != "11 calls of slurmstepd that took 0s, and 28 reads and writes of 3 files below /sys/fs/cgroup/" || !slices.Equal(off.Mixed, []string{"futex"}) {
		t.Errorf("%q, %+v", text, off)
	}
	// The whole is as it was.
	if before := withSlurms(); whole.Syscalls.Named("futex").Split[CauseWaitJob] != before.Syscalls.Named("futex").Split[CauseWaitJob] || whole.IO.Total(RegularFiles).Read.Calls != 30 {
		t.Error("the result itself was changed")
	}
}

// Whose the failed calls were is not known; there are no more of them than calls.
func TestFailedCallsAreAmongTheJobs(t *testing.T) {
	whole := withSlurms()
	for i := range whole.Syscalls.Calls {
		whole.Syscalls.Calls[i].Failed = whole.Syscalls.Calls[i].Count
	}
	r, _ := whole.WithoutSlurm()
	for _, c := range r.Syscalls.Calls {
		if c.Failed > c.Count {
			t.Errorf("%s: %d of %d calls failed", c.Name, c.Failed, c.Count)
		}
	}
}

// A job without any of it loses nothing.
func TestWithoutSlurmKeepsTheJobs(t *testing.T) {
	whole := withSlurms()
	once, _ := whole.WithoutSlurm()
	twice, off := once.WithoutSlurm()
	if !off.None() || off.String() != "" || len(twice.Syscalls.Calls) != 2 || twice.IO.Total(RegularFiles).Read.Calls != 2 {
		t.Errorf("%+v: %s", off, off)
	}
	none := Result{Format: Format}
	if r, off := none.WithoutSlurm(); r.IO != nil || r.Syscalls != nil || !off.None() {
		t.Errorf("%+v", r)
	}
	if strings.Contains(twice.Syscalls.Processes[0].Program, StepDaemon) {
		t.Error("slurmstepd is left")
	}
}

// The node's last bucket has no end: a script waits for hours.
func TestBelowInTheLastBucket(t *testing.T) {
	const hours = 3 * 3600 * 1e9
	c := Syscall{Count: 3, MostNS: hours, Times: make(Histogram, 40)}
	c.Times[3], c.Times[39] = 1, 2
	if c.Below(0.2) != 15 || c.Below(0.5) != hours || c.Below(0.99) != hours {
		t.Errorf("a fifth below %d, half below %d, 99 %% below %d", c.Below(0.2), c.Below(0.5), c.Below(0.99))
	}
}

// The bound of a histogram lies at a power of two, beyond the longest call.
func TestBelowIsNotBeyondTheLongest(t *testing.T) {
	c := Syscall{MostNS: 90}
	for range 100 {
		c.Times.Add(80)
	}
	if c.Times.AtMost(0.99) != 127 || c.Below(0.99) != 90 || c.Below(0.5) != 90 {
		t.Errorf("99 %% below %d, half below %d, longest %d", c.Below(0.99), c.Below(0.5), c.MostNS)
	}
	if (Syscall{Times: Histogram{0, 1}}).Below(0.5) != 3 {
		t.Error("without a longest call the histogram's bound holds")
	}
}

// The daemon's threads have names of their own, such as that which gathers accounting.
func TestThreadsOfTheDaemonAreSlurms(t *testing.T) {
	for _, name := range []string{"acctg", "acctg_prof"} {
		whole := withSlurms()
		for i, p := range whole.Syscalls.Processes {
			if p.Program == StepDaemon {
				whole.Syscalls.Processes[i].Program = name
			}
		}
		whole.Syscalls.Slowest = []SlowCall{{Name: "futex", Program: name}, {Name: "write", Program: "a.out"}}
		if r, off := whole.WithoutSlurm(); len(r.Syscalls.Slowest) != 1 || len(r.Syscalls.Processes) != 2 || off.Calls.Count != 11 || r.Syscalls.Named("futex").NS != 800 {
			t.Errorf("%s: %+v, %+v", name, r.Syscalls.Processes, off)
		}
	}
}
