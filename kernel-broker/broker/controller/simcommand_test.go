// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// perform carries out an action of the broker's, as scontrol would.
func (s *simSlurm) perform(a plan.Action) error {
	s.w.tell("broker: %s %s%s %s %q", a.Kind, a.Node, strings.Join(a.Nodes, ","), a.Reference, a.Text)
	for _, name := range a.Nodes {
		n := s.nodes[name]
		switch a.Kind {
		case plan.ArmReturn:
			if err := s.arm(n); err != nil {
				return err
			}
		case plan.Disarm:
			if n.issued {
				return fmt.Errorf("%s: the reboot was issued already", name)
			}
			if n.requested {
				n.requested, n.asap, n.reason = false, false, ""
			}
		case plan.SetFeatures:
			if err := s.setFeatures(n, a.Available, a.Text); err != nil {
				return err
			}
		}
	}
	j := s.find(a.Reference)
	switch a.Kind {
	case plan.DrainNode:
		s.drain(s.nodes[a.Node], a.Text)
	case plan.DownNode:
		if n := s.nodes[a.Node]; n.job != nil && n.job.reference() != a.Reference {
			s.w.fail("%s is set down with job %d on it", a.Node, n.job.id)
		}
		s.goDown(s.nodes[a.Node], a.Text)
	case plan.LabelNodes:
		for _, name := range a.Nodes {
			s.nodes[name].reason = a.Text
		}
	case plan.ResumeNode:
		s.back(s.nodes[a.Node])
	case plan.SettleBoot:
		s.back(s.nodes[a.Node])
	case plan.RestoreState:
		return s.restoreState(a)
	case plan.HoldJob, plan.RequeueJob:
		if j == nil || j.state != "CONFIGURING" && j.state != "RUNNING" {
			return fmt.Errorf("job %s cannot be requeued", a.Reference)
		}
		s.requeue(j, string(a.Kind))
		j.held = j.held || a.Kind == plan.HoldJob
	case plan.CommentJob:
		if j != nil {
			j.comment = a.Text
		}
	case plan.StartJob:
		if j == nil || j.state != "PENDING" {
			return fmt.Errorf("job %s does not wait", a.Reference)
		}
		j.begin, j.noBoot = s.w.now, false
	case plan.ReserveNodes:
		return s.reserve(a)
	case plan.DropReservation:
		s.dropReservation(a.Text)
	}
	return nil
}

// setFeatures refuses an active feature that is not available, as slurmctld does. The site's own has to stay.
func (s *simSlurm) setFeatures(n *simSlurmNode, available, active string) error {
	all := strings.Split(available, ",")
	for _, f := range strings.Split(active, ",") {
		if !slices.Contains(all, f) {
			return fmt.Errorf("%s: active feature %s is not available", n.name, f)
		}
	}
	if !slices.Contains(all, simFeature) || !slices.Contains(strings.Split(active, ","), simFeature) {
		s.w.fail("%s loses its own feature: %s of %s", n.name, active, available)
	}
	n.available, n.active = available, active
	return nil
}

func (s *simSlurm) arm(n *simSlurmNode) error {
	if n.issued || n.requested {
		return fmt.Errorf("%s: skipped", n.name)
	}
	if n.drained && !n.asap {
		s.w.fail("a drained node was armed: %s", n.name)
	}
	n.requested, n.asap = true, true
	if n.reason == "" {
		n.reason = "Reboot ASAP"
	}
	return nil
}

// back ends whatever keeps jobs from a node, and has slurmctld take every boot
// up to now for one it knows.
func (s *simSlurm) back(n *simSlurmNode) {
	n.drained, n.asap, n.requested, n.issued, n.down, n.reason = false, false, false, false, false, ""
	n.unheard, n.heard = true, s.w.now
}

func (s *simSlurm) restoreState(a plan.Action) error {
	n := s.nodes[a.Node]
	if s.w.nodes[n.name].slurmd.Running {
		s.w.fail("%s is resumed to be drained again while its slurmd runs", n.name)
	}
	s.back(n)
	s.drain(n, a.Text)
	n.down = a.State == kb.StateDown
	return nil
}

// drain requeues the job of a node that still powers up.
func (s *simSlurm) drain(n *simSlurmNode, reason string) {
	n.drained, n.reason = true, reason
	if n.job != nil && n.poweringUp {
		s.requeue(n.job, "drained node "+n.name)
	}
}

func (s *simSlurm) reserve(a plan.Action) error {
	j := s.find(a.Reference)
	have, exists := s.reservations[a.Text]
	if exists && !slices.Equal(have.nodes, a.Nodes) {
		return fmt.Errorf("reservation %s exists", a.Text)
	}
	for other, r := range s.reservations {
		for _, name := range a.Nodes {
			if other != a.Text && slices.Contains(r.nodes, name) {
				return fmt.Errorf("node %s is reserved", name)
			}
		}
	}
	s.reservations[a.Text] = simReservation{job: a.Reference, nodes: a.Nodes}
	if j == nil || j.state != "PENDING" {
		return fmt.Errorf("job %s does not wait", a.Reference)
	}
	j.reservation, j.noBoot = a.Text, true
	return nil
}

// dropReservation holds a job that waits for it, as slurmctld does, unless it
// was taken out before.
func (s *simSlurm) dropReservation(name string) {
	delete(s.reservations, name)
	for _, j := range s.jobs {
		if j.reservation == name {
			j.reservation = ""
			j.noBoot = j.noBoot && j.state != "PENDING"
		}
	}
}

// resume is the administrator's, or the broker's for a boot of its own.
func (s *simSlurm) resume(name string) {
	n := s.nodes[name]
	if n.down || n.drained {
		s.w.tell("%s is resumed (%s)", name, n.reason)
		n.down, n.drained, n.asap, n.requested, n.issued, n.reason = false, false, false, false, false, ""
		n.lastSeen, n.unheard = s.w.now, true
	}
}

// simProlog is PrologSlurmctld with the hook in it.
type simProlog struct {
	begun  time.Time
	passed bool
	asked  bool
}

const (
	simBrokerAway = 30 * time.Second
	simPrologTime = 80 * time.Second
)

// stepProlog reports whether the prolog has let the job go.
func (s *simSlurm) stepProlog(j *simJob) bool {
	p := &j.prolog
	if p.passed {
		return true
	}
	if j.want == "" {
		p.passed = true
		return true
	}
	b := s.w.broker
	age := s.w.now.Sub(p.begun)
	if !b.up {
		if !p.asked && age > simBrokerAway || age > simPrologTime {
			s.requeue(j, "the broker is away")
		}
		return false
	}
	id := kb.JobID{Job: j.id, Restart: j.restart}
	if !p.asked {
		if err := b.ensure(id, j); err != nil {
			s.w.tell("hook: job %s refused: %v", id, err)
			j.comment = "kernel-broker: " + err.Error()
			s.requeue(j, "refused")
			j.held = true
			return false
		}
		p.asked = true
	}
	switch phase := b.progress(id); phase {
	case kb.PhaseReady:
		p.passed = true
	case kb.PhaseFailed, kb.PhaseReturning, kb.PhaseDone:
		s.requeue(j, "prolog: "+string(phase))
	default:
		if age > simPrologTime {
			s.requeue(j, "prolog time-out")
		}
	}
	return p.passed
}
