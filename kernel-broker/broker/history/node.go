// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	broker    = "kernel-broker"
	slurmctld = "slurmctld"
)

// Node tells what happened between a node's record and its next one. was is nil if there was none. job finds a job's record,
// nil if that is gone.
func Node(was, is *kb.Node, job func(kb.JobID) *kb.Allocation, now time.Time) []kb.ClusterEvent {
	if was == nil {
		was = &kb.Node{}
	}
	c := nodeChange{was: was, is: is, now: now}
	c.arrival()
	c.faults()
	c.boot()
	c.slurm()
	c.machine()
	for i := range c.events {
		e := &c.events[i]
		e.Subject, e.Node = kb.SubjectNode, is.Name
		if e.Job.IsZero() {
			e.Job = cmp.Or(is.Owner, is.Timeline, was.Timeline)
		}
		e.Who = cmp.Or(e.Who, broker)
		if e.At.IsZero() {
			e.At = now
		}
		tellUser(e, job)
	}
	return c.events
}

// tellUser adds whose an event's job is.
func tellUser(e *kb.ClusterEvent, job func(kb.JobID) *kb.Allocation) {
	if e.Job.IsZero() {
		return
	}
	if a := job(e.Job); a != nil {
		uid := a.UID
		e.UID, e.User = &uid, a.User
	}
}

type nodeChange struct {
	was, is *kb.Node
	now     time.Time
	events  []kb.ClusterEvent
}

func (c *nodeChange) add(e kb.ClusterEvent) { c.events = append(c.events, e) }

// rebooted reports whether a new boot was seen, and proven whether what runs was.
func (c *nodeChange) rebooted() bool {
	return c.was.Boot.BootID != "" && c.is.Boot.BootID != c.was.Boot.BootID
}

func (c *nodeChange) proven() bool {
	return c.is.Running.Ref.Profile != "" && c.is.Running != c.was.Running
}

// arrival tells of a boot that was seen.
func (c *nodeChange) arrival() {
	was, is := c.was, c.is
	if was.Boot.BootID == "" && is.Boot.BootID != "" {
		c.add(kb.ClusterEvent{Event: kb.NodeSeen, To: is.Boot.Release})
	}
	switch {
	case c.proven():
		c.add(kb.ClusterEvent{Event: kb.NodeProven, Kernel: is.Running.Ref, From: was.Boot.Release, To: is.Boot.Release, Took: c.bootTook()})
	case c.rebooted():
		c.add(kb.ClusterEvent{Event: kb.NodeBooted, From: was.Boot.Release, To: is.Boot.Release, Why: "what runs is not proven"})
	case was.Running.Ref.Profile != "" && is.Running.Ref.Profile == "":
		c.add(kb.ClusterEvent{Event: kb.NodeUnproven, Kernel: was.Running.Ref})
	}
}

// boot tells how far a boot is that was requested.
func (c *nodeChange) boot() {
	is := c.is
	p, before := is.Pending, c.was.Pending
	switch {
	case p == nil:
		if before != nil && !c.rebooted() && !c.proven() && is.Failure == nil && is.Attempts <= c.was.Attempts {
			c.add(kb.ClusterEvent{Event: kb.NodeBootDropped, Kernel: before.Kernel.Ref(), From: string(before.Progress)})
		}
		return
	case before == nil || before.Token != p.Token:
		c.add(kb.ClusterEvent{At: p.Begun, Event: kb.NodeBootRequested, Kernel: p.Kernel.Ref(), From: is.Running.Ref.String(), To: p.Kernel.Ref().String(), Why: wayOf(p, is.Attempts)})
		before = &kb.Pending{}
	}
	c.steps(before, p)
}

// steps tells which step of a boot is done.
func (c *nodeChange) steps(before, p *kb.Pending) {
	kernel := p.Kernel.Ref()
	if before.Loaded.IsZero() && !p.Loaded.IsZero() {
		c.add(kb.ClusterEvent{At: p.Loaded, Event: kb.NodeLoaded, Kernel: kernel, Took: between(p.Begun, p.Loaded)})
	}
	if before.Executed.IsZero() && !p.Executed.IsZero() {
		c.add(kb.ClusterEvent{At: p.Executed, Event: kb.NodeKexec, Kernel: kernel, Took: between(p.Loaded, p.Executed)})
	}
	if before.ResetAt.IsZero() && !p.ResetAt.IsZero() {
		c.add(kb.ClusterEvent{At: p.ResetAt, Event: kb.NodeReset, Kernel: kernel})
	}
}

func wayOf(p *kb.Pending, attempts uint32) string {
	way := "by " + cmp.Or(string(p.Way), "kexec")
	if attempts > 0 {
		way += fmt.Sprintf(", try %d", attempts+1)
	}
	return way
}

