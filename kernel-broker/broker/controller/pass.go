// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// pass decides once, commits, and has it done.
func (c *Controller) pass(ctx context.Context) error {
	defer c.toWrite()()
	if err := c.o.MayAct(); err != nil {
		return err
	}
	if c.stale {
		if err := c.loadLocked(ctx); err != nil {
			return err
		}
		c.stale = false
	}
	c.admitLocked()
	c.countLocked()
	now := c.clock.Now()
	c.noteStallLocked(now)
	scope, sweep := c.marks.take(&c.records, now, c.view.At)
	in := c.inputLocked(now, scope)
	if sweep {
		in = c.inputLocked(now, plan.Everything(plan.Input{Nodes: c.records.nodes, Allocations: c.records.allocs}))
	}
	out := plan.Decide(in)
	if sweep {
		c.logMissed(scope, out)
	}
	// What comes from here on is for the next pass.
	c.marks.decided(*in.Scope, out)
	c.marks.flight = *in.Scope
	heard, heartbeats := c.unread, c.takeHeartbeatsLocked(in)
	c.unread = map[string]unread{}
	changed := len(out.Nodes)+len(out.Allocations)+len(out.Runs) > 0
	if changed { // a try that ended has changed its node
		was := c.recordsOf(out)
		if err := c.commitLocked(ctx, in.Now, &out); err != nil {
			c.stale, c.marks.flight = true, plan.Scope{}
			c.putBackLocked(heard)
			return fmt.Errorf("commit: %w", err)
		}
		changed = len(out.Nodes)+len(out.Allocations)+len(out.Runs) > 0
		c.logChanges(was, out)
		c.logRuns(in.Runs, out.Runs)
	}
	if err := c.records.endBoots(ctx, out.BootsOver); err != nil { // what was heard is on record
		c.stale, c.marks.flight = true, plan.Scope{}
		return fmt.Errorf("commit: %w", err)
	}
	c.receipts = c.receipts[len(in.Receipts):]
	c.marks.flight = plan.Scope{}
	c.keepHoldsLocked(ctx, out.Held)
	c.logDropped(heard)
	for name := range in.Scope.Nodes {
		s := c.sessions[name]
		if s == nil {
			continue
		}
		s.push(c.records.nodes[name])
		s.pushRuns()
		for _, number := range heartbeats[s] {
			s.send(Message{Heartbeat: number})
		}
		if kept, answered := out.Kept[name]; answered && s.agent.Ending != 0 && s.agent.EndingSince.Equal(in.Agents[name].EndingSince) {
			s.send(Message{Answer: &EndingAnswer{Query: s.query, Kept: kept}})
			s.agent.Ending, s.query = 0, 0
		}
	}
	c.tellRunsLocked(out.Runs)
	for _, action := range slices.Concat(out.Actions, c.damagedLocked(in.Now)) {
		if c.actions.submit(action); action.Kind == plan.SetFeatures {
			c.featuresSet = in.Now
		}
	}
	c.notifyLocked(out)
	c.notifyRunsLocked(out.Runs)
	if changed {
		c.kickLocked()
		c.pollNow()
	}
	return nil
}

// tellRunsLocked tells nodes what is wanted of their collectors, where a run has changed. One that waits again may be for any job.
func (c *Controller) tellRunsLocked(runs []*kb.Run) {
	for _, r := range runs {
		c.marks.all = c.marks.all || r.Job.IsZero()
		for _, n := range r.Nodes {
			if s := c.sessions[n.Name]; s != nil && c.records.nodes[n.Name] != nil {
				s.pushRuns()
			}
		}
	}
}

// takeHeartbeatsLocked are those that the pass answers once it has committed.
func (c *Controller) takeHeartbeatsLocked(in plan.Input) map[*Session][]uint64 {
	all := map[*Session][]uint64{}
	for name := range in.Scope.Nodes {
		if s := c.sessions[name]; s != nil && len(s.heartbeats) > 0 {
			all[s], s.heartbeats = s.heartbeats, nil
		}
	}
	return all
}

// putBackLocked has the next pass take in what agents said before this one, which was not committed.
func (c *Controller) putBackLocked(heard map[string]unread) {
	for node, u := range heard {
		since := c.unread[node]
		u.reports, u.dropped = append(u.reports, since.reports...), u.dropped+since.dropped
		c.unread[node] = u
	}
}

// mostStall is how far apart passes are at most: they come each second, and a commit or a busy host may delay one.
const mostStall = 5 * time.Second

// noteStallLocked notes that the broker stood still: its process was stopped, its host had no time, or its store did not answer.
// What nodes did meanwhile nobody heard, and no limit of theirs has run.
func (c *Controller) noteStallLocked(now time.Time) {
	if stood := now.Sub(c.passed); !c.passed.IsZero() && stood > mostStall {
		c.resumed = now
		c.log.Warn("the broker stood still, limits of nodes and jobs begin again", "for", stood)
	}
	c.passed = now
}

