// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// pass decides once, commits, and has it done.
func (c *Controller) pass(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stale {
		if err := c.loadLocked(ctx); err != nil {
			return err
		}
		c.stale = false
	}
	c.admitLocked()
	in := c.inputLocked()
	out := plan.Decide(in)
	changed := len(out.Nodes)+len(out.Allocations)+len(out.Runs) > 0
	if changed { // a try that ended has changed its node
		if err := c.commitLocked(ctx, in.Now, &out); err != nil {
			c.stale = true
			return fmt.Errorf("commit: %w", err)
		}
		changed = len(out.Nodes)+len(out.Allocations)+len(out.Runs) > 0
		c.logChanges(in, out)
		c.logRuns(in.Runs, out.Runs)
		for _, a := range out.Allocations {
			if a.Closed {
				delete(c.lastComments, a.ID)
			}
		}
		c.forgetResetsLocked()
		maps.DeleteFunc(c.restored, func(node string, _ time.Time) bool {
			n := c.records.nodes[node]
			return n == nil || !n.SlurmdHeld && (n.OutOfService == nil || !n.OutOfService.Asked)
		})
	}
	c.keepHoldsLocked(ctx, out.Held)
	c.forgetReportsLocked()
	for name, s := range c.sessions {
		if n := c.records.nodes[name]; n != nil {
			s.push(n)
			s.pushRuns()
		}
		for _, number := range s.heartbeats {
			s.send(Message{Heartbeat: number})
		}
		s.heartbeats = nil
		if kept, answered := out.Kept[name]; answered && s.agent.Ending != 0 {
			s.send(Message{Answer: &EndingAnswer{Query: s.query, Kept: kept}})
			s.agent.Ending, s.query = 0, 0
		}
	}
	for _, action := range slices.Concat(out.Actions, c.damagedLocked(in.Now), c.rebootsLocked(in.Now)) {
		c.actions.submit(action)
	}
	c.notifyLocked(out)
	c.notifyRunsLocked(out.Runs)
	if changed {
		c.kickLocked()
		c.pollNow()
	}
	return nil
}

// forgetResetsLocked drops the resets that the records hold by now, or that
// ended a boot which is over.
func (c *Controller) forgetResetsLocked() {
	open := map[string]bool{}
	for _, n := range c.records.nodes {
		if p := n.Pending; p != nil && p.ResetAt.IsZero() {
			open[p.Token] = true
		}
	}
	maps.DeleteFunc(c.resets, func(token string, _ time.Time) bool { return !open[token] })
}

// admitLocked gives every connected node a record to decide on.
func (c *Controller) admitLocked() {
	for name := range c.sessions {
		if c.records.nodes[name] == nil {
			c.records.nodes[name] = &kb.Node{Name: name}
		}
	}
}

func (c *Controller) inputLocked() plan.Input {
	in := plan.Input{
		Now: c.clock.Now(), Began: c.clock.began, Config: c.o.Plan, Slurm: c.view, SlurmSince: c.seenSince,
		// Copies: what was is compared with what became of it after the commit.
		Nodes: maps.Clone(c.records.nodes), Allocations: maps.Clone(c.records.allocs),
		Runs: c.openRunsLocked(), NextRun: c.records.runs.next,
		Agents: map[string]plan.Agent{}, Catalog: c.kernels, LastComments: c.lastComments, Held: c.held, Queued: c.queuedLocked(), SlurmBoot: c.slurmBoot, Resets: c.resets, GateLeft: c.gateLeft, Damaged: maps.Clone(c.damaged), Restored: maps.Clone(c.restored), PlainBoots: map[string]bool{}, Rules: c.records.ledger.rules, NewToken: newToken,
	}
	if c.viewErr != nil {
		in.SlurmSince = in.Now
	}
	for name, since := range c.lost {
		in.Agents[name] = plan.Agent{Since: since}
	}
	for name, s := range c.sessions {
		in.Agents[name] = s.agent
	}
	// Also of a node that is away: the boot with which it comes is the one that was asked for.
	for name := range c.plainBoots {
		in.PlainBoots[name] = true
	}
	for name, u := range c.unread {
		agent := in.Agents[name]
		agent.Reports = u.reports
		in.Agents[name] = agent
	}
	for name, refusals := range c.refusals {
		agent := in.Agents[name]
		agent.Refusals = refusals
		in.Agents[name] = agent
	}
	return in
}

func newToken() string {
	var raw [16]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// logChanges logs every change of state.
func (c *Controller) logChanges(in plan.Input, out plan.Output) {
	for _, n := range out.Nodes {
		old := in.Nodes[n.Name]
		if old == nil {
			continue
		}
		if from, to := old.Progress(), n.Progress(); from != to || old.Desired != n.Desired {
			cause := ""
			if n.Failure != nil {
				cause = n.Failure.Cause
			}
			c.log.Info("node changed", "node", n.Name, "job", n.Owner.String(), "from", from, "to", to,
				"desired", n.Desired.String(), "running", n.Running.Ref.String(), "reason", cause)
		}
	}
	for _, a := range out.Allocations {
		if old := in.Allocations[a.ID]; old != nil && old.Phase != a.Phase {
			c.log.Info("allocation changed", "job", a.ID.String(), "from", string(old.Phase), "to", string(a.Phase), "reason", a.Reason)
		}
	}
}

// notifyLocked wakes those who watch a job.
func (c *Controller) notifyLocked(out plan.Output) {
	touched := map[kb.JobID]bool{}
	for _, a := range out.Allocations {
		touched[a.ID] = true
	}
	for _, n := range out.Nodes {
		touched[n.Owner] = true
	}
	for id := range touched {
		c.wakeLocked(id)
	}
}

// wakeLocked has those who watch a job look at it.
func (c *Controller) wakeLocked(id kb.JobID) {
	for _, ch := range c.watchers[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
