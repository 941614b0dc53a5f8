// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	simResumeTimeout = 90 * time.Second
	simSlurmdTimeout = 60 * time.Second
	simEpilogLimit   = 3 * time.Second
	simNoReply       = "Not responding"
	simNoReboot      = "reboot timed out"
	simFeature       = "ib" // that slurm.conf gives each node
)

// simJob is a job as slurmctld has it.
type simJob struct {
	id, restart uint32
	want        string // profile; empty for a plain job
	count       int
	length      time.Duration
	state       string
	held        bool
	begin       time.Time
	comment     string
	reservation string
	nodes       []*simSlurmNode
	prolog      simProlog
	endAt       time.Time
	epilogs     map[string]time.Time // node to when its epilog gives up
	runs        int
	cancelAt    time.Time
	cancelled   bool
	missed      bool           // a slurmd on the old kernel answered its wait
	boots       map[string]int // of its nodes, when it began
	hasty       bool           // its user cancels it as soon as it has nodes
	slowTill    time.Time      // its own epilog takes that long
	noBoot      bool           // its nodes need none
}

// simSlurmNode is a node as slurmctld has it.
type simSlurmNode struct {
	name                        string
	job                         *simJob
	poweringUp, requested       bool
	issued, asap, down, drained bool
	known                       bool // has registered before
	unheard                     bool // resumed, and its slurmd has not answered
	reason                      string
	request                     time.Time // of the boot
	lastSeen                    time.Time // slurmd
	heard                       time.Time // when slurmd last answered: a later boot is a crash
	unknown                     bool      // slurmctld was restarted, and has heard nothing since
	asks                        time.Time // when it asks such a node to register
	available, active           string    // features
}

func (n *simSlurmNode) view() kb.SlurmNode {
	v := kb.SlurmNode{Name: n.name, State: "IDLE", Reason: n.reason, Partitions: []string{"main"}, CPUs: 1, MemoryMiB: 1}
	v.Available, v.Features = strings.Split(n.available, ","), strings.Split(n.active, ",")
	flag := func(set bool, name string) {
		if set {
			v.Flags = append(v.Flags, name)
		}
	}
	if n.job != nil {
		v.State = "ALLOCATED"
		flag(n.job.state == "COMPLETING", "COMPLETING")
	}
	if n.down || n.issued {
		v.State = "DOWN"
	}
	if n.unknown {
		v.State = "UNKNOWN"
	}
	flag(n.drained || n.asap, "DRAIN")
	flag(n.poweringUp, "POWERING_UP")
	flag(n.requested, "REBOOT_REQUESTED")
	flag(n.issued, "REBOOT_ISSUED")
	flag(n.unheard, "NOT_RESPONDING")
	return v
}

func (n *simSlurmNode) usable() bool {
	return n.job == nil && !n.down && !n.drained && !n.asap && !n.issued && !n.unheard && !n.unknown
}

// simSlurm is slurmctld, as far as the product meets it.
type simSlurm struct {
	w            *simWorld
	nodes        map[string]*simSlurmNode
	jobs         []*simJob
	reservations map[string]simReservation
	lastID       uint32
}

type simReservation struct {
	job   string
	nodes []string
}

func newSimSlurm(w *simWorld) *simSlurm {
	return &simSlurm{w: w, nodes: map[string]*simSlurmNode{}, reservations: map[string]simReservation{}, lastID: 100}
}

func (s *simSlurm) submit(want string, count int, length time.Duration) *simJob {
	s.lastID++
	j := &simJob{id: s.lastID, want: want, count: count, length: length, state: "PENDING", begin: s.w.now}
	if want != "" {
		j.comment = "kernel-broker: " + want + " requested"
	}
	s.jobs = append(s.jobs, j)
	s.w.tell("job %d submitted: %q on %d nodes", j.id, want, count)
	return j
}

func (j *simJob) reference() string { return fmt.Sprint(j.id) }

func (s *simSlurm) find(reference string) *simJob {
	for _, j := range s.jobs {
		if j.reference() == reference {
			return j
		}
	}
	return nil
}

// step lets slurmctld do what is due.
func (s *simSlurm) step() {
	for _, j := range s.jobs {
		s.stepJob(j)
	}
	for _, name := range s.w.names {
		s.stepNode(s.nodes[name])
	}
	s.schedule()
}

func (s *simSlurm) stepJob(j *simJob) {
	if !j.cancelAt.IsZero() && s.w.now.After(j.cancelAt) && j.state != "DONE" && j.state != "COMPLETING" {
		j.cancelAt, j.cancelled = time.Time{}, true
		s.w.tell("job %d cancelled while %s", j.id, j.state)
		if j.state == "RUNNING" {
			s.complete(j)
			return
		}
		s.leave(j, "DONE")
		return
	}
	switch j.state {
	case "CONFIGURING":
		if !s.stepProlog(j) {
			return
		}
		for _, n := range j.nodes {
			if n.poweringUp || !s.w.nodes[n.name].slurmd.Running {
				return
			}
		}
		s.launch(j)
	case "RUNNING":
		if s.w.now.After(j.endAt) {
			s.complete(j)
		}
	case "COMPLETING":
		s.stepEpilogs(j)
	}
}

