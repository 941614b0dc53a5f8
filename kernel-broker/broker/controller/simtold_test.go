// SPDX-License-Identifier: Apache-2.0

package controller

import (
	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
)

// simTold is what somebody knows of the cluster who reads its events and nothing else.
type simTold struct {
	runs        map[string]kb.Ref
	boots       map[string]kb.Ref
	failed, out map[string]bool
	phases      map[kb.JobID]kb.Phase
	events      int
}

func newSimTold() *simTold {
	return &simTold{runs: map[string]kb.Ref{}, boots: map[string]kb.Ref{}, failed: map[string]bool{}, out: map[string]bool{}, phases: map[kb.JobID]kb.Phase{}}
}

func (s *simTold) read(e kb.ClusterEvent) {
	s.events++
	switch e.Subject {
	case kb.SubjectJob:
		switch p := kb.Phase(e.Event); p {
		case kb.PhaseAccepted, kb.PhaseSwitching, kb.PhaseReady, kb.PhaseReturning, kb.PhaseDone, kb.PhaseFailed:
			s.phases[e.Job] = p
		}
		return
	}
	switch e.Event {
	case kb.NodeProven:
		s.runs[e.Node] = e.Kernel
		delete(s.boots, e.Node)
	case kb.NodeBooted, kb.NodeUnproven:
		delete(s.runs, e.Node)
		if e.Event == kb.NodeBooted {
			delete(s.boots, e.Node)
		}
	case kb.NodeBootRequested:
		s.boots[e.Node] = e.Kernel
	case kb.NodeBootDropped, kb.NodeBootFailed:
		delete(s.boots, e.Node)
	case kb.NodeFailed:
		s.failed[e.Node] = true
		delete(s.boots, e.Node)
	case kb.NodeRecovered:
		delete(s.failed, e.Node)
	case kb.NodeOutOfService:
		s.out[e.Node] = true
	case kb.NodeInService:
		delete(s.out, e.Node)
	}
}

// tell makes the events of a commit, before it, as the controller does.
func (b *simBroker) tellEvents(nodes []*kb.Node, allocs []*kb.Allocation) {
	job := func(id kb.JobID) *kb.Allocation { return b.records.allocs[id] }
	var events []kb.ClusterEvent
	for _, a := range allocs {
		events = append(events, history.Job(b.records.allocs[a.ID], a, b.w.now)...)
	}
	for _, n := range nodes {
		events = append(events, history.Node(b.records.nodes[n.Name], n, job, b.w.now)...)
	}
	for _, e := range events {
		b.events.read(e)
	}
}

// checkEvents compares what the events tell with what is on record.
func (b *simBroker) checkEvents(nodes []*kb.Node, allocs []*kb.Allocation) {
	for _, n := range nodes {
		if told := b.events.runs[n.Name]; told != n.Running.Ref {
			b.w.fail("events tell that %s runs %q, its record says %q", n.Name, told, n.Running.Ref)
		}
		if told := b.events.failed[n.Name]; told != (n.Failure != nil) {
			b.w.fail("events tell of %s: failed %t, its record says %v", n.Name, told, n.Failure)
		}
		if told := b.events.out[n.Name]; told == history.Serves(n.Slurm.Service) {
			b.w.fail("events tell of %s: out of service %t, its record says %q", n.Name, told, n.Slurm.Service.State)
		}
		want := kb.Ref{}
		if n.Pending != nil {
			want = n.Pending.Kernel.Ref()
		}
		if told := b.events.boots[n.Name]; told != want {
			b.w.fail("events tell that %s boots %q, its record says %q", n.Name, told, want)
		}
	}
	for _, a := range allocs {
		if told := b.events.phases[a.ID]; told != a.Phase {
			b.w.fail("events tell that job %s is %q, its record says %q", a.ID, told, a.Phase)
		}
	}
}