// beganLocked is from when on the broker has kept up.
func (c *Controller) beganLocked() time.Time {
	if c.resumed.After(c.clock.began) {
		return c.resumed
	}
	return c.clock.began
}

// admitLocked gives every connected node a record to decide on.
func (c *Controller) admitLocked() {
	admit := c.marks.scope.Nodes
	if c.marks.all {
		admit = map[string]bool{}
		for name := range c.sessions {
			admit[name] = true
		}
	}
	for name := range admit {
		if c.sessions[name] != nil && c.records.nodes[name] == nil {
			c.records.nodes[name] = &kb.Node{Name: name}
		}
	}
}

func (c *Controller) inputLocked(now time.Time, scope plan.Scope) plan.Input {
	in := plan.Input{
		Now: now, Scope: &scope, Began: c.beganLocked(), Config: c.limitsLocked(), Slurm: c.view, Receipts: slices.Clip(c.receipts),
		Nodes: c.records.nodes, Allocations: c.records.allocs,
		Runs: c.openRunsLocked(), NextRun: c.records.runs.next,
		Agents: map[string]plan.Agent{}, Catalog: c.kernels, Held: c.held, Queued: c.line.Waiting(time.Now()), Damaged: maps.Clone(c.damaged), Begun: c.records.begun, Rules: c.records.ledger.rules, NewToken: newToken,
		FeaturesSet: c.featuresSet,
	}
	in.Slurm.Since, in.Slurm.Start = c.seenSince, c.slurmBoot
	if c.viewErr != nil {
		in.Slurm.Since = in.Now
	}
	for name := range scope.Nodes {
		in.Agents[name] = c.agentLocked(name)
	}
	for _, r := range in.Runs {
		for _, n := range r.Nodes {
			in.Agents[n.Name] = c.agentLocked(n.Name)
		}
	}
	for name := range c.records.begun {
		in.Agents[name] = c.agentLocked(name)
	}
	return in
}

// agentLocked is what is known of a node's agent.
func (c *Controller) agentLocked(name string) plan.Agent {
	agent := plan.Agent{Since: c.lost[name]}
	if s := c.sessions[name]; s != nil {
		agent = s.agent
	}
	agent.Reports, agent.Refusals = c.unread[name].reports, c.refusals[name]
	return agent
}

func newToken() string {
	var raw [16]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// before is what a decision has changed.
type before struct {
	nodes  map[string]*kb.Node
	allocs map[kb.JobID]*kb.Allocation
}

func (c *Controller) recordsOf(out plan.Output) before {
	was := before{map[string]*kb.Node{}, map[kb.JobID]*kb.Allocation{}}
	for _, n := range out.Nodes {
		was.nodes[n.Name] = c.records.nodes[n.Name]
	}
	for _, a := range out.Allocations {
		was.allocs[a.ID] = c.records.allocs[a.ID]
	}
	return was
}

// logMissed logs what a sweep changes that was not to be decided on.
func (c *Controller) logMissed(scope plan.Scope, out plan.Output) {
	for _, n := range out.Nodes {
		if !scope.Nodes[n.Name] {
			c.log.Error("a change of a node was missed until now, please report this", "node", n.Name)
		}
	}
	for _, a := range out.Allocations {
		if !scope.Jobs[a.ID] {
			c.log.Error("a change of an allocation was missed until now, please report this", "job", a.ID.String())
		}
	}
}

// logChanges logs every change of state.
func (c *Controller) logChanges(was before, out plan.Output) {
	for _, n := range out.Nodes {
		old := was.nodes[n.Name]
		if old == nil {
			continue
		}
		if from, to := old.Progress(), n.Progress(); from != to || old.Desired != n.Desired {
			cause := ""
			if n.Failure != nil {
				cause = n.Failure.Cause
			}
			c.log.Log(context.Background(), levelOf(to == kb.ProgressFailed), "node changed", "node", n.Name, "job", n.Owner.String(), "from", from, "to", to,
				"desired", n.Desired.String(), "running", n.Running.Ref.String(), "reason", cause)
		}
	}
	for _, a := range out.Allocations {
		if old := was.allocs[a.ID]; old != nil && old.Phase != a.Phase {
			if c.o.Switched != nil && old.Switching() && !a.Switching() {
				c.o.Switched(a)
			}
			what := []any{"job", a.ID.String(), "from", string(old.Phase), "to", string(a.Phase)}
			if a.Phase == kb.PhaseFailed {
				what = append(what, "kernel", a.Kernel.Ref().String(), "job_is", fate(a))
			}
			c.log.Log(context.Background(), levelOf(a.Phase == kb.PhaseFailed), "allocation changed", append(what, "reason", a.Reason)...)
		}
	}
}

// fate is what the broker does with a job that does not get its kernel.
func fate(a *kb.Allocation) string {
	if a.Hold {
		return "held"
	}
	return "requeued"
}

// levelOf is the level of a change's line.
func levelOf(failed bool) slog.Level {
	if failed {
		return slog.LevelWarn
	}
	return slog.LevelInfo
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