// launch passes the gate on every node, or not.
func (s *simSlurm) launch(j *simJob) {
	for _, n := range j.nodes {
		node := s.w.nodes[n.name]
		if node.gate(j) {
			continue
		}
		s.w.gateFailures++
		if s.w.calm {
			s.w.fail("job %d may not run on %s, which runs %s", j.id, n.name, node.kernel.Ref())
		}
		s.w.tell("gate: job %d may not run on %s, which runs %s", j.id, n.name, node.kernel.Ref())
		n.drained, n.reason = true, "Prolog error"
		s.requeue(j, "gate")
		return
	}
	want := kb.StockProfile
	if j.want != "" {
		want = j.want
	}
	for _, n := range j.nodes {
		if node := s.w.nodes[n.name]; node.kernel.Profile != want {
			s.w.fail("job %d wants %s and runs on %s, which runs %s", j.id, want, n.name, node.kernel.Ref())
		}
	}
	j.state, j.endAt, j.boots = "RUNNING", s.w.now.Add(j.length), map[string]int{}
	for _, n := range j.nodes {
		j.boots[n.name] = s.w.nodes[n.name].boots
	}
	j.runs++
	s.w.tell("job %d runs", j.id)
}

// complete begins the end of a running job.
func (s *simSlurm) complete(j *simJob) {
	j.state, j.epilogs = "COMPLETING", map[string]time.Time{}
	j.slowTill = s.w.now.Add(s.w.between(0, 2500*time.Millisecond))
	for _, n := range j.nodes {
		j.epilogs[n.name] = s.w.now.Add(simEpilogLimit)
		s.w.nodes[n.name].jobEnding(j.id)
	}
	s.w.tell("job %d completing", j.id)
}

func (s *simSlurm) stepEpilogs(j *simJob) {
	left := s.w.now.Before(j.slowTill)
	for _, n := range slices.Clone(j.nodes) {
		limit, waits := j.epilogs[n.name]
		if !waits {
			continue
		}
		node := s.w.nodes[n.name]
		if node.ending == j.id && node.agent != nil && s.w.now.Before(limit) {
			left = true
			continue
		}
		node.ending = 0
		delete(j.epilogs, n.name)
	}
	if !left {
		s.leave(j, "DONE")
	}
}

// leave takes the job off its nodes.
func (s *simSlurm) leave(j *simJob, state string) {
	for _, n := range j.nodes {
		n.job = nil
	}
	j.nodes, j.state, j.prolog = nil, state, simProlog{}
	if state == "DONE" {
		s.w.tell("job %d done", j.id)
	}
}

func (s *simSlurm) requeue(j *simJob, why string) {
	s.w.tell("job %d requeued: %s", j.id, why)
	s.leave(j, "PENDING")
	j.restart++
	j.begin = s.w.now.Add(5 * time.Second)
	if j.restart > 12 {
		j.held = true
	}
}

func (s *simSlurm) stepNode(n *simSlurmNode) {
	slurmd := s.w.nodes[n.name].slurmd.Running
	if slurmd || n.poweringUp || n.issued {
		n.lastSeen = s.w.now
	}
	if slurmd && s.w.nodes[n.name].regAt.IsZero() {
		n.unheard = false // it answers when it is asked
		switch {
		case n.unknown && s.w.now.After(n.asks):
			s.register(n.name, false)
		case !n.unknown && !n.poweringUp && !n.issued:
			n.heard = s.w.now
		}
	}
	late := s.w.now.Sub(n.request) > simResumeTimeout
	switch {
	case n.down && !n.issued && !n.requested:
	case n.issued && late:
		n.issued, n.asap, n.drained = false, false, false
		s.goDown(n, simNoReboot)
	case n.poweringUp && late:
		n.poweringUp = false
		s.goDown(n, "ResumeTimeout reached")
	case !n.down && s.w.now.Sub(n.lastSeen) > simSlurmdTimeout:
		s.goDown(n, simNoReply)
	case n.requested && n.job == nil && !n.poweringUp && (n.down || !n.unheard):
		n.requested, n.issued, n.request = false, true, s.w.now
		s.w.tell("slurm issues the reboot of %s", n.name)
	}
}

