package plan

import (
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// holdWatch is how long a hold is looked after once it is the user's: the prolog
// that was told of it ends within that time. Looks count, not the time since
// then: slurmctld may be away.
const holdWatch = 10 * time.Second

// holds sees to it that the users of jobs that were held may release them.
// slurmctld that looks at such a job before its prolog has ended forgets who held
// it: it says "Cleaning" first, and then that an administrator did.
func (d *decision) holds() {
	if len(d.in.Held) == 0 {
		return
	}
	taken := map[uint32]kb.SlurmJob{}
	for _, j := range d.in.Slurm.Queue {
		if j.Priority == 0 && (j.Reason == "Cleaning" || j.Reason == "JobHeldAdmin") {
			taken[j.ID] = j
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(d.in.Held), compareJobs) {
		since := d.in.Held[id]
		if j, ok := taken[id.Job]; ok && j.Restart > id.Restart {
			d.act(Action{Kind: HoldForUser, Job: id, Reference: j.Reference})
			since = d.in.Slurm.At
		}
		if d.in.Slurm.At.Sub(since) < holdWatch {
			d.out.Held[id] = since
		}
	}
}
