// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// hung is a node whose reset was decided on when the broker was killed.
func hung(t *testing.T, grace time.Duration) (f *fixture, resets chan string) {
	t.Helper()
	f, agent, d := begun(t)
	agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	until(t, "booting", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Progress() == "booting"
	})
	f.stop()
	f.change("n1", func(n *kb.Node) { n.Pending.Progress, n.Pending.Since = kb.ProgressReset, time.Now().Add(-time.Second) })
	resets = make(chan string, 100)
	f.reset = func(node string) error { resets <- node; return nil }
	f.tune = func(c *plan.Config) { c.ResetGrace, c.RebootTimeout = grace, grace }
	return f, resets
}

// A reset that was decided on and perhaps never done is asked for again, once
// the node had its time to come back; one that was done is not.
func TestResetIsNotLost(t *testing.T) {
	f, resets := hung(t, 1500*time.Millisecond)
	begin := time.Now()
	f.start()
	until(t, "the reset", func() bool { return len(resets) > 0 })
	if waited := time.Since(begin); waited < 1500*time.Millisecond {
		t.Errorf("the node had %v to come back", waited)
	}
	until(t, "the reset is on record", func() bool { return f.pending("n1") == nil || !f.pending("n1").ResetAt.IsZero() })
	f.restart()
	until(t, "the node is given up", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Failure != nil
	})
	if len(resets) != 1 {
		t.Errorf("%d resets", len(resets))
	}
}

// A reset that failed is not on record, so that it is asked for again.
func TestResetThatFails(t *testing.T) {
	f, e := bare(t)
	f.reset = func(string) error { return errors.New("no answer") }
	f.c.records.nodes["n1"] = &kb.Node{Name: "n1", Pending: &kb.Pending{Progress: kb.ProgressReset, Token: "t"}}
	if err := e.perform(t.Context(), plan.Action{Kind: plan.ResetNode, Node: "n1", Token: "t"}); err == nil || len(f.c.receipts) > 0 {
		t.Errorf("%v, %v", err, f.c.receipts)
	}
}

// A node that came up while its reset waited to be done is left alone.
func TestResetSparesANodeThatCameUp(t *testing.T) {
	f, resets := hung(t, time.Hour)
	f.start()
	p := f.pending("n1")
	f.attach("n1", kb.StockProfile, "", bootTwo)
	if err := f.c.actions.perform(t.Context(), plan.Action{Kind: plan.ResetNode, Node: "n1", Token: p.Token}); err != nil || len(resets) > 0 {
		t.Errorf("%v, %d resets", err, len(resets))
	}
}