func (s *simSlurm) goDown(n *simSlurmNode, reason string) {
	s.w.tell("slurm takes %s down: %s", n.name, reason)
	n.down = true
	if reason == simNoReboot {
		reason = strings.TrimPrefix(n.reason+" : "+reason, " : ")
	}
	if n.reason == "" || strings.HasPrefix(n.reason, kb.ReasonReturn) {
		n.reason = reason
	}
	if n.job != nil {
		if n.job.state == "COMPLETING" {
			s.leave(n.job, "DONE")
			return
		}
		s.requeue(n.job, "node "+n.name+" down")
	}
}

// register is slurmd saying hello; with -b it claims that its boot is now.
// slurmctld counts in whole seconds and ignores a boot that is not younger than
// its request, or than what it heard last.
func (s *simSlurm) register(name string, claim bool) {
	n := s.nodes[name]
	boot := s.w.nodes[name].boot.BootedAt.Truncate(time.Second)
	if claim {
		boot = s.w.now.Truncate(time.Second)
	}
	young, crash := boot.After(n.request.Truncate(time.Second)), boot.After(n.heard.Truncate(time.Second))
	first := !n.known || n.unknown
	n.known, n.unheard, n.unknown, n.heard = true, false, false, s.w.now
	switch {
	case n.poweringUp && young:
		n.poweringUp = false
		s.w.tell("slurm: %s is up", name)
		if n.job != nil && n.job.want != "" && n.job.want != s.w.nodes[name].kernel.Profile {
			n.job.missed = true
		}
	case n.issued && young:
		n.issued, n.down, n.asap, n.reason = false, false, false, ""
		s.w.tell("slurm: %s is back", name)
	case n.poweringUp || n.issued:
		s.w.tell("slurm ignores the early registration of %s", name)
	case n.down || first || !crash:
	default:
		s.w.unexpected++
		if s.w.calm || s.w.repaired {
			s.w.fail("%s registers again and nobody asked", name)
		}
		s.goDown(n, "Node unexpectedly rebooted")
	}
}

func (s *simSlurm) schedule() {
	for _, j := range s.jobs {
		if j.state != "PENDING" || j.held || s.w.now.Before(j.begin) {
			continue
		}
		var free []*simSlurmNode
		for _, name := range s.w.names {
			if n := s.nodes[name]; n.usable() && s.mayTake(j, name) {
				free = append(free, n)
			}
		}
		if len(free) < j.count {
			continue
		}
		j.state, j.nodes, j.prolog = "CONFIGURING", free[:j.count], simProlog{begun: s.w.now}
		if j.hasty {
			j.hasty, j.cancelAt = false, s.w.now.Add(s.w.between(0, 1500*time.Millisecond))
		}
		for _, n := range j.nodes {
			n.job = j
			if j.want != "" && !j.noBoot {
				n.poweringUp, n.request = true, s.w.now
			}
		}
		s.w.tell("job %d.%d gets %s", j.id, j.restart, strings.Join(j.names(), ","))
	}
}

func (s *simSlurm) mayTake(j *simJob, node string) bool {
	reserved := false
	for name, r := range s.reservations {
		if slices.Contains(r.nodes, node) {
			reserved = true
			if j.reservation == name {
				return true
			}
		}
	}
	return !reserved && (j.reservation == "" || s.reservations[j.reservation].nodes == nil)
}

func (j *simJob) names() []string {
	var names []string
	for _, n := range j.nodes {
		names = append(names, n.name)
	}
	slices.Sort(names)
	return names
}

// poll is one poll of slurmctld; the comments of those who wait cost extra.
func (s *simSlurm) poll(comments bool) kb.SlurmView {
	v := kb.SlurmView{At: s.w.now, Commented: comments, Jobs: map[uint32]kb.SlurmJob{}, Nodes: map[string]kb.SlurmNode{}}
	for _, n := range s.nodes {
		v.Nodes[n.name] = n.view()
	}
	for _, j := range s.jobs {
		job := kb.SlurmJob{ID: j.id, Reference: j.reference(), Restart: j.restart, State: j.state, UID: 1000, User: "alice",
			Nodes: j.names(), NodeCount: uint32(j.count), Priority: uint64(1000 - j.id), Reason: "None", Partition: "main", Reservation: j.reservation, Reboot: j.want != "" && !j.noBoot}
		switch {
		case j.state == "DONE":
		case j.state == "PENDING":
			if j.held {
				job.Reason = "JobHeldAdmin"
			} else if s.w.now.Before(j.begin) {
				job.Reason = "BeginTime"
			}
			if comments {
				job.AdminComment, job.Demand = j.comment, &kb.SlurmDemand{}
			}
			v.Queue = append(v.Queue, job)
		default:
			v.Jobs[j.id] = job
		}
	}
	for name, r := range s.reservations {
		v.Reservations = append(v.Reservations, kb.SlurmReservation{Name: name, Job: r.job, Nodes: r.nodes})
	}
	return v
}
