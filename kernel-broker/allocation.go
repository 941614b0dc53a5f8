// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// JobID names one run of a Slurm job: a requeue makes a new one.
type JobID struct {
	Job     uint32 `json:"job"`
	Restart uint32 `json:"restart"`
}

// String is the form used in logs and store keys.
func (id JobID) String() string { return fmt.Sprintf("%d.%d", id.Job, id.Restart) }

// IsZero reports whether the id names no job.
func (id JobID) IsZero() bool { return id.Job == 0 }

// Compare orders by job, then by restart.
func (id JobID) Compare(other JobID) int {
	return cmp.Or(cmp.Compare(id.Job, other.Job), cmp.Compare(id.Restart, other.Restart))
}

// Phase is where the switch of one allocation is.
type Phase string

// The phases of an allocation. Each goes on to the one below it, or to PhaseFailed.
const (
	// PhaseAccepted: recorded; no node has been asked for anything. Goes to switching.
	PhaseAccepted Phase = "accepted"
	// PhaseSwitching: every node is asked for the kernel and the return is
	// being armed. Goes to ready, failed or, when the job ends, returning.
	PhaseSwitching Phase = "switching"
	// PhaseReady: every node proved the kernel, is armed, and is registered in
	// Slurm. Goes to returning when the job ends.
	PhaseReady Phase = "ready"
	// PhaseReturning: the job has ended; its nodes go back to stock or are
	// kept for another job. Goes to done.
	PhaseReturning Phase = "returning"
	// PhaseDone: no node is left to this allocation. Final.
	PhaseDone Phase = "done"
	// PhaseFailed: the job did not get its kernel and must not start; lasts
	// until Slurm has taken the job off the nodes. Final but for its nodes.
	PhaseFailed Phase = "failed"
)

// Allocation is one run of a job that asked for a profile.
type Allocation struct {
	ID        JobID  `json:"id"`
	Reference string `json:"reference"` // as scontrol names the job: 12, 12_3, 12+1
	User      string `json:"user"`
	UID       uint32 `json:"uid"`
	// Cgroup is the name of the job's cgroup on its nodes, empty for job_ID.
	Cgroup    string `json:"cgroup,omitempty"`
	Requested Ref    `json:"requested"`
	Kernel    Kernel `json:"kernel"`
	// From the profile, at the time the job was accepted.
	BootAttempts uint32         `json:"boot_attempts"`
	BootTimeout  time.Duration  `json:"boot_timeout"`
	Reuse        ReusePolicy    `json:"reuse"`
	Fallback     FallbackPolicy `json:"fallback"`
	// NoRequeue: the user gave --no-requeue for this run or an earlier one. It is restored before the script starts.
	NoRequeue bool `json:"no_requeue,omitempty"`
	// Submitted: job_submit.lua has seen the job, so nodes can be booted for it.
	Submitted bool     `json:"submitted,omitempty"`
	Nodes     []string `json:"nodes"`
	// Left are nodes that the job released before its end.
	Left []string `json:"left,omitempty"`
	// Application as the profile named it when the job was accepted.
	Application string `json:"application,omitempty"`
	// Collectors that the user requested; Run is the profiling run of the job.
	Collectors []string `json:"collectors,omitempty"`
	Run        uint64   `json:"run,omitempty"`

	Phase   Phase     `json:"phase"`
	Since   time.Time `json:"since"`
	Created time.Time `json:"created"`
	Begun   time.Time `json:"begun,omitzero"` // when its time began to count, if that was later
	Reason  string    `json:"reason,omitempty"`
	Hold    bool      `json:"hold,omitempty"` // a failed job is to be held, not requeued
	// Requeued: a failed job was seen back in the queue, where it waits or is held.
	Requeued bool `json:"requeued,omitempty"`
	// Suspended: the job was suspended before its script started.
	Suspended bool `json:"suspended,omitempty"`
	RetryNow  bool `json:"soon,omitempty"` // a failed job may be tried again at once
	// Comment is the job's AdminComment as it was last written.
	Comment string `json:"comment,omitempty"`
	// Missed is how many runs of the job in a row, up to this one, ended since Slurm did not wait for a node's boot.
	Missed   uint32    `json:"missed,omitempty"`
	Seen     bool      `json:"seen,omitempty"` // the job was seen RUNNING
	Ended    time.Time `json:"ended,omitzero"`
	HandedTo string    `json:"handed_to,omitempty"` // the job that gets the nodes without a boot
	Closed   bool      `json:"closed,omitempty"`    // nothing is left to do

	// Lost maps each node that lost the kernel during the job to the reason, and LostAt to when that was seen.
	Lost   map[string]string    `json:"lost,omitempty"`
	LostAt map[string]time.Time `json:"lost_at,omitempty"`

	Timeline []Event `json:"timeline,omitempty"`
	LeftOut  int     `json:"left_out,omitempty"` // events that the timeline had no room for
	// Proofs of each node before, during and after the job. Empty if Brief: the record has no room for them.
	Brief  bool             `json:"brief,omitempty"`
	Before map[string]Proof `json:"before,omitempty"`
	During map[string]Proof `json:"during,omitempty"`
	After  map[string]Proof `json:"after,omitempty"`
}

// HasLost reports whether a node lost the job's kernel.
func (a *Allocation) HasLost(node string) bool {
	_, lost := a.Lost[node]
	return lost
}

// Switching reports whether the job waits for its kernel.
func (a *Allocation) Switching() bool {
	return a.Phase == PhaseAccepted || a.Phase == PhaseSwitching
}

// Holds reports whether the nodes still belong to this allocation's job.
func (a *Allocation) Holds() bool { return a.Switching() || a.Phase == PhaseReady }

// Had returns all nodes that the job has or had.
func (a *Allocation) Had() []string { return slices.Concat(a.Nodes, a.Left) }

// Has reports whether the node is one of the allocation's.
func (a *Allocation) Has(node string) bool { return slices.Contains(a.Nodes, node) }

// Proven records a node's proof in one of the three maps. The first proof counts; it reports whether this was the first.
func (a *Allocation) Proven(in *map[string]Proof, node string, proof Proof) bool {
	if _, have := (*in)[node]; have || a.Brief {
		return false
	}
	if *in == nil {
		*in = map[string]Proof{}
	}
	(*in)[node] = proof
	return true
}

// Enter changes the phase and notes it.
func (a *Allocation) Enter(phase Phase, now time.Time, detail string) {
	a.Phase, a.Since = phase, now
	a.Note(now, "", string(phase), detail)
}

// Clone returns a deep copy.
func (a *Allocation) Clone() *Allocation {
	c := *a
	c.Nodes = append([]string(nil), a.Nodes...)
	c.Left = append([]string(nil), a.Left...)
	c.Collectors = append([]string(nil), a.Collectors...)
	c.Lost, c.LostAt = maps.Clone(a.Lost), maps.Clone(a.LostAt)
	c.Timeline = append([]Event(nil), a.Timeline...)
	c.Before, c.During, c.After = maps.Clone(a.Before), maps.Clone(a.During), maps.Clone(a.After)
	return &c
}
