package plan

import (
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Kind of an action.
type Kind string

// What the broker can do outside its records.
const (
	// ArmReturn: scontrol reboot ASAP nextstate=RESUME.
	ArmReturn Kind = "arm return"
	// Disarm: scontrol cancel_reboot.
	Disarm Kind = "disarm"
	// DrainNode sets a node to drain.
	DrainNode Kind = "drain"
	// DownNode sets a free node down whose return is armed: Slurm issues the
	// boot then also when it does not hear of the node's slurmd.
	DownNode Kind = "down"
	// HoldJob requeues a job and holds it.
	HoldJob Kind = "hold job"
	// HoldForUser makes a job's hold one that its user may release.
	HoldForUser Kind = "hold for user"
	// RequeueJob requeues a job.
	RequeueJob Kind = "requeue job"
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
	// CountFault counts a failed boot against its kernel.
	CountFault Kind = "count fault"
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
	// Token of the boot that a reset ends.
	Token string
	Fault kb.Fault
}

// Key tells actions apart.
func (a Action) Key() string {
	return strings.Join([]string{string(a.Kind), a.Node, strings.Join(a.Nodes, ","), a.Job.String(), a.Reference, a.Token, a.Fault.Token, a.Text}, "|")
}
