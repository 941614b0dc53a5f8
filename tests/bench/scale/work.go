// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// Work is what became of the jobs of a time.
type Work struct {
	Jobs int `json:"jobs"`
	// Lost did not run when their prologs ended, for whatever reason.
	Lost int `json:"lost"`
	// Boots are those beyond the two of each switch and return, Wrong the nodes that ran another kernel than they should.
	Boots    int      `json:"boots_beyond"`
	Wrong    int      `json:"wrong_kernels"`
	Slowest  float64  `json:"slowest_prolog_s"`
	Examples []string `json:"examples,omitempty"`
}

// tally of jobs, by all their groups of nodes.
type tally struct {
	mu   sync.Mutex
	work Work
}

func (t *tally) with(change func(*Work)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.work)
}

// take returns what there is, and begins anew.
func (t *tally) take() (w Work) {
	t.with(func(all *Work) { w, *all = *all, Work{} })
	return w
}

// example keeps the first few, for who has to find out.
func (w *Work) example(format string, words ...any) {
	if len(w.Examples) < 5 {
		w.Examples = append(w.Examples, fmt.Sprintf(format, words...))
	}
}

// work runs job after job on nodes until more ends. A node that does not come back is an error.
func (f *faults) work(more, ctx context.Context, nodes []*machine) error {
	boots := make([]int, len(nodes))
	for i, m := range nodes {
		boots[i], _ = m.history()
	}
	for pass(more, rand.N(3*time.Second)) == nil {
		j := &job{id: f.jobID.Add(1), machines: nodes}
		f.slurmctld.allocate(j.id, j.names(), "kernel-broker: "+profile+" requested")
		begun := time.Now()
		f.prolog(j)
		took := time.Since(begun).Seconds()
		wrong := running(nodes, profile)
		_ = pass(ctx, rand.N(2*time.Second))
		f.slurmctld.end(j.id)
		go f.hook(j, "epilog-slurmctld")
		if err := f.until(ctx, returns, fmt.Sprintf("the nodes of job %d are in service again", j.id), func() bool { return f.slurmctld.idle(j.names()) }); err != nil {
			return err
		}
		back := running(nodes, emulated.StockName)
		f.tally.with(func(w *Work) {
			w.Jobs++
			w.Slowest = max(w.Slowest, took)
			if !j.ready {
				w.Lost++
				w.example("job %d lost after %.1f s on %s", j.id, took, nodes[0].name)
			} else if len(wrong) > 0 {
				w.Wrong += len(wrong)
				w.example("job %d: %s", j.id, wrong[0])
			}
			if w.Wrong += len(back); len(back) > 0 {
				w.example("after job %d: %s", j.id, back[0])
			}
			for i, m := range nodes {
				now, _ := m.history()
				if beyond := now - boots[i] - 2; j.ready && beyond > 0 {
					w.Boots += beyond
					w.example("job %d: %s booted %d times", j.id, m.name, now-boots[i])
				}
				boots[i] = now
			}
		})
	}
	return nil
}

// running are the nodes that do not run a kernel, with what they run.
func running(nodes []*machine, kernel string) (others []string) {
	want := emulated.KernelNamed(kernel)
	for _, m := range nodes {
		m.with(func() {
			if m.boot.BuildID != want.BuildID || m.link == nil {
				others = append(others, fmt.Sprintf("%s runs %s, %s was expected", m.name, m.boot.Release, want.Release))
			}
		})
	}
	return others
}
