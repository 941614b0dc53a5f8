// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// holdWatch is how long a hold is looked after once it is the user's: the prolog
// that was told of it ends within that time. Polls count, not the time since
// then: slurmctld may be away.
const holdWatch = 10 * time.Second

// Hold is one that is to be looked after.
type Hold struct {
	Since time.Time `json:"since"`
	// Boot names the start of the slurmctld that was told of it last.
	Boot string `json:"boot,omitempty"`
	// Perhaps: the job left in a switch, and whether somebody requeued it in held state is yet to be seen.
	Perhaps bool `json:"perhaps,omitempty"`
}

// watchPossibleHold looks after a job that left in a switch, whose prolog may run for some moments: scontrol requeuehold is a
// user's hold, whoever says it.
func (d *decision) watchPossibleHold(a *kb.Allocation) {
	if _, held := d.in.Held[a.ID]; !held {
		d.out.Held[a.ID] = Hold{Since: d.in.Slurm.At, Perhaps: true}
	}
}

// holds sees to it that the users of jobs that were held may release them.
// slurmctld that looks at such a job before its prolog has ended forgets who held
// it: it says "Cleaning" first, and then that an administrator did.
func (d *decision) holds() {
	if len(d.in.Held) == 0 {
		return
	}
	queue := map[uint32]kb.SlurmJob{}
	for _, j := range d.in.Slurm.Queue {
		if have, ok := queue[j.ID]; !ok || takenOver(j) && !takenOver(have) {
			queue[j.ID] = j
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(d.in.Held), kb.JobID.Compare) {
		h := d.in.Held[id]
		j, again := queue[id.Job]
		again = again && j.Restart > id.Restart
		if again && h.Perhaps && j.Priority != 0 {
			continue // a hold that comes later is whose slurmctld says
		}
		h.Perhaps = h.Perhaps && !again
		if again && (takenOver(j) || d.forgotten(h, j)) {
			d.act(Action{Kind: HoldForUser, Job: id, Reference: j.Reference})
			h.Since, h.Boot = d.in.Slurm.At, d.in.Slurm.Start
		}
		if d.in.Slurm.At.Sub(h.Since) < holdWatch {
			d.out.Held[id] = h
		}
	}
}

// takenOver: slurmctld no longer knows that the hold is the user's.
func takenOver(j kb.SlurmJob) bool {
	return j.Priority == 0 && (j.Reason == "Cleaning" || j.Reason == "JobHeldAdmin")
}

// forgotten: another slurmctld than the one that was told has the job, and does
// not hold it. It keeps jobs on disk only every few seconds. Where slurmctld is
// the same the user has released the job.
func (d *decision) forgotten(h Hold, j kb.SlurmJob) bool {
	return j.Priority != 0 && h.Boot != "" && d.in.Slurm.Start != "" && d.in.Slurm.Start != h.Boot
}
