// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"os"
	"path/filepath"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A request whose job left before it began waits for the next one, of which nothing of the old job is a part.
func TestRequestForTheNextJob(t *testing.T) {
	next := func(job uint32, ended bool) []kb.DesiredRun {
		return []kb.DesiredRun{{Run: 3, Job: kb.JobID{Job: job}, Collectors: []string{"io"}, Ended: ended}}
	}
	for name, lists := range map[string][][]kb.DesiredRun{
		"in one list":           {next(8, false)},
		"in two lists":          {nil, next(8, false)},
		"with a job in between": {next(9, false), nil, next(8, false)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.desired(nil)
			w.until("it is ready", w.said("3 ready"))
			folder(filepath.Join(w.dir, "runs", "3")).part(t, "1.earlier", "n1")
			for _, list := range lists {
				w.keeper.Desire(list)
			}
			var session *fakeSession
			w.until("the next job is awaited", func() bool {
				session = w.sessions[len(w.sessions)-1]
				return session.request.Job.Job == 8
			})
			if _, err := os.Stat(w.cgroup()); !os.IsNotExist(err) {
				t.Errorf("cgroup of the old job: %v", err)
			}
			events := filepath.Join(session.request.Cgroup, "cgroup.events")
			if err := os.WriteFile(events, []byte("populated 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			w.until("it looks", w.said("3 looking"))
			if err := os.Remove(events); err != nil {
				t.Fatal(err)
			}
			w.keeper.Desire(next(8, true))
			w.until("it is delivered", func() bool { return len(w.got) == 1 })
			if r := w.delivered(); r.Job != 8 || len(r.Nodes) != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A run that the broker gave up in the middle is ended.
func TestUnwantedRunEnds(t *testing.T) {
	w := looking(t)
	w.keeper.Desire(nil)
	<-w.sessions[0].Ended()
	w.until("all is forgotten", func() bool { return w.folders() == 0 })
	if len(w.got) != 0 {
		t.Errorf("delivered %v", w.got)
	}
}
