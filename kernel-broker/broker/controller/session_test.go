// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
)

func TestAttach(t *testing.T) {
	f := newFixture(t)
	f.start()
	if _, err := f.c.Attach("n1;x", kb.Boot{}, kb.Inventory{}, false); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a bad name: %v", err)
	}
	until(t, "a stranger is refused", func() bool {
		s, err := f.c.Attach("stranger", kb.Boot{BootID: bootOne}, kb.Inventory{}, false)
		if err == nil {
			s.Detach() // slurmctld was not seen yet
		}
		return errors.Is(err, kb.ErrNotFound)
	})
	first := f.attach("n1", kb.StockProfile, "", bootOne)
	second := f.attach("n1", kb.StockProfile, "", bootOne)
	select {
	case <-first.Replaced():
	case <-time.After(5 * time.Second):
		t.Fatal("the older stream is not told that it was replaced")
	}
	second.wished(t, "the newer is served", func(d kb.DesiredState) bool { return d.Attested })
	first.Detach() // late, and no harm
	second.SetVersion("1.2.3" + strings.Repeat("x", 100))
	if v, err := f.c.Node("n1"); err != nil || !v.Connected || !strings.HasPrefix(v.AgentVersion, "1.2.3x") || len(v.AgentVersion) != maxVersion {
		t.Errorf("node %+v, %v", v, err)
	}
	second.Detach()
	if v, err := f.c.Node("n1"); err != nil || v.Connected || v.AgentVersion != "" || time.Since(v.LastSeen) > time.Minute {
		t.Errorf("node %+v, %v", v, err)
	}
	if _, err := f.c.Node("n9"); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("Node = %v", err)
	}
}

// An agent that does not read is cut off, and its time runs from then.
func TestSlowAgentIsCutOff(t *testing.T) {
	f := newFixture(t)
	f.start()
	s, err := f.c.Attach("n1", kb.Boot{BootID: bootOne, BuildID: simKernel("stock").BuildID}, kb.Inventory{}, false)
	if err != nil {
		t.Fatal(err)
	}
	f.c.mu.Lock()
	for range outbox + 2 {
		s.send(Message{Snapshot: "x"})
	}
	lost, connected := f.c.lost["n1"], f.c.sessions["n1"] != nil
	f.c.mu.Unlock()
	if connected || time.Since(lost) > time.Minute {
		t.Errorf("connected %v, lost %v", connected, lost)
	}
	select {
	case <-s.Replaced():
	default:
		t.Error("the stream goes on")
	}
	s.Detach()
	f.attach("n1", kb.StockProfile, "", bootOne).wished(t, "it dials again", func(d kb.DesiredState) bool { return d.Attested })
}

func TestSnapshotReachesEveryAgent(t *testing.T) {
	f := newFixture(t)
	f.start()
	one := f.attach("n1", kb.StockProfile, "", bootOne)
	has := func(a *fakeAgent, text string) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, m := range a.news {
				if strings.Contains(m.Snapshot, text) {
					return true
				}
			}
			return false
		}
	}
	until(t, "the snapshot", has(one, "profile mitgcm 1 1 available"))
	ref := kb.Ref{Profile: "mitgcm", Version: 1}
	for i := range 2 {
		if _, err := f.catalog.RecordBootFailure(t.Context(), catalog.BootFailure{ID: fmt.Sprint("boot", i), Ref: ref, Cause: "panic", Only: true, Threshold: 2}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the new snapshot", has(one, "profile mitgcm 1 1 quarantined"))
	until(t, "the snapshot for one who came later", has(f.attach("n2", kb.StockProfile, "", bootTwo), "quarantined"))
}

// Two boots that fail: each is counted once, the kernel is quarantined, the job
// held with the reason.
func TestPanicsAreCountedAndTheJobIsHeld(t *testing.T) {
	f, agent, d := begun(t)
	for try := 1; try <= 2; try++ {
		agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
		until(t, "booting", func() bool { v, err := f.c.Node("n1"); return err == nil && v.Node.Progress() == "booting" })
		agent.Detach()
		token := d.Token
		agent = f.attach("n1", kb.StockProfile, "", fmt.Sprintf("%s-%d", bootTwo, try))
		if try == 1 {
			d = agent.wished(t, "another try", func(d kb.DesiredState) bool { return d.Kernel != nil && d.Token != token })
		}
	}
	until(t, "the job is held", func() bool { return f.slurm.seen("hold 7") > 0 })
	if f.slurm.seen("comment 7 kernel-broker: kernel mitgcm@1 on node n1: the node came back on 6.1-stock") == 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	until(t, "the quarantine", func() bool {
		_, err := f.catalog.Check(t.Context(), kb.Ref{Profile: "mitgcm"})
		return errors.Is(err, kb.ErrQuarantined)
	})
	until(t, "nothing is left to count", func() bool { v, err := f.c.Node("n1"); return err == nil && len(v.Node.Faults) == 0 })
	profile, err := f.catalog.Get(t.Context(), "mitgcm")
	if err != nil || profile.Versions[0].BootFailures != 2 {
		t.Errorf("%d failures counted, %v", profile.Versions[0].BootFailures, err)
	}
}

// A broker that was killed after it counted, before it could note that.
func TestFaultIsCountedOnceAcrossARestart(t *testing.T) {
	f, agent, d := begun(t)
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	until(t, "booting", func() bool { v, err := f.c.Node("n1"); return err == nil && v.Node.Progress() == "booting" })
	f.stop()
	r := records{store: f.store}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	fault := kb.Fault{Token: d.Token, Ref: d.Kernel.Ref(), Cause: "panic"}
	n := r.nodes["n1"]
	n.Faults = append(n.Faults, fault)
	if err := r.commit(t.Context(), []*kb.Node{n}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.catalog.RecordBootFailure(t.Context(), catalog.BootFailure{ID: fault.Token, Ref: fault.Ref, Cause: fault.Cause, Only: true, Threshold: 2}); err != nil {
		t.Fatal(err)
	}
	f.start()
	until(t, "it is noted", func() bool { v, err := f.c.Node("n1"); return err == nil && len(v.Node.Faults) == 0 })
	profile, err := f.catalog.Get(t.Context(), "mitgcm")
	if err != nil || profile.Versions[0].BootFailures != 1 {
		t.Errorf("%d failures counted, %v", profile.Versions[0].BootFailures, err)
	}
}

func TestEpilogIsAnswered(t *testing.T) {
	f := newFixture(t)
	f.start()
	agent := f.attach("n1", kb.StockProfile, "", bootOne)
	agent.Ending(41, 12)
	until(t, "the answer", func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		for _, m := range agent.news {
			if m.Answer != nil {
				return m.Answer.Query == 41 && !m.Answer.Kept
			}
		}
		return false
	})
}
