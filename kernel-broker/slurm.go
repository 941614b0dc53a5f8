// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"slices"
	"strings"
	"time"
)

// SlurmJob is slurmctld's view of an unfinished job.
type SlurmJob struct {
	ID        uint32
	Reference string // as scontrol names it
	Task      uint32 // of an array
	Restart   uint32
	State     string // base state: PENDING, CONFIGURING, RUNNING, COMPLETING, ...
	UID       uint32
	User      string
	Nodes     []string
	// Unread is why the job's node list could not be parsed: it may hold any node and is not finished. Such a job gets
	// no kernel, and no node waits for it.
	Unread    string
	NodeCount uint32
	Priority  uint64
	Partition string
	Reason    string
	// Tier is the highest PriorityTier of its partitions, which counts before the priority. Read with the comments.
	Tier uint32
	// Reboot: the job requested a boot of its nodes, as every job with a profile does.
	Reboot bool
	// Requeue: Slurm puts the job back into the queue when a node fails.
	Requeue bool
	// Reservation that the job requested, or several separated by commas.
	Reservation string
	// AdminComment and Demand are only read for jobs that need them.
	AdminComment string
	Demand       *SlurmDemand
}

// SlurmDemand is what a pending job requires of its nodes.
type SlurmDemand struct {
	Required, Excluded []string
	// Features that every node must have.
	Features []string
	// CPUs and MemoryMiB of each node, and CPUs of all together.
	CPUs, AllCPUs uint64
	MemoryMiB     uint64
	// Unevaluated names another requirement of the job that is not evaluated.
	Unevaluated string
}

// Partitions that the job may run in.
func (j SlurmJob) Partitions() []string { return strings.Split(j.Partition, ",") }

// Holds reports whether the job has its nodes and has not begun to end. STAGE_OUT is shown once its epilogs are over and
// other jobs may have the nodes; until then the job is COMPLETING.
func (j SlurmJob) Holds() bool {
	switch j.State {
	case "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING":
		return true
	}
	return false
}

// Running reports whether the job's own processes may be running.
func (j SlurmJob) Running() bool { return j.Holds() && j.State != "CONFIGURING" }

// Pending reports whether the job waits only for nodes.
func (j SlurmJob) Pending() bool {
	if j.State != "PENDING" {
		return false
	}
	switch j.Reason {
	case "None", "Resources", "Priority", "Reservation":
		return true
	}
	// These reasons have suffixes, such as the unavailable nodes. Nodes with an armed return count as drained, too.
	return strings.HasPrefix(j.Reason, "ReqNodeNotAvail") ||
		strings.HasPrefix(strings.ReplaceAll(j.Reason, "_", " "), "Nodes required for job are DOWN, DRAINED")
}

// HeldByUser reports whether the job waits for a release that its user can give, also after a requeue in held state.
func (j SlurmJob) HeldByUser() bool {
	return j.Reason == "JobHeldUser" || strings.Contains(j.Reason, "held state")
}

// HeldByAdministrator reports whether an administrator has to release the job.
func (j SlurmJob) HeldByAdministrator() bool { return j.Reason == "JobHeldAdmin" }

// Before is the order in which Slurm considers jobs that wait.
func (j SlurmJob) Before(other SlurmJob) bool {
	if j.Tier != other.Tier {
		return j.Tier > other.Tier
	}
	if j.Priority != other.Priority {
		return j.Priority > other.Priority
	}
	if j.ID != other.ID {
		return j.ID < other.ID
	}
	return j.Task < other.Task
}

// SlurmNode is slurmctld's view of a node.
type SlurmNode struct {
	Name   string
	State  string   // base state: IDLE, ALLOCATED, MIXED, DOWN, ...
	Flags  []string // DRAIN, POWERING_UP, REBOOT_REQUESTED, REBOOT_ISSUED, COMPLETING, ...
	Reason string
	// By is the reason's author and time, in scontrol's format.
	By string
	// ResumeAfter is when Slurm ends that by itself (resumeafter=, from 23.02 on); zero if it does not.
	ResumeAfter time.Time

	Partitions []string
	// Features are the active ones, Available also those that a boot may make active.
	Features, Available []string
	CPUs                uint64
	MemoryMiB           uint64
}

// Reserved reports whether the node is in a reservation that has begun.
func (n SlurmNode) Reserved() bool {
	return n.has("RESERVED") || n.has("MAINT") || n.has("MAINTENANCE")
}

func (n SlurmNode) has(flag string) bool { return slices.Contains(n.Flags, flag) }

