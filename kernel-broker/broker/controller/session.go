// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// Message is what a session has to tell its agent.
type Message struct {
	Desired  *kb.DesiredState
	Answer   *EndingAnswer
	Snapshot string
	// Runs is all that is wanted of the node's collectors; nil in other messages.
	Runs []kb.DesiredRun
	// Heartbeat is the number of one that is answered.
	Heartbeat uint64
}

// EndingAnswer answers an epilog's query.
type EndingAnswer struct {
	Query uint64
	Kept  bool
}

// Session is one agent's stream. Its methods may be called by any goroutine.
type Session struct {
	controller     *Controller
	node           string
	agent          plan.Agent
	version        string // of the agent
	query          uint64
	report         reported
	slurmd         *slurmdReport // nil before the first
	sentGeneration uint64        // of the desired state sent last
	sentAny        bool
	sentRuns       string // the desired runs sent last; "" before the first
	heartbeats     []uint64
	out            chan *Message
	replaced       chan struct{}
}

// reported is a step of a switch, as its node last said it.
type reported struct {
	generation uint64
	state      kb.Progress
}

// slurmdReport is what a node last said of its slurmd.
type slurmdReport struct {
	start   uint64
	running bool
	detail  string
}

// outbox is how many messages may wait for a slow agent; past it the stream is
// cut, and the agent dials again.
const outbox = 64

// Messages to send, in order.
func (s *Session) Messages() <-chan *Message { return s.out }

// Replaced is closed when a newer stream of the node took over, or when the
// agent is too slow.
func (s *Session) Replaced() <-chan struct{} { return s.replaced }

// Attach begins a session; Detach must end it.
func (c *Controller) Attach(node string, boot kb.Boot, inventory kb.Inventory, slurmd bool) (*Session, error) {
	if err := kb.ValidateNodeName(node); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.view.At.IsZero() {
		if _, known := c.view.Nodes[node]; !known {
			return nil, fmt.Errorf("node %q is not in slurmctld's configuration: %w", node, kb.ErrNotFound)
		}
	}
	if err := c.pace.attach(node); err != nil {
		return nil, err
	}
	if n := c.records.nodes[node]; n != nil && sameBoot(n.Boot, boot) {
		// Its second is the kernel's reckoning, which changes with the clock.
		boot.BootedAt = n.Boot.BootedAt
	}
	if old := c.sessions[node]; old != nil {
		close(old.replaced)
	}
	now := c.clock.Now()
	s := &Session{
		controller: c, node: node, out: make(chan *Message, outbox), replaced: make(chan struct{}),
		agent: plan.Agent{Connected: true, Since: now, Boot: boot, Inventory: inventory,
			Slurmd: plan.Slurmd{}.Said(0, slurmd, now)},
	}
	c.sessions[node] = s
	c.countLocked()
	c.nodeLog(node).Info("agent connected", "boot_id", boot.BootID, "release", boot.Release, "token", boot.Token != "")
	if c.snapshot != "" {
		s.send(Message{Snapshot: c.snapshot})
	}
	c.marks.node(node)
	c.kickLocked()
	return s, nil
}

func sameBoot(a, b kb.Boot) bool {
	return a.BootID == b.BootID && a.BuildID == b.BuildID && a.Release == b.Release && a.Token == b.Token
}

// maxVersion bounds the version that an agent states.
const maxVersion = 64

// SetVersion keeps the version that the agent states.
func (s *Session) SetVersion(version string) {
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	s.version = version[:min(len(version), maxVersion)]
}

// Detach ends the session, unless a newer one has.
func (s *Session) Detach() {
	c := s.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[s.node] == s {
		delete(c.sessions, s.node)
		c.countLocked()
		c.lost[s.node] = c.clock.Now()
		c.nodeLog(s.node).Info("agent gone")
		c.marks.node(s.node)
		c.kickLocked()
	}
}

// unread is what a node's agent reported and no pass has taken in yet: what it
// says last before a kexec outlasts its stream.
type unread struct {
	reports []kb.SwitchReport
	dropped int // that there was no room for
}

// Report takes in the agent's report on a boot. Reports wait while the store is
// away; if there are too many, the oldest are dropped.
func (s *Session) Report(r kb.SwitchReport) {
	r.At = s.controller.clock.Now()
	news := false
	s.update(func() {
		step := reported{r.Generation, r.Progress}
		news, s.report = s.report != step, step
		if s.controller.sessions[s.node] != s {
			return // a newer stream speaks for the node
		}
		u := s.controller.unread[s.node]
		if over := len(u.reports) + 1 - maxReports; over > 0 {
			u.reports = slices.Delete(u.reports, 0, over)
			u.dropped += over
		}
		u.reports = append(u.reports, r)
		s.controller.unread[s.node] = u
	})
	s.reportLog(news).Info("agent reports", "generation", r.Generation, "state", string(r.Progress), "detail", r.Detail)
}

