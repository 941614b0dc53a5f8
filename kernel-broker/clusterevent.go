// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"slices"
	"strings"
	"time"
)

// EventSubject is what a ClusterEvent is about.
type EventSubject string

// The subjects. A kernel is one version of a profile, a rule is one of the hardware ledger.
const (
	SubjectNode    EventSubject = "node"
	SubjectJob     EventSubject = "job"
	SubjectProfile EventSubject = "profile"
	SubjectKernel  EventSubject = "kernel"
	SubjectRule    EventSubject = "rule"
)

// ClusterEvent is one thing that happened to a node, a job, a profile, a kernel or a rule. It is made where a record is
// replaced by its next one, and outlives both.
type ClusterEvent struct {
	// Number is given when the event is kept. Numbers rise by one.
	Number  uint64       `json:"-"`
	At      time.Time    `json:"at"`
	Subject EventSubject `json:"subject"`
	// Event is what happened, in a word of the subject's own.
	Event string `json:"event"`
	Node  string `json:"node,omitempty"`
	Job   JobID  `json:"job,omitzero"`
	// UID and User are the job's; UID is nil if the job's record was gone.
	UID  *uint32 `json:"uid,omitempty"`
	User string  `json:"user,omitempty"`
	// Kernel has version 0 for the profile as a whole.
	Kernel Ref    `json:"kernel,omitzero"`
	Rule   string `json:"rule,omitempty"`
	// From and To are the states before and after.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Who  string `json:"who,omitempty"`
	Why  string `json:"why,omitempty"`
	// Took is how long what ends with this event took; 0 if nothing ends or the begin is not known.
	Took time.Duration `json:"took,omitempty"`
}

// Events of nodes.
const (
	NodeSeen            = "seen"
	NodeBootRequested   = "boot-requested"
	NodeLoaded          = "loaded"
	NodeKexec           = "kexec"
	NodeReset           = "reset"
	NodeBooted          = "booted"
	NodeProven          = "proven"
	NodeUnproven        = "unproven"
	NodeBootDropped     = "boot-dropped"
	NodeBootFailed      = "boot-failed"
	NodeFailed          = "failed"
	NodeRecovered       = "recovered"
	NodeArmed           = "armed"
	NodeRegistered      = "registered"
	NodeOutOfService    = "out-of-service"
	NodeInService       = "in-service"
	NodeKept            = "kept"
	NodeKernelLost      = "kernel-lost"
	NodeRebootRequested = "reboot-requested"
	NodePoweredOff      = "powered-off"
	NodeHardwareChanged = "hardware-changed"
)

// Events of jobs, beside the words of their phases.
const (
	JobRefused    = "refused"
	JobRunning    = "running"
	JobRequeued   = "requeued"
	JobHeld       = "held"
	JobSuspended  = "suspended"
	JobResumed    = "resumed"
	JobHandedOver = "handed-over"
)

// Events of kernels and rules, beside the words of a profile's history.
const (
	KernelBootFailed = "boot-failed"
	RuleAdded        = "added"
	RuleChanged      = "changed"
	RuleRemoved      = "removed"
)

// EventFilter selects events. An empty field selects all.
type EventFilter struct {
	Node    string
	Job     uint32
	Profile string
	Subject EventSubject
	Since   time.Time
}

// Selects reports whether the filter selects an event.
func (f EventFilter) Selects(e ClusterEvent) bool {
	return (f.Node == "" || f.Node == e.Node) && (f.Job == 0 || f.Job == e.Job.Job) &&
		(f.Profile == "" || f.Profile == e.Kernel.Profile) && (f.Subject == "" || f.Subject == e.Subject) && !e.At.Before(f.Since)
}

// Validate rejects a filter that selects nothing by mistake.
func (f EventFilter) Validate() error {
	if f.Node != "" {
		if err := ValidateNodeName(f.Node); err != nil {
			return err
		}
	}
	if f.Profile != "" {
		return ValidateProfileName(f.Profile)
	}
	return nil
}

// SeenBy is the event as a user sees it to whom Slurm does not show others' jobs, and whether the user sees it. A node's event
// loses what names a job of somebody else.
func (e ClusterEvent) SeenBy(uid uint32) (ClusterEvent, bool) {
	if e.Job.IsZero() || e.UID != nil && *e.UID == uid {
		return e.withoutOthers(), true
	}
	if e.Subject == SubjectJob {
		return ClusterEvent{}, false
	}
	e.Job, e.UID, e.User = JobID{}, nil, ""
	return e.withoutOthers(), true
}

// withoutOthers drops the names of jobs that may be somebody else's: the next one on the node, and that of a return.
func (e ClusterEvent) withoutOthers() ClusterEvent {
	if slices.Contains([]string{NodeKept, JobHandedOver}, e.Event) {
		e.To, e.Why = "", ""
	}
	e.Why, _, _ = strings.Cut(e.Why, ReasonForJob)
	return e
}
