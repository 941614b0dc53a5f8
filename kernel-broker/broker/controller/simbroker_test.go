// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// simBroker is the broker of the simulation: it decides by package plan, tells
// agents what Controller tells them, and dies wherever it hurts. What is
// durable is kept as JSON.
type simBroker struct {
	w      *simWorld
	up     bool
	downTo time.Time
	config plan.Config
	// Durable.
	stored   map[string][]byte
	counted  map[string]bool
	failures map[kb.Ref]int
	events   *simTold
	// Volatile.
	records  records
	sessions map[string]*simSession
	lost     map[string]time.Time
	view     kb.SlurmView
	lookAt   time.Time
	half     *kb.SlurmView // a poll that is under way
	halfTill time.Time
	queue    []simDue             // those on one lane one after another
	busyTill map[string]time.Time // by lane
	again    map[string]time.Time
	receipts []plan.Receipt
	tokens   uint64
	// before is what was decided on last. Of all records, so many were in scope.
	before           *plan.Input
	marks            marks
	scoped, recorded int
}

func simLater(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

type simDue struct {
	at     time.Time
	action plan.Action
}

// simSession is one agent's stream.
type simSession struct {
	node  *simNode
	agent plan.Agent
	told  uint64
	first bool
	fresh bool // the agent has a wish from this stream
	out   []simMessage
}

type simMessage struct {
	at      time.Time
	message Message
}

func newSimBroker(w *simWorld) *simBroker {
	b := &simBroker{w: w, stored: map[string][]byte{}, counted: map[string]bool{}, failures: map[kb.Ref]int{}, events: newSimTold(), config: simPlanConfig(w.seed%2 == 0)}
	b.start()
	return b
}

// start reads the records and knows nothing else.
func (b *simBroker) start() {
	b.up = true
	b.records = records{nodes: map[string]*kb.Node{}, allocs: map[kb.JobID]*kb.Allocation{}}
	b.sessions, b.lost, b.receipts = map[string]*simSession{}, map[string]time.Time{}, nil
	b.before = nil
	b.busyTill = map[string]time.Time{}
	b.view, b.queue, b.again, b.lookAt, b.half = kb.SlurmView{}, nil, map[string]time.Time{}, time.Time{}, nil
	for key, value := range b.stored {
		if key[0] == 'n' {
			n := new(kb.Node)
			b.must(json.Unmarshal(value, n))
			b.records.nodes[n.Name], b.lost[n.Name] = n, b.w.now
			continue
		}
		a := new(kb.Allocation)
		b.must(json.Unmarshal(value, a))
		if !a.Closed {
			b.records.allocs[a.ID] = a
		}
	}
}

func (b *simBroker) must(err error) {
	if err != nil {
		b.w.fail("%v", err)
	}
}

func (b *simBroker) crash() {
	b.w.tell("the broker is killed")
	b.w.crashes++
	b.up, b.downTo = false, b.w.now.Add(b.w.between(200*time.Millisecond, 3*time.Second))
	if b.w.chance(0.1) {
		b.downTo = b.w.now.Add(40 * time.Second)
	}
	for _, s := range b.sessions {
		s.node.session = nil
		s.node.dialAt = b.w.now.Add(b.w.between(100*time.Millisecond, 3*time.Second))
	}
	b.sessions = map[string]*simSession{}
}

func (b *simBroker) attach(n *simNode) *simSession {
	if !b.up {
		return nil
	}
	s := &simSession{node: n, agent: plan.Agent{Connected: true, Since: b.w.now, Boot: n.boot, Inventory: n.inventory(),
		Slurmd: plan.Slurmd{}.Said(0, n.slurmd.Running, b.w.now)}}
	b.sessions[n.name] = s
	if b.records.nodes[n.name] == nil {
		b.records.nodes[n.name] = &kb.Node{Name: n.name}
	}
	return s
}

func (b *simBroker) gone(s *simSession) {
	if b.up && b.sessions[s.node.name] == s {
		delete(b.sessions, s.node.name)
		b.lost[s.node.name] = b.w.now
	}
}

// hear takes in a report; it is lost when the broker dies first.
func (b *simBroker) hear(s *simSession, r kb.SwitchReport) bool {
	if !b.up || b.sessions[s.node.name] != s {
		return false
	}
	r.At = b.w.now
	s.agent.Reports = append(s.agent.Reports, r)
	return true
}

func (b *simBroker) input() plan.Input {
	profiles := simProfiles()
	for i := range profiles {
		if v := &profiles[i].Versions[0]; b.failures[v.Kernel.Ref()] >= 2 {
			v.Quarantine = &kb.Quarantine{Reason: "failed to boot"}
		}
	}
	in := plan.Input{Now: b.w.now, Config: b.config, Slurm: b.view, Nodes: maps.Clone(b.records.nodes), Allocations: maps.Clone(b.records.allocs),
		Agents: map[string]plan.Agent{}, Catalog: newKernels(profiles, b.counted), Receipts: b.receipts,
		NewToken: func() string { b.tokens++; return fmt.Sprintf("%016x%016x", b.w.crashes, b.tokens) }}
	for name, since := range b.lost {
		in.Agents[name] = plan.Agent{Since: since}
	}
	for name, s := range b.sessions {
		in.Agents[name] = s.agent
	}
	return in
}

func (b *simBroker) commit(nodes []*kb.Node, allocs []*kb.Allocation) {
	b.tellEvents(nodes, allocs)
	defer b.checkEvents(nodes, allocs)
	for _, n := range nodes {
		data, err := json.Marshal(n)
		b.must(err)
		b.stored["n"+n.Name] = data
		back := new(kb.Node)
		b.must(json.Unmarshal(data, back))
		b.records.nodes[n.Name] = back
	}
	for _, a := range allocs {
		data, err := json.Marshal(a)
		b.must(err)
		b.stored["a"+a.ID.String()] = data
		back := new(kb.Allocation)
		b.must(json.Unmarshal(data, back))
		if b.records.allocs[a.ID] = back; a.Closed {
			delete(b.records.allocs, a.ID)
		}
	}
}

func (b *simBroker) step() {
	if !b.up {
		if b.w.now.Before(b.downTo) {
			return
		}
		b.w.tell("the broker starts")
		b.start()
	}
	// A poll takes its time: scontrol for the nodes first, then squeue, then the nodes of jobs that have begun meanwhile.
	if b.half != nil && b.w.now.After(b.halfTill) {
		later := b.w.slurm.poll(b.half.Commented)
		b.view, b.half = *b.half, nil
		b.view.Jobs, b.view.Queue, b.view.Reservations = later.Jobs, later.Queue, later.Reservations
		for _, name := range b.view.Begun() {
			b.view.Nodes[name] = later.Nodes[name]
		}
	}
	if b.half == nil && b.w.now.After(b.lookAt) {
		nodes := b.w.slurm.poll(b.asked())
		b.half, b.halfTill = &nodes, b.w.now.Add(b.w.between(-simTick, 2*simTick))
		b.lookAt = b.w.now.Add(b.w.between(200*time.Millisecond, 600*time.Millisecond))
		if b.w.strikes(0.002) {
			b.lookAt = b.w.now.Add(10 * time.Second) // slurmctld does not answer
		}
	}
	b.pass()
	if b.up {
		b.act()
	}
}

// asked reports whether an epilog waits.
func (b *simBroker) asked() bool {
	for _, s := range b.sessions {
		if s.agent.Ending != 0 {
			return true
		}
	}
	return false
}

// pass is Controller.pass.
func (b *simBroker) pass() {
	in := b.input()
	out := b.decide(in)
	if b.w.strikes(0.0008) {
		b.crash() // before the commit
		return
	}
	b.commit(out.Nodes, out.Allocations)
	b.receipts = nil
	for _, a := range out.Allocations {
		if old := in.Allocations[a.ID]; old != nil && old.Phase != a.Phase {
			b.w.tell("allocation %s %s: %s", a.ID, a.Phase, a.Reason)
		}
	}
	if b.w.strikes(0.0008) {
		b.crash() // after the commit, before anybody hears of it
		return
	}
	for _, name := range slices.Sorted(maps.Keys(b.sessions)) {
		s := b.sessions[name]
		s.agent.Reports = nil
		b.talk(s, b.records.nodes[name])
		if kept, answered := out.Kept[name]; answered && s.agent.Ending != 0 {
			b.send(s, Message{Answer: &EndingAnswer{Kept: kept}})
			s.agent.Ending = 0
		}
	}
	for _, a := range out.Actions {
		if key := a.Key(); !b.w.now.Before(b.again[key]) {
			b.again[key] = b.w.now.Add(time.Second)
			at := b.w.now
			for _, lane := range lanes(a) {
				at = simLater(at, b.busyTill[lane])
			}
			at = at.Add(b.w.between(0, 300*time.Millisecond))
			for _, lane := range lanes(a) {
				b.busyTill[lane] = at
			}
			b.queue = append(b.queue, simDue{at: at, action: a})
		}
	}
}

// changedSince is what the controller marks between two passes.
func changedSince(was, in plan.Input) plan.Scope {
	s := plan.NewScope()
	for name, agent := range in.Agents {
		if before, known := was.Agents[name]; !known || !reflect.DeepEqual(agent, before) {
			s.Nodes[name] = true
		}
	}
	in.Slurm.Changed(was.Slurm, func(name string) { s.Nodes[name] = true }, func(job uint32) {
		for id := range in.Allocations {
			s.Jobs[id] = s.Jobs[id] || id.Job == job
		}
		maps.DeleteFunc(s.Jobs, func(_ kb.JobID, marked bool) bool { return !marked })
	})
	for id := range in.Allocations {
		if was.Allocations[id] == nil {
			s.Jobs[id] = true
		}
	}
	for _, r := range in.Receipts {
		s.Nodes[r.Action.Node], s.Jobs[r.Action.Job] = true, true
	}
	return s
}

func (b *simBroker) send(s *simSession, m Message) {
	at := b.w.now.Add(b.w.between(0, 200*time.Millisecond))
	if l := len(s.out); l > 0 && at.Before(s.out[l-1].at) {
		at = s.out[l-1].at
	}
	s.out = append(s.out, simMessage{at: at, message: m})
}

// talk is Session.tell with what must hold of every wish.
func (b *simBroker) talk(s *simSession, n *kb.Node) {
	if s.first && s.told == n.Generation {
		return
	}
	s.first, s.told = true, n.Generation
	d := n.DesiredState(b.w.now)
	real := s.node.kernel
	if d.Attested && s.node.boot.BootID == s.agent.Boot.BootID {
		if d.Running.Profile != real.Profile {
			b.w.fail("%s is held for %s and runs %s", n.Name, d.Running, real.Ref())
		}
		if token := s.agent.Boot.Token; token != "" {
			if boot := b.w.tokens[token]; boot != "" && boot != s.agent.Boot.BootID {
				b.w.fail("token %s proved %s and %s", token, boot, s.agent.Boot.BootID)
			}
			b.w.tokens[token] = s.agent.Boot.BootID
		}
	}
	if d.SlurmdAllowed && (!d.Attested || !n.Runs(n.Desired) && (n.Failure == nil || !n.Running.Ref.IsStock())) {
		b.w.fail("slurmd is allowed on %s: %+v", n.Name, d)
	}
	b.send(s, Message{Desired: &d})
}

func (b *simBroker) act() {
	var left []simDue
	for i, due := range b.queue {
		if b.w.now.Before(due.at) {
			left = append(left, due)
			continue
		}
		if b.w.strikes(0.005) {
			b.crash()
			return
		}
		if err := b.perform(due.action); err != nil {
			b.w.tell("not done: %v", err)
		}
		if b.w.strikes(0.005) {
			b.queue = b.queue[i+1:]
			b.crash()
			return
		}
	}
	b.queue = left
}

func (b *simBroker) perform(a plan.Action) error {
	if a.Kind == plan.CountFault {
		if !b.counted[a.Fault.Token] {
			b.counted[a.Fault.Token] = true
			b.failures[a.Fault.Ref]++
		}
		return nil
	}
	if a.Kind == plan.CheckImage {
		return nil
	}
	if a.Kind == plan.ResetNode {
		b.reset(a)
		return nil
	}
	err := b.w.slurm.perform(a)
	if err == nil && a.Needed() {
		b.receipts = append(b.receipts, plan.Receipt{Action: a, At: b.w.now})
	}
	return err
}

// reset is executor.reset. No node that a reset brought back gets another.
func (b *simBroker) reset(a plan.Action) {
	n, node, bootID := b.records.nodes[a.Node], b.w.nodes[a.Node], ""
	if s := b.sessions[a.Node]; s != nil {
		bootID = s.agent.Boot.BootID
	}
	if !n.Resettable(a.Token, bootID) {
		return
	}
	if b.w.resets[a.Token]++; b.w.resets[a.Token] > 1 && node.up() && node.boot.BootID != n.Pending.PrevBootID {
		b.w.fail("a second reset hits %s, which is back", a.Node)
	}
	b.w.tell("broker: %s %s", a.Kind, a.Node)
	node.reset()
	b.receipts = append(b.receipts, plan.Receipt{Action: a, At: b.w.now})
}

// ensure is Controller.accept.
func (b *simBroker) ensure(id kb.JobID, j *simJob) error {
	if _, have := b.stored["a"+id.String()]; have {
		return nil
	}
	profile := simProfiles()[slices.IndexFunc(simProfiles(), func(p kb.Profile) bool { return p.Name == j.want })]
	kernel := profile.Versions[0].Kernel
	if b.failures[kernel.Ref()] >= 2 {
		return fmt.Errorf("kernel %s is quarantined: %w", kernel.Ref(), kb.ErrQuarantined)
	}
	a := &kb.Allocation{ID: id, Reference: j.reference(), User: "alice", Requested: kb.Ref{Profile: j.want}, Kernel: kernel,
		BootAttempts: profile.BootAttempts, BootTimeout: profile.BootTimeout, Reuse: profile.Reuse, Fallback: profile.Fallback,
		Nodes: j.names(), Submitted: strings.HasPrefix(j.comment, "kernel-broker: "), Phase: kb.PhaseAccepted, Since: b.w.now, Created: b.w.now}
	b.commit(nil, []*kb.Allocation{a})
	return nil
}

// progress is Controller.progress.
func (b *simBroker) progress(id kb.JobID) kb.Phase {
	a := b.records.allocs[id]
	if a == nil {
		a = new(kb.Allocation)
		b.must(json.Unmarshal(b.stored["a"+id.String()], a))
	}
	if a.Phase == kb.PhaseFailed && a.Hold && !a.Closed && a.Ended.IsZero() {
		return kb.PhaseSwitching
	}
	return a.Phase
}
