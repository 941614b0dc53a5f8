// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// job is what the model knows of a job.
type job struct {
	name, user, profile string
	// id as sbatch said it; other jobs are known by their name alone.
	id    string
	tasks int
	// noRequeue: its script runs once at most. interactive: it is srun's or
	// salloc's, which a fault ends for good.
	noRequeue, interactive bool
	// What was done to it.
	held, suspended, wasSuspended, cancelled, letGo, shrunk bool
	// suspendedEarly: its node did not run its kernel then.
	suspendedEarly bool
	// twice says why its script may run once more, "" if it may not.
	twice string
	// orphan says that a node of it was reset soon after its start: Slurm takes no
	// job for lost that began up to 15 s before its node's boot, so that it runs
	// without processes where the reboot itself is no cause (ReturnToService=2).
	orphan bool
	// delayed is since when it is seen to wait for its begin, as after a requeue.
	delayed time.Time
	// ran says that a process of it ran, heldFor why the broker holds it.
	ran     bool
	heldFor string
}

// release is the kernel that its processes must run on.
func (j *job) release() string {
	if j.profile == "" {
		return emulated.KernelNamed(emulated.StockName).Release
	}
	return emulated.KernelNamed(j.profile).Release
}

// node is what the model knows of a node.
type node struct {
	name string
	// word is what its administrator said last, nil if nothing or taken back.
	word *word
	// off: it has no power. What was done to it, how often.
	off                      bool
	resets, loadFails, downs int
	// rebootFrom is the boot that an administrator asked to be replaced, "" if none.
	rebootFrom string
	// bootsBefore is how many boots it had when Slurm took that reboot, 0 where Slurm
	// passed over it: the boot that follows is a reboot, and no kexec.
	bootsBefore int
	// unresumed says that slurmctld forgot to resume it after a boot: a reconfigure
	// loses what is to follow an administrator's reboot; or that the broker may take
	// that reboot for a drain.
	unresumed bool
	// unreasoned says that cancel_reboot left it down and took the reason.
	unreasoned bool
	// disarmed is when an administrator took back a boot that was asked for.
	disarmed time.Time
	// repairs is how often an administrator had to bring it back.
	repairs int
	// switched is how often Slurm was told to switch its power.
	switched int
	// taken is the word that was taken back last, and when; resaid is one that the
	// broker, which did not see that, may have said again.
	taken   string
	takenAt time.Time
	resaid  string
	// strange is since when it stands as nothing explains.
	strange time.Time
}

// word is what an administrator said of a node.
type word struct {
	down   bool
	reason string
	// boot is the one that was to be replaced by a reboot that an administrator had
	// asked for when the word was said; "" without one. Slurm resumes the node after
	// that boot, and at a crash before it (from 24.11 on), whatever was said since.
	boot string
	// at is when it was said, and unheard that Slurm waited for a boot then.
	at      time.Time
	unheard bool
	// armed says that a boot was asked for when it was said, and unseen that Slurm
	// had issued it already, or that the broker or slurmctld ended before the broker
	// looked. Slurm sets the node down for that boot itself (_queue_reboot_msg), so
	// that a drain is all that is known.
	armed, unseen bool
	// between says that it was said of an armed node between two jobs, or that has not
	// got the broker's reason, and stood that it was seen to stand.
	between, stood bool
	// dropped says that Slurm itself returns the node, which was set down while it booted for a job, to service: 22.05,
	// reconfigured without a broker, at its answer (node_did_resp); 26.05 as it reads its state.
	dropped bool
	// missing is since when it does not stand, zero while it does.
	missing time.Time
}

// view is what Slurm says.
type view struct {
	nodes map[string]map[string]string
	jobs  []map[string]string
}

// stands says whether a node is as was said of it.
func (w *word) stands(seen map[string]string) bool {
	state := seen["State"]
	if !strings.HasPrefix(seen["Reason"], w.reason) {
		return false
	}
	if w.down && !w.unseen {
		return strings.HasPrefix(state, "DOWN")
	}
	return w.down && strings.HasPrefix(state, "DOWN") || slices.Contains(strings.Split(state, "+"), "DRAIN")
}

// lookTime is what the broker may need from one look at slurmctld to the next.
const lookTime = 2 * time.Second

// blind notes the words that the broker has not seen, said or taken back, since it
// or slurmctld ends.
func (r *run) blind() {
	for _, n := range r.nodes {
		if time.Since(n.takenAt) < lookTime {
			n.resaid = n.taken
		}
		if w := n.word; w != nil && w.armed && time.Since(w.at) < lookTime {
			w.unseen = true
		}
	}
}

// has says whether a state has a flag, as DRAIN or REBOOT_ISSUED.
func has(state string, flags ...string) bool {
	for part := range strings.SplitSeq(state, "+") {
		if slices.Contains(flags, strings.TrimRight(part, "*^@!#~%$-")) {
			return true
		}
	}
	return false
}

// over says whether a job's state is final.
func over(state string) bool {
	switch state {
	case "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "REQUEUED", "":
		return false
	}
	return true
}