// Slurmd takes in the agent's report on its slurmd and its gate.
func (s *Session) Slurmd(r kb.SlurmdReport) {
	word := slurmdReport{r.Start, r.Running, r.Detail}
	news, refused := false, 0
	s.update(func() {
		s.controller.refusals[s.node], refused = withRefusals(s.controller.refusals[s.node], r.Refusals, s.controller.clock.Now())
		news, s.slurmd = s.slurmd == nil || *s.slurmd != word, &word
		if r.Running && !s.agent.Slurmd.Running {
			s.controller.pollForLocked(s.node)
		}
		s.agent.Slurmd = s.agent.Slurmd.Said(r.Start, r.Running, s.controller.clock.Now())
		s.agent.Acknowledged = r.Generation
	})
	s.reportLog(news).Info("agent reports slurmd", "running", r.Running, "start", r.Start, "detail", r.Detail)
	if refused > 0 {
		last := r.Refusals[len(r.Refusals)-1]
		s.reportLog(true).Warn("gate refused a job", "job", last.Job, "at", last.At, "cause", last.Cause)
	}
}

// An agent knows the refusals of its own boot. Those before are kept for as long as slurmctld may take to show the drain
// that follows.
const (
	refusalKept = 2 * time.Minute
	maxRefusals = 8
)

// withRefusals adds what an agent reports to what is known, and counts what is new.
func withRefusals(known, reported []kb.GateRefusal, now time.Time) (all []kb.GateRefusal, added int) {
	has := func(list []kb.GateRefusal, r kb.GateRefusal) bool {
		return slices.ContainsFunc(list, func(one kb.GateRefusal) bool { return one.Job == r.Job && one.At.Equal(r.At) })
	}
	for _, r := range known {
		if now.Sub(r.At) < refusalKept && !has(reported, r) {
			all = append(all, r)
		}
	}
	for _, r := range reported {
		if !has(known, r) {
			added++
		}
	}
	all = append(all, reported...)
	return all[max(0, len(all)-maxRefusals):], added
}

// Ending takes in an epilog's query.
func (s *Session) Ending(query uint64, job uint32) {
	s.update(func() {
		s.agent.Ending, s.agent.EndingSince, s.query = job, s.controller.clock.Now(), query
		if s.controller.endsLocked(s) {
			s.controller.pollForLocked(s.node)
		}
	})
}

// Heartbeat answers one that has a number, once what came before it is committed: at once, if nothing did. An agent that has
// no answer asks again, and leaves a broker that does not act.
func (s *Session) Heartbeat(number uint64) {
	c := s.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.o.MayAct() != nil: // it asks again
	case !c.stale && !c.marks.hears(s.node):
		s.send(Message{Heartbeat: number})
	case len(s.heartbeats) < maxReports:
		s.heartbeats = append(s.heartbeats, number)
		c.marks.node(s.node)
		c.kickLocked()
	}
}

// logDropped says whose reports there was no room for.
func (c *Controller) logDropped(heard map[string]unread) {
	for node, u := range heard {
		if u.dropped > 0 {
			c.log.Warn("reports of an agent dropped: more came than could be taken in", "node", node, "reports", u.dropped)
		}
	}
}

func (s *Session) update(change func()) {
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	change()
	s.controller.marks.node(s.node)
	s.controller.kickLocked()
}

// send queues a message; the controller's lock is held.
func (s *Session) send(m Message) {
	select {
	case s.out <- &m:
	default:
		select {
		case <-s.replaced:
		default:
			close(s.replaced)
			delete(s.controller.sessions, s.node)
			s.controller.countLocked()
			s.controller.lost[s.node] = s.controller.clock.Now()
		}
	}
}

// push sends the desired state if its generation was not sent yet.
func (s *Session) push(n *kb.Node) {
	if s.sentAny && s.sentGeneration == n.Generation {
		return
	}
	d := n.DesiredState(s.controller.clock.Now())
	if d.Kernel != nil {
		d.Envelope = s.controller.kernels.envelope(d.Kernel.Ref())
	}
	s.sentGeneration, s.sentAny = n.Generation, true
	s.send(Message{Desired: &d})
}
