// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// settleLimit bounds how long a cluster may need to come to rest: Slurm's own
// ResumeTimeout of a minute may pass twice.
const settleLimit = 4 * time.Minute

// settle repairs what was broken, lets all jobs end and waits until the cluster
// is at rest. First the words of administrators stand; then they are taken back.
func (r *run) settle() error {
	r.note("settle")
	r.settling = time.Now()
	if err := r.repair(); err != nil {
		return err
	}
	if err := r.settleWords(); err != nil {
		return err
	}
	end := time.Now().Add(settleLimit)
	for {
		if err := r.check(); err != nil {
			return err
		}
		if err := errors.Join(r.hurry(), r.bringBack(), r.endStall()); err != nil {
			return err
		}
		waits := r.unsettled()
		if waits == "" {
			break
		}
		if time.Now().After(end) {
			return violated("not at rest %v after all was repaired: %s", settleLimit, waits)
		}
		r.pause(500 * time.Millisecond)
	}
	r.note("at rest")
	return r.account()
}

// repair ends all faults and holds.
func (r *run) repair() error {
	for _, n := range r.nodes {
		if _, err := r.light(n); err != nil {
			return err
		}
	}
	for _, name := range r.reservations {
		ok, told, err := r.ask("root", "scontrol", "delete", "reservation="+name)
		if err == nil && !ok {
			err = violated("an administrator's reservation is lost: %s", told)
		}
		if err != nil {
			return err
		}
	}
	for _, j := range r.jobs {
		if err := r.letGo(j); err != nil {
			return err
		}
	}
	return nil
}

