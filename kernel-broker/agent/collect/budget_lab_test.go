// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// bounded profiles the costliest job, one that does only calls without work: with a budget it is slowed down by no more
// than the budget and the initial credit, and unseen calls are estimated. CPU time is a number of instructions here.
func bounded(t *testing.T) {
	for _, c := range []struct {
		name string
		// The budget, and the allowed slowdown of the loop; the initial credit of 50 ms comes on top.
		share, most float64
		// count of calls, 350 ns each, and the minimum number of pauses. A pause takes a random time up to 1.5 s, so the
		// second one needs a longer loop. Attaching costs an emulated CPU so much that the small budget may have one
		// only.
		count  int
		pauses uint64
	}{
		{"4", 0.04, 0.1, 3_000_000, 1},
		{"30", 0.3, 0.4, 12_000_000, 2},
	} {
		t.Run(c.name, func(t *testing.T) { within(t, c.share, c.most, c.count, c.pauses) })
	}
}

// aloneFor is the cost of that many calls without collectors. Each call costs the same, so two short loops suffice.
func aloneFor(t *testing.T, count float64) float64 {
	const few, more = 100_000, 300_000
	short, long := cost(t, []string{"known", "calls", fmt.Sprint(few)}, nil), cost(t, []string{"known", "calls", fmt.Sprint(more)}, nil)
	return long + (long-short)/(more-few)*(count-more)
}

func within(t *testing.T, share, most float64, count int, pauses uint64) {
	alone := aloneFor(t, float64(count))
	j := newJob(t, func(r *collect.Request) { r.Overhead = share }, files.Collector{}, syscalls.Collector{})
	cmd := j.command("known", "calls", fmt.Sprint(count))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	result := j.result()
	with := float64(cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime())
	added := (with - alone) / alone
	t.Logf("%.0f instructions alone, %.0f with io and syscalls: %.2f %% more", alone, with, 100*added)
	if added > most {
		t.Errorf("%.2f %% more, at most %.0f %% are allowed", 100*added, 100*most)
	}
	for _, name := range []profiling.Collector{profiling.CollectIO, profiling.CollectSyscalls} {
		c, known := result.Covered(name)
		t.Logf("%s was active for %.2f %% of the time and %.2f %% of the job's, in %d pauses; its cost by its own account: %.2f %%",
			name, 100*c.Share(), 100*float64(c.ObservedJobNS)/float64(c.JobNS), c.Pauses, 100*float64(c.CostNS)/float64(c.JobNS))
		// This collector has almost nothing to do here and no reason to pause.
		if exact := name == profiling.CollectIO; !known || c.Exact != exact || !exact && c.Pauses < pauses {
			t.Errorf("coverage of %s: %+v", name, c)
		}
	}
	c, _ := result.Covered(profiling.CollectSyscalls)
	// The account includes everything and not much else.
	near(t, "cost by the account", float64(c.CostNS), with-alone, 0.3)
	calls := result.Syscalls.Named("getppid")
	// Nearly all of the active time is the collectors' own, so an error of its account is several times as large
	// relative to the job's share.
	near(t, "calls by the estimate", float64(calls.Count), float64(count), 0.25)
	if calls.Times.Count() != calls.Count {
		t.Errorf("%d calls, %d in the histogram", calls.Count, calls.Times.Count())
	}
}

// filesInLooks: io with all its programs pauses and resumes, too: a job that does only short writes is observed several
// times, and the writes of the last period count like those of the first.
func filesInLooks(t *testing.T) {
	const count, share, pauses = 4_000_000, 0.1, 2
	j := newJob(t, func(r *collect.Request) { r.Overhead = share }, files.Collector{})
	path := filepath.Join(t.TempDir(), "one")
	j.does("known", "writes", fmt.Sprint(count), path)
	result := j.result()
	c, known := result.Covered(profiling.CollectIO)
	t.Logf("io was active for %.2f %% of the time and %.2f %% of the job's, in %d pauses; its cost by its own account: %.2f %%",
		100*c.Share(), 100*float64(c.ObservedJobNS)/float64(c.JobNS), c.Pauses, 100*float64(c.CostNS)/float64(c.JobNS))
	if !known || c.Exact || c.Pauses < pauses || c.Events >= count {
		t.Errorf("coverage: %+v", c)
	}
	for _, f := range result.IO.Files {
		if f.Path != path {
			continue
		}
		near(t, "writes by the estimate", float64(f.Write.Calls), count, 0.15)
		near(t, "bytes by the estimate", float64(f.Write.Bytes), 8*count, 0.15)
		if f.Write.Least != 8 || f.Write.Most != 8 {
			t.Errorf("writes of %d to %d bytes", f.Write.Least, f.Write.Most)
		}
		return
	}
	t.Errorf("%s is not among %d files", path, len(result.IO.Files))
}
