package kernelbroker

import (
	"slices"
	"strings"
	"time"
)

// SlurmJob is what slurmctld says of a job that is not over.
type SlurmJob struct {
	ID        uint32
	Reference string // as scontrol names it
	Task      uint32 // of an array
	Restart   uint32
	State     string // base state: PENDING, CONFIGURING, RUNNING, COMPLETING, ...
	UID       uint32
	User      string
	Nodes     []string
	// Unread is why the job's list of nodes could not be read: it may have any,
	// and is not over. Such a job gets no kernel, and no node waits for it.
	Unread    string
	NodeCount uint32
	Priority  uint64
	Partition string
	Reason    string
	// Reboot: the job asked for its nodes to be booted, as every job with a
	// profile does.
	Reboot bool
	// AdminComment is only looked up for jobs of which it matters.
	AdminComment string
}

// Holds reports whether the job has its nodes and has not begun to end.
func (j SlurmJob) Holds() bool {
	switch j.State {
	case "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING":
		return true
	}
	return false
}

// Running reports whether the job's own processes may be there.
func (j SlurmJob) Running() bool { return j.Holds() && j.State != "CONFIGURING" }

// Pending reports whether the job waits for nodes and nothing but nodes.
func (j SlurmJob) Pending() bool {
	if j.State != "PENDING" {
		return false
	}
	switch j.Reason {
	case "None", "Resources", "Priority", "Reservation":
		return true
	}
	// Its text goes on with the nodes that are not available.
	return strings.HasPrefix(j.Reason, "ReqNodeNotAvail")
}

// Before is the order in which Slurm considers jobs that wait.
func (j SlurmJob) Before(other SlurmJob) bool {
	if j.Priority != other.Priority {
		return j.Priority > other.Priority
	}
	if j.ID != other.ID {
		return j.ID < other.ID
	}
	return j.Task < other.Task
}

// Comments that tell the broker what a job asked for at submit.
const (
	commentPrefix    = "kernel-broker: "
	commentRequested = " requested"
	commentNoRequeue = "; norequeue"
	commentProfiling = "; profiling="
	// commentOther begins what was in the comment before.
	commentOther = " | "
)

// Requested returns the profile that job_submit.lua noted for a waiting job.
func (j SlurmJob) Requested() (Ref, bool) {
	text, ok := strings.CutPrefix(j.AdminComment, commentPrefix)
	if !ok {
		return Ref{}, false
	}
	name, _, ok := strings.Cut(text, commentRequested)
	if !ok {
		return Ref{}, false
	}
	ref, err := ParseRef(name)
	return ref, err == nil && !ref.IsStock()
}

// Submitted reports whether job_submit.lua has seen the job. Nobody but Slurm's
// own administrators and the product can write an AdminComment.
func (j SlurmJob) Submitted() bool { return strings.HasPrefix(j.AdminComment, commentPrefix) }

// SaidNoRequeue reports whether the user asked for --no-requeue.
func (j SlurmJob) SaidNoRequeue() bool {
	own, _, _ := strings.Cut(j.AdminComment, commentOther)
	return j.Submitted() && strings.HasSuffix(own, commentNoRequeue)
}

// Profiling returns the list of collectors that job_submit.lua noted, as it was
// written, and whether there was one.
func (j SlurmJob) Profiling() (list string, asked bool) {
	if !j.Submitted() {
		return "", false
	}
	own, _, _ := strings.Cut(j.AdminComment, commentOther)
	_, list, asked = strings.Cut(own, commentProfiling)
	list, _, _ = strings.Cut(list, ";")
	return list, asked
}

// WithProfiling adds the collectors to a comment, where Profiling finds them.
func WithProfiling(comment string, collectors []string) string {
	if len(collectors) == 0 {
		return comment
	}
	// Again, for " | | "; and by something, for what stood around it may be
	// another of our words together.
	for strings.Contains(comment, commentOther) {
		comment = strings.ReplaceAll(comment, commentOther, " / ")
	}
	return comment + commentProfiling + strings.Join(collectors, ",")
}

// SlurmNode is what slurmctld says of a node.
type SlurmNode struct {
	Name   string
	State  string   // base state: IDLE, ALLOCATED, MIXED, DOWN, ...
	Flags  []string // DRAIN, POWERING_UP, REBOOT_REQUESTED, REBOOT_ISSUED, COMPLETING, ...
	Reason string
}

func (n SlurmNode) has(flag string) bool { return slices.Contains(n.Flags, flag) }

// Waiting reports whether Slurm waits for a boot of this node.
func (n SlurmNode) Waiting() bool { return n.has("POWERING_UP") || n.has("REBOOT_ISSUED") }

// RebootIssued reports whether Slurm has asked for a boot on its own account.
func (n SlurmNode) RebootIssued() bool { return n.has("REBOOT_ISSUED") }

// Armed reports whether the return is armed: Slurm will boot the node when its
// job has ended, before any other job.
func (n SlurmNode) Armed() bool {
	return (n.has("REBOOT_REQUESTED") || n.has("REBOOT_ISSUED")) && strings.HasPrefix(n.Reason, ReasonReturn)
}

// Drained reports whether no new job may come to the node.
func (n SlurmNode) Drained() bool {
	return n.has("DRAIN") || n.State == "DRAINED" || n.State == "DRAINING"
}

// Down reports whether Slurm holds the node for dead.
func (n SlurmNode) Down() bool { return n.State == "DOWN" || n.Unknown() }

// Unknown reports whether slurmctld was restarted and has heard nothing of the
// node since. It forgets boots that it waited for then, but takes whatever the
// node registers first, a boot among it.
func (n SlurmNode) Unknown() bool { return n.State == "UNKNOWN" }

// Unheard reports whether slurmctld has yet to hear of the node's slurmd, as
// after every resume. It gives such a node no job, and issues a boot to it only
// when it is down.
func (n SlurmNode) Unheard() bool { return n.has("NOT_RESPONDING") }

// Free reports whether no job is on the node.
func (n SlurmNode) Free() bool {
	return !n.has("COMPLETING") && (n.State == "IDLE" || n.State == "DRAINED" || n.Down())
}

// SlurmReservation is a reservation of the product's own.
type SlurmReservation struct {
	Name  string
	Job   string // as scontrol names it
	Nodes []string
}

// SlurmView is one look at slurmctld.
type SlurmView struct {
	// At is when the look began: what came later is not in it.
	At time.Time
	// Jobs that have nodes, by id.
	Jobs map[uint32]SlurmJob
	// Queue of the jobs that wait. Tasks of an array that were never started
	// share their array's id; only the reference tells them apart.
	Queue        []SlurmJob
	Nodes        map[string]SlurmNode
	Reservations []SlurmReservation
	// Commented: the first jobs of the queue come with their AdminComment.
	Commented bool
}