// settleWords waits until nobody is on the nodes of which an administrator said
// something, checks that it stands, and takes it back.
func (r *run) settleWords() error {
	end := time.Now().Add(settleLimit)
	for {
		if err := errors.Join(r.check(), r.resumeJobs(), r.endOrphans()); err != nil {
			return err
		}
		waits := ""
		for _, n := range r.nodes {
			seen := r.seen.nodes[n.name]
			// What has no power boots stock when it has.
			stock := r.c.Node(n.name).Kernel() == emulated.KernelNamed(emulated.StockName).Release || !r.powered(n)
			switch {
			case n.word == nil:
			// A resume in the moment in which the broker says it again is lost.
			case !stock || has(seen["State"], "ALLOCATED", "MIXED", "COMPLETING") || rebooting(seen) || !n.word.stands(seen):
				waits += r.nodeLine(n)
			}
		}
		if waits == "" {
			break
		}
		if time.Now().After(end) {
			return violated("nodes with an administrator's word are not at rest on stock: %s", waits)
		}
		r.pause(500 * time.Millisecond)
	}
	for _, n := range r.nodes {
		if n.word != nil {
			told, err := r.resume(n)
			r.note("settle: %s", told)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) nodeLine(n *node) string {
	seen := r.seen.nodes[n.name]
	return n.name + " is " + seen["State"] + " [" + seen["Reason"] + "] on " + r.c.Node(n.name).Kernel() + "; "
}

func (r *run) resumeJobs() error {
	for _, seen := range r.seen.jobs {
		if seen["JobState"] == "SUSPENDED" {
			if _, told, err := r.ask("root", "scontrol", "resume", reference(seen)); err != nil {
				return errors.Join(err, violated("%s", told))
			}
		}
	}
	return nil
}

// hurry starts what waits for nothing but time, and ends what is held: by its
// user, who is done with it, or by the broker, which must say why.
func (r *run) hurry() error {
	if err := errors.Join(r.resumeJobs(), r.endOrphans()); err != nil {
		return err
	}
	for _, seen := range r.seen.jobs {
		j := r.jobNamed(seen["JobName"])
		if j == nil || over(seen["JobState"]) {
			continue
		}
		if seen["JobState"] != "PENDING" {
			continue
		}
		var err error
		switch {
		case seen["Reason"] == "BeginTime" && j.delayed.IsZero():
			j.delayed = time.Now()
		case seen["Reason"] == "BeginTime" && time.Since(j.delayed) < requeueTime:
		case seen["Reason"] == "BeginTime":
			j.delayed = time.Time{}
			_, _, err = r.ask("root", "scontrol", "update", "jobid="+reference(seen), "starttime=now")
		case j.held:
			j.held = false
			_, _, err = r.ask(j.user, "scontrol", "release", reference(seen))
		case seen["Reason"] == "JobHeldAdmin" && j.wasSuspended:
			// A suspended job has no priority (job_suspend), and one that loses its
			// node, or is requeued, waits without.
			r.repairs++
			_, _, err = r.ask("root", "scontrol", "release", reference(seen))
		case strings.Contains(strings.ToLower(seen["Reason"]), "held"):
			err = r.heldByBroker(j, seen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// requeueTime is how long a requeued job waits before an administrator has it begin:
// a slurmd refuses a job that it ended in that second.
const requeueTime = 3 * time.Second

// orphanLimit is longer than any job of a scenario runs once it may end.
const orphanLimit = 45 * time.Second

func (r *run) endOrphans() error {
	for _, seen := range r.seen.jobs {
		if j := r.jobNamed(seen["JobName"]); j != nil {
			if err := r.endOrphan(j, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// endOrphan cancels a job that runs without its processes: its node was reset, or
// was down when slurmctld had it begin the job's prolog, or slurmctld forgot its end.
// The script of a job that was shrunk may wait for the steps that this ended.
func (r *run) endOrphan(j *job, seen map[string]string) error {
	orphan := j.orphan || seen["Reason"] == "Prolog" && r.blows() > 0 || r.unlaunched(j, seen) || r.unended(j, seen) ||
		j.shrunk && j.profile == "" || r.neverBegan(j, seen)
	if !orphan || seen["JobState"] != "RUNNING" || time.Since(r.settling) < orphanLimit {
		return nil
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05", seen["StartTime"], time.Local)
	if err != nil || time.Since(at) < orphanLimit {
		return err
	}
	j.cancelled = true
	r.repairs++
	_, told, err := r.ask(j.user, "scancel", reference(seen))
	r.note("settle: %s: it runs without processes: %s", describeJob(j, seen), told)
	return err
}

// reloading notes that slurmctld was reconfigured or restarted since then.
func (r *run) reloading(since time.Time) {
	r.reloads = append(r.reloads, [2]time.Time{since, time.Now()})
}

// unlaunched says whether slurmctld ended between a job's start and the launch of
// its script, which it then forgets: from 23.11 on a reconfigure ends it, too. The
// script of a job that is suspended before is launched after its resume.
func (r *run) unlaunched(j *job, seen map[string]string) bool {
	at, err := time.ParseInLocation("2006-01-02T15:04:05", seen["StartTime"], time.Local)
	if err != nil || j.interactive || r.starts[j.name+"/"+seen["ArrayTaskId"]] > 0 {
		return false
	}
	return slices.ContainsFunc(r.reloads, func(t [2]time.Time) bool {
		return (j.suspended || at.After(t[0].Add(-2*time.Second))) && at.Before(t[1].Add(time.Second))
	})
}

// neverBegan says whether a job was suspended before Slurm launched it, and so never
// is. The broker has such a job wait again if its nodes were not ready yet, and if
// nothing was killed that would have seen that.
func (r *run) neverBegan(j *job, seen map[string]string) bool {
	return j.wasSuspended && r.starts[j.name+"/"+seen["ArrayTaskId"]] == 0 && (!j.suspendedEarly || r.blows() > 0 || !r.killed.IsZero() || j.tasks > 1)
}

// registered is when, after a start of slurmctld, all nodes that are up have registered.
const registered = 10 * time.Second

// unended says whether slurmctld was killed before it had saved that a job's script
// ended. Its nodes miss no job that they began before (_purge_missing_jobs counts
// from BatchStartTimeout), and are not asked again for minutes. A job that it
// remembers as configuring starts anew when its nodes register.
func (r *run) unended(j *job, seen map[string]string) bool {
	at, err := time.ParseInLocation("2006-01-02T15:04:05", seen["StartTime"], time.Local)
	return err == nil && at.Before(r.killed.Add(registered)) && (j.interactive || r.ends[j.name+"/"+seen["ArrayTaskId"]])
}

// heldByBroker is right where something went wrong, and where it says what.
func (r *run) heldByBroker(j *job, seen map[string]string) error {
	words := seen["AdminComment"]
	// A suspended job leaves its nodes to others, which may not have its kernel.
	shared := r.suspends > 0 && strings.Contains(words, "is shared with job")
	if j.profile == "" || words == "" || words == "kernel profile "+j.profile || r.blows() == 0 && !shared {
		return violated("%s: held, and nothing explains it", describeJob(j, seen))
	}
	j.heldFor = words
	r.note("settle: %s: cancelled by its user", describeJob(j, seen))
	_, _, err := r.ask(j.user, "scancel", reference(seen))
	return err
}

// stallLimit is longer than jobs wait for nodes that are idle.
const stallLimit = 45 * time.Second

// endStall restarts a slurmctld, once, that has jobs wait for idle nodes: after a
// node under a job was powered down, 26.05 no longer picks several nodes for
// any job, with a profile or without, that does not name them; 22.05 takes minutes
// after a suspended job that was requeued.
func (r *run) endStall() error {
	idle := r.suspends > 0 || slices.ContainsFunc(r.nodes, func(n *node) bool { return n.switched > 0 })
	for _, n := range r.nodes {
		idle = idle && strings.HasPrefix(r.seen.nodes[n.name]["State"], "IDLE") && !has(r.seen.nodes[n.name]["State"], "DRAIN", "COMPLETING")
	}
	waits := slices.ContainsFunc(r.seen.jobs, func(seen map[string]string) bool {
		return seen["JobState"] == "PENDING" && (seen["Reason"] == "Resources" || strings.HasPrefix(seen["Reason"], "Nodes_required"))
	})
	switch {
	case !idle || !waits:
		r.stalled = time.Time{}
	case r.stalled.IsZero():
		r.stalled = time.Now()
	case time.Since(r.stalled) > stallLimit && !r.unstalled:
		r.unstalled = true
		r.repairs++
		told, err := r.restart([4]int{}, syscall.SIGTERM)
		r.note("settle: jobs wait for idle nodes: slurmctld: %s", told)
		return err
	}
	return nil
}

// blows is how many faults there were that may end jobs.
func (r *run) blows() int {
	sum := r.faults
	for _, n := range r.nodes {
		sum += n.resets + n.loadFails + n.downs
	}
	return sum
}

// strangeLimit is how long a node may be out of service in passing. A return whose
// load failed is tried again after 20 s.
const strangeLimit = 40 * time.Second

// bringBack does what an administrator does who finds a node out of service for
// a reason that a fault explains. One that nothing explains is a violation.
func (r *run) bringBack() error {
	for _, n := range r.nodes {
		seen := r.seen.nodes[n.name]
		state := seen["State"]
		if has(state, "POWERED_DOWN", "POWERING_DOWN") && !has(state, "DOWN") {
			if _, _, err := r.ask("root", "scontrol", "update", "nodename="+n.name, "state=power_up"); err != nil {
				return err
			}
			continue
		}
		// slurmctld that is restarted after a power_down forgets that it switched the node off.
		if r.scenario.PowerSaving && n.switched > 0 && has(state, "UNKNOWN") && has(state, "NOT_RESPONDING") {
			if err := r.wake(n); err != nil {
				return err
			}
			continue
		}
		if !has(state, "DOWN", "DRAIN") || strings.Contains(state, "REBOOT") && !forgotten(state) || has(state, "ALLOCATED", "MIXED", "COMPLETING") {
			n.strange = time.Time{}
			continue
		}
		if n.strange.IsZero() {
			n.strange = time.Now()
		}
		if time.Since(n.strange) < strangeLimit {
			continue
		}
		if !r.explains(n, state, seen["Reason"]) || n.repairs > 2 {
			return violated("nothing explains that, after %d repairs, %s", n.repairs, r.nodeLine(n))
		}
		r.note("settle: repaired: %s", r.nodeLine(n))
		n.repairs++
		r.repairs++
		n.strange = time.Time{}
		if _, err := r.resume(n); err != nil {
			return err
		}
	}
	return nil
}

// wake has a node's power switched on that has been silent for too long.
func (r *run) wake(n *node) error {
	if n.strange.IsZero() {
		n.strange = time.Now()
	}
	if time.Since(n.strange) < strangeLimit {
		return nil
	}
	n.strange = time.Time{}
	r.repairs++
	_, _, err := r.ask("root", "scontrol", "update", "nodename="+n.name, "state=power_up")
	return err
}

// forgotten says whether slurmctld waits for a boot that it will not notice: with
// ReturnToService=2 a late answer of the slurmd that ended ends DOWN (_node_did_resp).
func forgotten(state string) bool {
	return has(state, "REBOOT_ISSUED") && !has(state, "DOWN")
}

// explains says whether what was done to a node is why it is out of service.
func (r *run) explains(n *node, state, reason string) bool {
	switch {
	case reason == "":
		return n.unreasoned
	case strings.HasPrefix(reason, "Prolog error"):
		// slurmctld told the slurmd before the reset, or before the one that a reconfigure starts from 23.11 on, to begin a
		// job, and its steps wait in the next one for that job's prolog (_wait_for_request_launch_prolog).
		return n.resets > 0 || r.reloadedBefore(reason)
	case strings.HasPrefix(reason, "Duplicate jobid"):
		// slurmctld was killed before it had saved that a job began, and begins it
		// again where it runs (_notify_slurmctld_nodes).
		return !r.killed.IsZero()
	case n.resaid != "" && strings.HasPrefix(reason, n.resaid):
		return true
	}
	for _, own := range []string{"Node unexpectedly rebooted", "Not responding", "reboot timed out", "ResumeTimeout reached", "reboot-issued"} {
		if strings.HasPrefix(reason, own) {
			// A job that is refused beside a suspended one has its node's slurmd register a boot that never was; a slurmctld
			// that starts within seconds may take that for a crash (the matrix, note 2).
			unreal := r.suspends > 0 && len(r.reloads) > 0
			return n.resets+n.switched > 0 || unreal
		}
	}
	// A node that is taken for crashed keeps the reason that it had.
	if n.taken != "" && strings.HasPrefix(reason, n.taken) {
		return n.resets+n.switched > 0
	}
	if strings.HasPrefix(reason, rebootReason) {
		return n.unresumed || forgotten(state)
	}
	return strings.HasPrefix(reason, "kernel-broker:") && n.resets+n.loadFails > 0
}

// prologLimit is longer than slurmd waits for a job's prolog.
const prologLimit = 30 * time.Second

// reloadedBefore says whether slurmctld was reconfigured or restarted shortly before it gave a node this reason, which ends
// with its time.
func (r *run) reloadedBefore(reason string) bool {
	_, stamp, _ := strings.Cut(strings.TrimSuffix(reason, "]"), "@")
	at, err := time.ParseInLocation("2006-01-02T15:04:05", stamp, time.Local)
	return err == nil && slices.ContainsFunc(r.reloads, func(t [2]time.Time) bool {
		return at.After(t[0]) && at.Before(t[1].Add(prologLimit))
	})
}

// unsettled says what is not at rest.
func (r *run) unsettled() string {
	waits := ""
	for _, n := range r.nodes {
		stock := r.c.Node(n.name).Kernel() == emulated.KernelNamed(emulated.StockName).Release
		// A node that a job takes between power_up and slurmctld's look at it keeps
		// that flag (_do_power_work); it is idle all the same.
		state := strings.Replace(r.seen.nodes[n.name]["State"], "+POWER_UP", "", 1)
		if state != "IDLE" || !stock {
			waits += r.nodeLine(n)
		}
	}
	for _, seen := range r.seen.jobs {
		if j := r.jobNamed(seen["JobName"]); j != nil && !over(seen["JobState"]) {
			waits += describeJob(j, seen) + "; "
		}
	}
	return waits
}
