// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Kind of an action.
type Kind string

// What the broker can do outside its records.
const (
	// ArmReturn: scontrol reboot ASAP nextstate=RESUME. Its text is for logs.
	ArmReturn Kind = "arm return"
	// Disarm: scontrol cancel_reboot.
	Disarm Kind = "disarm"
	// DrainNode sets a node to drain.
	DrainNode Kind = "drain"
	// DownNode sets a free node down whose return is armed: Slurm issues the
	// boot then also when it does not hear of the node's slurmd. With a Job, it
	// takes a node from that job whose kernel the node has lost.
	DownNode Kind = "down"
	// ResumeNode returns a node to service that is out of it for the broker's own
	// doing.
	ResumeNode Kind = "resume"
	// EndWait has Slurm no longer wait for the boot of a free node.
	EndWait Kind = "end wait"
	// LabelNodes gives the reason of a boot that Slurm was asked for.
	LabelNodes Kind = "label"
	// RestoreState cancels a boot that Slurm waits for, and sets an administrator's
	// state and reason of the node again.
	RestoreState Kind = "restore state"
	// SettleBoot has Slurm take the boot that runs for one it knows.
	SettleBoot Kind = "settle boot"
	// HoldJob requeues a job and holds it.
	HoldJob Kind = "hold job"
	// HoldForUser makes a job's hold one that its user may release.
	HoldForUser Kind = "hold for user"
	// RequeueJob requeues a job.
	RequeueJob Kind = "requeue job"
	// CancelJob ends a job for good.
	CancelJob Kind = "cancel job"
	// StartJob lets a requeued job start at once.
	StartJob Kind = "start job"
	// CommentJob sets a job's AdminComment.
	CommentJob Kind = "comment job"
	// RestoreNoRequeue gives a job the --no-requeue back that its user asked for.
	RestoreNoRequeue Kind = "restore no-requeue"
	// ReserveNodes reserves nodes for the next job.
	ReserveNodes Kind = "reserve"
	// DropReservation deletes a reservation.
	DropReservation Kind = "drop reservation"
	// ResetNode resets a node from outside.
	ResetNode Kind = "reset"
	// CheckImage has the image with the digest in Text, of which a node could not
	// be brought to stock, checked in the broker's store.
	CheckImage Kind = "check image"
	// RebootNode resets a node that nobody uses, to reboot it.
	RebootNode Kind = "reboot"
	// CountFault counts a failed boot against its kernel.
	CountFault Kind = "count fault"
	// SetFeatures shows the proven kernel of nodes as their active feature: Text, of those in Available.
	SetFeatures Kind = "set features"
	// UndoGate takes back the drain that the gate brought about.
	UndoGate Kind = "undo gate's drain"
)

// Action is one thing to do. Two with the same Key are the same thing.
type Action struct {
	Kind  Kind
	Node  string
	Nodes []string
	Job   kb.JobID
	// Reference is the job as scontrol names it.
	Reference string
	// User that a reservation is for.
	User string
	Text string
	// Available features, of which those in Text are active.
	Available string
	// Token of the boot that a reset ends.
	Token string
	Fault kb.Fault
	// By is who gave the drain that is to be undone, and when.
	By string
	// State that a node is to be in, as scontrol sets it.
	State string
	// Until is when Slurm is to end that state; zero if it is not.
	Until time.Time
	// Seen are the nodes as the plan saw them, where the action replaces a node's state, reason or features. An action that an
	// administrator's command has overtaken is dropped.
	Seen []kb.SlurmNode
}

// Receipt is that an action was done, which a decision has to know.
type Receipt struct {
	Action Action
	At     time.Time
	// Refused: it was not done and is not to be.
	Refused bool
}

// Needed reports whether a decision has to know that an action was done.
func (a Action) Needed() bool {
	switch a.Kind {
	case RestoreState, SettleBoot, ResetNode, RebootNode, CommentJob:
		return true
	}
	return false
}

// receipts records what was done. A broker that is killed before that asks for it once more.
func (d *decision) receipts() {
	for _, r := range d.in.Receipts {
		n, a := d.nodes[r.Action.Node], d.allocs[r.Action.Job]
		switch r.Action.Kind {
		case CommentJob:
			if a != nil {
				a.Comment = r.Action.Text
			}
		case RestoreState, SettleBoot:
			if n != nil {
				n.Slurm.Told = r.At
			}
		case ResetNode:
			if n != nil && n.Pending != nil && n.Pending.Token == r.Action.Token && n.Pending.ResetAt.IsZero() {
				n.Pending.ResetAt = r.At
			}
		case UndoGate:
			if n != nil && n.Slurm.Service.By == r.Action.By && n.Slurm.Service.Author == kb.AuthorGate {
				n.Slurm.Service.Author = kb.AuthorProlog
			}
		}
	}
}

// Done reports whether receipts have an action on a node.
func Done(receipts []Receipt, kind Kind, node string) bool {
	return slices.ContainsFunc(receipts, func(r Receipt) bool { return r.Action.Kind == kind && r.Action.Node == node })
}

// replaces are the actions that replace a node's state, reason or features.
var replaces = map[Kind]bool{LabelNodes: true, Disarm: true, DrainNode: true, DownNode: true, ResumeNode: true, EndWait: true,
	RestoreState: true, SettleBoot: true, SetFeatures: true}

// Key tells actions apart.
func (a Action) Key() string {
	return strings.Join([]string{string(a.Kind), a.Node, strings.Join(a.Nodes, ","), a.Job.String(), a.Reference, a.Token, a.Fault.Token, a.Text, a.Available, a.By, a.State}, "|")
}
