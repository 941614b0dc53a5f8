// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func TestJobWait(t *testing.T) {
	const (
		waiting   = api.AllocationPhase_ALLOCATION_PHASE_WAITING
		switching = api.AllocationPhase_ALLOCATION_PHASE_SWITCHING
		ready     = api.AllocationPhase_ALLOCATION_PHASE_READY
		returning = api.AllocationPhase_ALLOCATION_PHASE_RETURNING
		done      = api.AllocationPhase_ALLOCATION_PHASE_DONE
		failed    = api.AllocationPhase_ALLOCATION_PHASE_FAILED
		requeued  = api.AllocationPhase_ALLOCATION_PHASE_REQUEUED
		held      = api.AllocationPhase_ALLOCATION_PHASE_HELD
	)
	had := []*api.TimelineEvent{{At: at(0), Event: "accepted"}, {At: at(22_000), Event: "ready"}}
	for name, c := range map[string]struct {
		flags  string
		phases []api.AllocationPhase // one after the other
		had    bool                  // the kernel
		code   int
		words  string
	}{
		"ready at last":      {"", []api.AllocationPhase{waiting, switching, ready}, true, 0, "job 7 is ready, its kernel was ready after 22 s"},
		"ready before":       {"--for ready", []api.AllocationPhase{done}, true, 0, "job 7 is done"},
		"done":               {"--for done", []api.AllocationPhase{ready, returning, done}, true, 0, "job 7 is done"},
		"failed":             {"", []api.AllocationPhase{switching, failed}, false, exitRefused, "job 7 is failed: no driver"},
		"held":               {"--for done", []api.AllocationPhase{held}, false, exitRefused, "job 7 is held: no driver"},
		"requeued":           {"", []api.AllocationPhase{requeued, switching, ready}, true, 0, "is ready"},
		"cancelled":          {"", []api.AllocationPhase{switching, returning}, false, exitRefused, "ended before it had its kernel"},
		"too late":           {"--timeout 1ms", []api.AllocationPhase{switching}, false, exitFailure, "job 7 is still switching after 1 ms: it is not ready yet"},
		"for something else": {"--for nothing", nil, false, exitUsage, `--for "nothing" is not one of ready, done`},
		"before it began":    {"--timeout=-1s", nil, false, exitUsage, "a time above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			job := &api.Job{JobId: 7, Reference: "7", Reason: "no driver"}
			if c.had {
				job.Timeline = had
			}
			f.jobs.list = []*api.Job{job}
			f.jobs.then = func(looks int, list []*api.Job) {
				list[0].Phase = c.phases[min(looks, len(c.phases))-1]
			}
			code, stdout, stderr := f.run(append([]string{"job", "wait", "7"}, strings.Fields(c.flags)...)...)
			if code != c.code || !strings.Contains(stdout+stderr, c.words) {
				t.Errorf("exit %d, want %d with %q\n%s%s", code, c.code, c.words, stdout, stderr)
			}
		})
	}
}
