// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// wide is a job on many nodes.
type wide struct {
	*fixture
	names  []string
	agents []*fakeAgent
	boots  *rand.Rand
}

// bootID is as random as those of Linux: nothing makes them shorter.
func (w *wide) bootID() string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:], w.boots.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], w.boots.Uint64())
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

func newWide(f *fixture, count int) *wide {
	w := &wide{fixture: f, boots: rand.New(rand.NewPCG(1, 2))}
	for i := range count {
		w.names = append(w.names, fmt.Sprintf("node%05d", i))
	}
	w.state("IDLE", "")
	return w
}

func (w *wide) state(state, reason string) {
	for _, n := range w.names {
		w.slurm.node(n, state, reason)
	}
}

// boot has every node come up anew, with the token that it was told.
func (w *wide) boot(profile string) {
	for i, n := range w.names {
		token := ""
		if len(w.agents) <= i {
			w.agents = append(w.agents, nil)
		} else {
			d, _ := w.agents[i].wish()
			w.agents[i].Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressLoaded, Detail: "by kexec_file_load"})
			w.agents[i].Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
			token = d.Token
		}
		w.agents[i] = nil
		w.agents[i] = w.attach(n, profile, token, w.bootID())
	}
}

// come waits for what a thousand nodes must have, which takes its time.
func (w *wide) come(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	w.t.Fatalf("did not come: %s; the job is %s, a record is too large: %v", what, w.phase(7), w.log.has("too large"))
}

func (w *wide) all(what string, is func(d kb.DesiredState) bool) {
	w.t.Helper()
	w.come(what, func() bool {
		for _, a := range w.agents {
			if d, any := a.wish(); !any || !is(d) {
				return false
			}
		}
		return true
	})
}

// loadingWide is job 7, whose nodes are all told what to boot, and another node.
func loadingWide(t *testing.T, count int) (*wide, *fakeAgent) {
	t.Helper()
	w := newWide(newFixture(t), count)
	w.start()
	w.boot(kb.StockProfile)
	other := w.attach("n1", kb.StockProfile, "", bootOne)
	w.all("stock", func(d kb.DesiredState) bool { return d.Attested })
	w.slurm.job(7, "CONFIGURING", w.names...)
	w.state("ALLOCATED+POWERING_UP", "")
	if _, err := w.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 7}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: w.names}); err != nil {
		t.Fatal(err)
	}
	w.all("a kernel to boot", func(d kb.DesiredState) bool { return d.Kernel != nil })
	return w, other
}

// A job that is wider than what a record has room for as it is gets its kernel
// and brings it back, and another job is served meanwhile.
func TestWideJobs(t *testing.T) {
	counts := []int{1500, 4000}
	switch {
	case raced: // which takes minutes for more, and looks for something else
		counts = []int{300}
	case testing.Short():
		counts = counts[:1]
	}
	for _, count := range counts {
		t.Run(fmt.Sprint(count), func(t *testing.T) { wideJob(t, count) })
	}
}

func wideJob(t *testing.T, count int) {
	w, other := loadingWide(t, count)
	w.boot("mitgcm")
	w.state("ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@1 for job 7")
	w.come("every node is ready", func() bool { return w.phase(7) == kb.PhaseReady })

	w.slurm.job(8, "CONFIGURING", "n1")
	w.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	if _, err := w.c.Ensure(t.Context(), request(8)); err != nil {
		t.Fatal(err)
	}
	w.come("another job's kernel", func() bool { d, _ := other.wish(); return d.Kernel != nil })

	w.slurm.job(7, "RUNNING", w.names...)
	w.come("the job is told", func() bool { return w.slurm.seen("comment 7 kernel-broker: runs on") > 0 })
	w.slurm.end(7)
	w.state("IDLE+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@1 for job 7")
	w.all("a wish for stock", func(d kb.DesiredState) bool { return d.Kernel != nil && d.Kernel.Profile == kb.StockProfile })
	w.boot(kb.StockProfile)
	w.state("IDLE", "")
	w.come("every node is back", func() bool { return w.phase(7) == kb.PhaseDone })

	a, err := w.c.Job(t.Context(), 7, nil)
	if err != nil || len(a.Before) != count || len(a.During) != count || len(a.After) != count || a.Brief {
		t.Errorf("nodes before %d, during %d, after %d, %v", len(a.Before), len(a.During), len(a.After), err)
	}
	rec, err := w.store.Get(t.Context(), jobKey(a.ID))
	t.Logf("%d nodes: a record of %d bytes, %d events, %d left out", count, len(rec.Value), len(a.Timeline), a.LeftOut)
	if err != nil || len(rec.Value) > store.MaxCommitBytes/2 || w.log.has("too large") {
		t.Errorf("the record has %d bytes; a record was too large: %v; %v", len(rec.Value), w.log.has("too large"), err)
	}
}