// Waiting reports whether Slurm waits for a boot of this node.
func (n SlurmNode) Waiting() bool {
	return n.has("POWERING_UP") || n.has("REBOOT_ISSUED") && !n.BootForgotten()
}

// BootForgotten reports whether slurmctld waits for a boot but will not notice it. It only accepts a boot from a node
// that is down or powering up, and an early answer of slurmd has ended that state. The flag stays until a resume. From
// 26.05 on this holds for a job's boot, too.
func (n SlurmNode) BootForgotten() bool {
	return n.has("REBOOT_ISSUED") && !n.has("POWERING_UP") && (n.State == "IDLE" || n.State == "ALLOCATED" || n.State == "MIXED")
}

// PoweredDown reports whether Slurm's power saving switches the node off or has. A node that failed to come up in time is
// down and may have power.
func (n SlurmNode) PoweredDown() bool { return n.has("POWERED_DOWN") || n.has("POWERING_DOWN") }

// PowerIsOff reports whether power saving has switched the node off.
func (n SlurmNode) PowerIsOff() bool { return n.has("POWERED_DOWN") && !n.has("POWER_UP") }

// PoweringUp reports whether Slurm waits for a node to come up for a job.
func (n SlurmNode) PoweringUp() bool { return n.has("POWERING_UP") }

// RebootRequested reports whether Slurm boots the node once it is idle.
func (n SlurmNode) RebootRequested() bool { return n.has("REBOOT_REQUESTED") }

// RebootIssued reports whether Slurm has requested a boot by itself.
func (n SlurmNode) RebootIssued() bool { return n.has("REBOOT_ISSUED") }

// Armed reports whether the return is armed: Slurm boots the node after its job ends and before the next job. The reason
// does not matter: an administrator's drain replaces ours.
func (n SlurmNode) Armed() bool {
	return n.RebootIssued() && (n.Drained() || !n.BootForgotten()) || n.has("REBOOT_REQUESTED") && (n.Drained() || n.Ours())
}

// Drained reports whether the node accepts no new job.
func (n SlurmNode) Drained() bool {
	return n.has("DRAIN") || n.State == "DRAINED" || n.State == "DRAINING" || n.Failing()
}

// Failing reports whether an administrator expects the node to fail (state=fail).
func (n SlurmNode) Failing() bool { return n.has("FAIL") || n.State == "FAIL" || n.State == "FAILING" }

// Down reports whether Slurm holds the node for dead.
func (n SlurmNode) Down() bool { return n.State == "DOWN" || n.Unknown() }

// Unknown reports whether slurmctld restarted and has not heard from the node since. It then forgets awaited boots, but
// accepts whatever the node registers first, including a boot.
func (n SlurmNode) Unknown() bool { return n.State == "UNKNOWN" }

// Invalid reports whether slurmd registered less than slurm.conf says of the node.
func (n SlurmNode) Invalid() bool { return n.has("INVALID_REG") }

// Misfit reports whether Slurm says what slurmd registered too little of. Before 26.05 it says so of nodes only that nobody
// had drained.
func (n SlurmNode) Misfit() bool {
	return n.Invalid() && (strings.HasPrefix(n.Reason, "Low ") || strings.HasPrefix(n.Reason, "gres/"))
}

// PowerDownAsked reports whether Slurm switches the node's power off when its job
// has ended, before any other job. It takes no reboot of the node until then.
func (n SlurmNode) PowerDownAsked() bool { return n.has("POWER_DOWN") }

// NotResponding reports whether slurmctld still waits for the node's slurmd to answer, as after every resume. It schedules no
// job on such a node and boots it only if it is down.
func (n SlurmNode) NotResponding() bool { return n.has("NOT_RESPONDING") }

// Allocated reports whether a job has the node and is not about to leave it.
func (n SlurmNode) Allocated() bool {
	return !n.has("COMPLETING") && (n.State == "ALLOCATED" || n.State == "MIXED")
}

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

// SlurmView is one poll of slurmctld.
type SlurmView struct {
	// At is the start of the poll; later changes are not in it.
	At time.Time
	// Jobs that have nodes, by id.
	Jobs map[uint32]SlurmJob
	// Queue of pending jobs. Array tasks that never started share the array's id; only the reference distinguishes them.
	Queue        []SlurmJob
	Nodes        map[string]SlurmNode
	Reservations []SlurmReservation
	// NodeFailed are the jobs that ended since a node of theirs failed or was set down, by id. They are asked for only where
	// Slurm boots a node of which somebody else has said something.
	NodeFailed map[uint32]bool
	// ResumeTimeout is how long Slurm waits for a node's boot; 0 if unknown.
	ResumeTimeout time.Duration
	// Since is when slurmctld began to answer again; now, while it does not.
	Since time.Time
	// Start names the start of the slurmctld that answered, or a later one; it is asked for while holds are looked after.
	Start string
	// Commented: the first jobs of the queue have their AdminComment filled in.
	Commented bool

	on     map[string][]uint32 // jobs with a node
	queued map[uint32][]int    // places in the queue, by job
}

