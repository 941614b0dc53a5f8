// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// many desires a run for each job, of which those before the given one have ended.
func (w *world) many(jobs, ended uint32) {
	var all []kb.DesiredRun
	for job := range jobs {
		all = append(all, kb.DesiredRun{Run: uint64(job + 1), Job: kb.JobID{Job: job + 1}, Collectors: []string{"io"}, Ended: job < ended})
	}
	w.keeper.Desire(all)
}

// count of the reports that contain a text, each once.
func (w *world) count(text string) int {
	seen := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(w.states))), func(s string) bool { return !strings.Contains(s, text) })
	return len(seen)
}

// A hundred one-core jobs on one node have maps and clocks for a few: the others run without, and their runs say why.
func TestManyJobsOnANode(t *testing.T) {
	const jobs, places = 100, 3
	w := newWorld(t)
	w.keeper.Close()
	w.places = places
	w.start()
	w.many(jobs, 0)
	w.until("each run is answered", func() bool { return w.count(" ready ")+w.count(" failed ") == jobs })
	const why = " failed profiling is not available: n1 already profiles as many jobs as it may, 3 (profiling.max_runs of agent.yaml)"
	w.mu.Lock()
	if len(w.sessions) != places || w.count(why) != jobs-places {
		t.Errorf("%d sessions, %d refused", len(w.sessions), w.count(why))
	}
	w.mu.Unlock()
	if groups, err := filepath.Glob(filepath.Join(w.dir, "cgroup", "*")); err != nil || len(groups) != places {
		t.Errorf("cgroups %q, %v", groups, err)
	}
}

// A run waits for the place of one whose job has ended: its collectors take a while to detach.
func TestPlaceOfAJobThatEnded(t *testing.T) {
	for name, c := range map[string]struct {
		detaches bool
		want     string
	}{
		"its collectors detach": {true, "2 ready "},
		"they do not":           {false, "2 failed profiling is not available"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.keeper.Close()
				w.places = 1
				w.start()
				w.many(1, 0)
				w.until("the first is ready", w.said("1 ready"))
				events := filepath.Join(w.dir, "cgroup", "job_1", "cgroup.events")
				alive := func(n int) {
					if err := os.WriteFile(events, fmt.Appendf(nil, "populated %d\n", n), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				alive(1)
				w.until("it looks", w.said("1 looking"))
				w.many(2, 1)
				time.Sleep(placeLimit / 2)
				synctest.Wait()
				w.mu.Lock()
				if n := w.count("2 "); n > 0 {
					t.Errorf("the second is answered before the first has left: %q", w.states)
				}
				w.mu.Unlock()
				if c.detaches {
					alive(0)
				}
				w.until("the second is answered", w.said(c.want))
			})
		})
	}
}
