//go:build lab

package collect_test

import (
	"fmt"
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
	const (
		count = 3_000_000
		share = 0.04
		// What the loop may be slowed down by: it takes about a second, and the
		// credit of the begin is 50 ms.
		most = 0.1
	)
	command := []string{"known", "calls", fmt.Sprint(count)}
	alone := cost(t, command, nil)
	j := newJob(t, func(r *collect.Request) { r.Overhead = share }, files.Collector{}, syscalls.Collector{})
	cmd := j.command(command[0], command[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
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
		if !known || c.Exact || c.Pauses == 0 {
			t.Errorf("coverage of %s: %+v", name, c)
		}
	}
	c, _ := result.Covered(profiling.CollectSyscalls)
	// The account has all that there was, and not much else.
	near(t, "cost by the account", float64(c.CostNS), with-alone, 0.3)
	calls := result.Syscalls.Named("getppid")
	near(t, "calls by the estimate", float64(calls.Count), count, 0.15)
	if calls.Times.Count() != calls.Count {
		t.Errorf("%d calls, %d in the histogram", calls.Count, calls.Times.Count())
	}
}