// Index has a view that does not change any more find jobs by their nodes and ids.
func (v *SlurmView) Index() {
	v.on, v.queued = map[string][]uint32{}, map[uint32][]int{}
	for id, j := range v.Jobs {
		for _, name := range j.Nodes {
			v.on[name] = append(v.on[name], id)
		}
	}
	for i, j := range v.Queue {
		v.queued[j.ID] = append(v.queued[j.ID], i)
	}
}

// On returns the unfinished jobs that have a node.
func (v SlurmView) On(node string) (jobs []SlurmJob) {
	if v.on == nil {
		for _, j := range v.Jobs {
			if slices.Contains(j.Nodes, node) {
				jobs = append(jobs, j)
			}
		}
		return jobs
	}
	for _, id := range v.on[node] {
		jobs = append(jobs, v.Jobs[id])
	}
	return jobs
}

// Queued returns what waits of a job: its tasks have one id until they start.
func (v SlurmView) Queued(job uint32) (jobs []SlurmJob) {
	if v.queued == nil {
		for _, j := range v.Queue {
			if j.ID == job {
				jobs = append(jobs, j)
			}
		}
		return jobs
	}
	for _, i := range v.queued[job] {
		jobs = append(jobs, v.Queue[i])
	}
	return jobs
}

// Changed calls for what differs from an earlier view: nodes, and jobs with the nodes that they have or had.
func (v SlurmView) Changed(old SlurmView, node func(name string), job func(id uint32)) {
	for name, n := range v.Nodes {
		if was, known := old.Nodes[name]; !known || !n.Equal(was) {
			node(name)
		}
	}
	for name := range old.Nodes {
		if _, known := v.Nodes[name]; !known {
			node(name)
		}
	}
	differs := func(id uint32, nodes ...[]string) {
		job(id)
		for _, name := range slices.Concat(nodes...) {
			node(name)
		}
	}
	for id, j := range v.Jobs {
		if was, known := old.Jobs[id]; !known || !j.Equal(was) {
			differs(id, j.Nodes, was.Nodes)
		}
	}
	for id, was := range old.Jobs {
		if _, known := v.Jobs[id]; !known {
			differs(id, was.Nodes)
		}
	}
	for _, list := range [][2]SlurmView{{v, old}, {old, v}} {
		for _, j := range list[0].Queue {
			if !slices.ContainsFunc(list[1].Queued(j.ID), j.Equal) {
				job(j.ID)
			}
		}
	}
	for id := range v.NodeFailed {
		if !old.NodeFailed[id] {
			job(id)
		}
	}
}

// Equal reports whether slurmctld says the same of a node.
func (n SlurmNode) Equal(o SlurmNode) bool {
	return n.Name == o.Name && n.State == o.State && n.Reason == o.Reason && n.By == o.By && n.ResumeAfter.Equal(o.ResumeAfter) &&
		n.CPUs == o.CPUs && n.MemoryMiB == o.MemoryMiB && slices.Equal(n.Flags, o.Flags) && slices.Equal(n.Partitions, o.Partitions) && slices.Equal(n.Features, o.Features) && slices.Equal(n.Available, o.Available)
}

// Equal reports whether slurmctld says the same of a job, its comment and its demand aside.
func (j SlurmJob) Equal(o SlurmJob) bool {
	return j.ID == o.ID && j.Reference == o.Reference && j.Restart == o.Restart && j.State == o.State && j.UID == o.UID && j.Unread == o.Unread &&
		j.Priority == o.Priority && j.Reason == o.Reason && j.Requeue == o.Requeue && j.Reboot == o.Reboot && j.Reservation == o.Reservation && slices.Equal(j.Nodes, o.Nodes)
}

// Begun returns the nodes that were free before a job that has them began.
func (v SlurmView) Begun() []string {
	var names []string
	for _, j := range v.Jobs {
		for _, name := range j.Nodes {
			// A suspended job leaves its nodes idle, and a node that is down may still have its job.
			if n, known := v.Nodes[name]; known && n.Free() && !n.Down() && (j.State == "CONFIGURING" || j.State == "RUNNING") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