// bootTook is how long the node was away for the boot that ends; 0 where that was not seen.
func (c *nodeChange) bootTook() time.Duration {
	if c.was.Pending == nil {
		return 0
	}
	return between(c.was.Pending.Executed, c.now)
}

// between is 0 where the begin is not known.
func between(from, to time.Time) time.Duration {
	if from.IsZero() || to.Before(from) {
		return 0
	}
	return to.Sub(from)
}

// faults tells of boots and loads that failed.
func (c *nodeChange) faults() {
	was, is := c.was, c.is
	stage := ""
	if was.Pending != nil {
		stage = string(was.Pending.Progress)
	}
	known := func(f kb.Fault) bool {
		return slices.ContainsFunc(was.Faults, func(old kb.Fault) bool { return old.Token == f.Token })
	}
	counted := false
	for _, f := range is.Faults {
		if !known(f) {
			counted = true
			c.add(kb.ClusterEvent{Event: kb.NodeBootFailed, Kernel: f.Ref, From: stage, Why: f.Cause})
		}
	}
	// A load on the way back is tried again, and counts against no kernel.
	if is.Attempts > was.Attempts && was.Pending != nil && !counted {
		c.add(kb.ClusterEvent{Event: kb.NodeBootFailed, Kernel: was.Pending.Kernel.Ref(), From: stage, To: string(kb.FailureNode), Why: fmt.Sprintf("try %d", is.Attempts)})
	}
	switch {
	case is.Failure != nil && (was.Failure == nil || *was.Failure != *is.Failure):
		c.add(kb.ClusterEvent{At: is.Failure.At, Event: kb.NodeFailed, Kernel: is.Failure.Ref, From: stage, To: string(is.Failure.Kind), Why: is.Failure.Cause})
	case is.Failure == nil && was.Failure != nil:
		c.add(kb.ClusterEvent{Event: kb.NodeRecovered, Kernel: was.Failure.Ref})
	}
}

// slurm tells what changed on Slurm's side.
func (c *nodeChange) slurm() {
	was, is := c.was.Slurm, c.is.Slurm
	if is.Armed() && !was.Armed() {
		c.add(kb.ClusterEvent{Event: kb.NodeArmed})
	}
	if was.Awaited.Awaits() && !is.Awaited.Awaits() {
		c.add(kb.ClusterEvent{Event: kb.NodeRegistered, Who: slurmctld})
	}
	before, now := was.Service, is.Service
	switch {
	case Serves(now) && !Serves(before):
		c.add(kb.ClusterEvent{Event: kb.NodeInService, From: string(before.State), Who: slurmctld})
	case !Serves(now) && (now.State != before.State || now.Author != before.Author || now.Reason != before.Reason):
		c.add(kb.ClusterEvent{Event: kb.NodeOutOfService, From: string(before.State), To: string(now.State), Who: authorOf(now), Why: now.Reason})
	}
}

// Serves reports whether a node is in service, or drained for no more than its armed return: that ends no job.
func Serves(s kb.Service) bool {
	return s.State == kb.ServiceIn || s.Author == kb.AuthorReturn || kb.SlurmNode{Reason: s.Reason}.Unnamed()
}

// authorOf is whose word a node's state is.
func authorOf(s kb.Service) string {
	switch s.Author {
	case kb.AuthorReturn, kb.AuthorFailure:
		return broker
	case kb.AuthorAdministrator, kb.AuthorWithdrawn:
		user, _, _ := strings.Cut(s.By, "@")
		return cmp.Or(user, string(kb.AuthorAdministrator))
	}
	return slurmctld
}

// machine tells what changed besides.
func (c *nodeChange) machine() {
	was, is := c.was, c.is
	if is.KeptFor != "" && is.KeptFor != was.KeptFor {
		c.add(kb.ClusterEvent{Event: kb.NodeKept, Kernel: is.Running.Ref, To: "job " + is.KeptFor})
	}
	if r := is.Reboot; r != nil && was.Reboot == nil {
		who := string(kb.AuthorAdministrator)
		if r.ForJob {
			who = "a job that asked for no kernel (sbatch --reboot)"
		}
		c.add(kb.ClusterEvent{At: r.At, Event: kb.NodeRebootRequested, Who: who, Why: r.Reason})
	}
	if is.Slurm.PoweredOffBoot != "" && was.Slurm.PoweredOffBoot == "" {
		c.add(kb.ClusterEvent{Event: kb.NodePoweredOff, Who: slurmctld})
	}
	if none := (kb.Hardware{}); was.Hardware != none && is.Hardware != none && was.Hardware != is.Hardware {
		c.add(kb.ClusterEvent{Event: kb.NodeHardwareChanged, From: was.Hardware.String(), To: is.Hardware.String()})
	}
}
