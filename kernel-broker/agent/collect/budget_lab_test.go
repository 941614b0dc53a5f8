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

// bounded is the dearest of all jobs, one that does nothing but calls which do
// nothing: with a budget it is slowed down by no more than that and what every
// job begins with, and the calls that nobody saw are estimated. CPU time is a
// number of instructions here.
func bounded(t *testing.T) {
	for _, c := range []struct {
		name string
		// What is allowed, and what the loop may be slowed down by: the credit of
		// the begin is 50 ms, beside that.
		share, most float64
		// count of calls, 350 ns each, and pauses at least. A pause is of up to
		// 1.5 s, by chance, and so the second one needs a loop that lasts longer.
		// To attach costs an emulated CPU so much that the small budget may have
		// one only.
		count  int
		pauses uint64
	}{
		{"4", 0.04, 0.1, 3_000_000, 1},
		{"30", 0.3, 0.4, 12_000_000, 2},
	} {
		t.Run(c.name, func(t *testing.T) { within(t, c.share, c.most, c.count, c.pauses) })
	}
}

// aloneFor is what so many calls cost without collectors: each of them costs the
// same, so two short loops say it of any.
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
		t.Logf("%s looked for %.2f %% of the time and %.2f %% of the job's, in %d pauses; its cost by its own account: %.2f %%",
			name, 100*c.Share(), 100*float64(c.LookedJobNS)/float64(c.JobNS), c.Pauses, 100*float64(c.CostNS)/float64(c.JobNS))
		// The one has next to nothing to do here, and so no reason to look away.
		if exact := name == profiling.CollectIO; !known || c.Exact != exact || !exact && c.Pauses < pauses {
			t.Errorf("coverage of %s: %+v", name, c)
		}
	}
	c, _ := result.Covered(profiling.CollectSyscalls)
	// The account has all that there was, and not much else.
	near(t, "cost by the account", float64(c.CostNS), with-alone, 0.3)
	calls := result.Syscalls.Named("getppid")
	// Nearly all of the time looked at is the collectors' own, so an error of its
	// account is one of several times its size in what was left to the job.
	near(t, "calls by the estimate", float64(calls.Count), float64(count), 0.25)
	if calls.Times.Count() != calls.Count {
		t.Errorf("%d calls, %d in the histogram", calls.Count, calls.Times.Count())
	}
}

// filesInLooks: io, too, looks away and looks again, with all that it hangs on: a
// job that does nothing but short writes is looked at several times, and the
// writes of the last look count like those of the first.
func filesInLooks(t *testing.T) {
	const count, share, pauses = 4_000_000, 0.1, 2
	j := newJob(t, func(r *collect.Request) { r.Overhead = share }, files.Collector{})
	path := filepath.Join(t.TempDir(), "one")
	j.does("known", "writes", fmt.Sprint(count), path)
	result := j.result()
	c, known := result.Covered(profiling.CollectIO)
	t.Logf("io looked for %.2f %% of the time and %.2f %% of the job's, in %d pauses; its cost by its own account: %.2f %%",
		100*c.Share(), 100*float64(c.LookedJobNS)/float64(c.JobNS), c.Pauses, 100*float64(c.CostNS)/float64(c.JobNS))
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
