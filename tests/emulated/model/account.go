// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
)

// account asks of each job what became of it, once the cluster is at rest.
func (r *run) account() error {
	for _, n := range r.nodes {
		if n.rebootFrom != "" && n.rebootFrom == r.c.Node(n.name).BootID() {
			return violated("node %s: an administrator's reboot never took place", n.name)
		}
		if n.rebootFrom != "" && n.bootsBefore > 0 && !n.unresumed {
			if boots := r.c.BootsOf(n.name)[n.bootsBefore:]; !slices.ContainsFunc(boots, func(why string) bool { return why != "kexec" }) {
				return violated("node %s: an administrator's reboot was %v", n.name, boots)
			}
		}
	}
	ids := map[string]int{}
	for _, seen := range r.seen.jobs {
		j := r.jobNamed(seen["JobName"])
		if j == nil {
			return violated("Slurm has job %s, which nobody submitted", seen["JobId"])
		}
		ids[j.name]++
		if err := r.accountOne(j, seen); err != nil {
			return err
		}
	}
	for _, j := range r.jobs {
		if j.id != "" && ids[j.name] != j.tasks && !j.cancelled {
			return violated("job %s (%s) was accepted, and of %d tasks Slurm has %d", j.name, j.id, j.tasks, ids[j.name])
		}
	}
	return r.accountBroker()
}

func (r *run) accountOne(j *job, seen map[string]string) error {
	task := seen["ArrayTaskId"]
	key := j.name + "/" + task
	switch state := seen["JobState"]; state {
	case "COMPLETED":
		if !j.interactive && (r.starts[key] == 0 || !r.ends[key]) {
			return violated("%s, and its script did not run to its end", describeJob(j, seen))
		}
		return nil
	case "CANCELLED":
		// slurmctld, killed, forgets that a job began: its end cancels it, or its second launch does.
		twice := !r.killed.IsZero() && r.starts[key] > 0
		// The gate keeps it from a node that an administrator resumed under a job, and Slurm cancels what it may not requeue.
		refused := j.profile == "" && j.noRequeue && r.starts[key] == 0 && r.disarmed()
		// A node that was reset under a job that Slurm takes for running still waits for that job's prolog: the next step
		// of it fails, and slurmd ends a job that it may not requeue (_launch_job_fail).
		orphan := j.orphan || seen["Reason"] == "Prolog" && r.blows() > 0
		if j.cancelled || j.heldFor != "" || j.interactive || orphan || twice || refused || r.neverBegan(j, seen) || r.unlaunched(j, seen) {
			return nil
		}
	case "NODE_FAIL", "FAILED", "BOOT_FAIL":
		// slurmctld repeats to a node that was lost that it is to end the job, also when it has just launched the job there again.
		if seen["Reason"] == "JobLaunchFailure" && seen["Restarts"] != "0" && r.blows() > 0 {
			return nil
		}
		// slurmctld, killed, forgets that a job began, has the node end it, and at once launches it there again: slurmd has
		// just revoked its credential.
		if !r.killed.IsZero() && r.starts[key] > 0 && seen["Reason"] == "NonZeroExitCode" && seen["RunTime"] == "00:00:00" {
			return nil
		}
		if (j.noRequeue || j.interactive) && r.blows() > 0 {
			return nil
		}
		// Slurm 22.05, reconfigured, forgets the boots that jobs wait for, and a registration in that moment is a crash to it.
		if j.interactive && j.profile != "" && r.c.Options().Slurm == "22.05" && len(r.reloads) > 0 {
			return nil
		}
		if j.interactive && state == "FAILED" {
			return nil // a client whose job was merged into another, or cancelled
		}
	}
	return violated("%s, and nothing explains it", describeJob(j, seen))
}

// disarmed says whether an administrator took a boot back that a node was armed for.
func (r *run) disarmed() bool {
	return slices.ContainsFunc(r.nodes, func(n *node) bool { return !n.disarmed.IsZero() })
}

// accountBroker checks what the broker has left and what it remembers.
func (r *run) accountBroker() error {
	res, err := r.exec("root", "scontrol", "show", "reservation")
	if err != nil {
		return err
	}
	if strings.Contains(res.Stdout, "ReservationName=") {
		return violated("a reservation is left: %s", res.Stdout)
	}
	list, err := r.exec("root", "kernelctl", "job", "list", "--output", "json")
	if err != nil || list.Exit != 0 {
		return fmt.Errorf("kernelctl job list: exit %d: %s: %w", list.Exit, list.Stderr, err)
	}
	for _, seen := range r.seen.jobs {
		j := r.jobNamed(seen["JobName"])
		if j.profile != "" && j.ran && j.tasks == 1 && !strings.Contains(list.Stdout, fmt.Sprintf("%q", seen["JobId"])) &&
			!strings.Contains(list.Stdout, ": "+seen["JobId"]+",") {
			return violated("%s ran, and kernelctl job list does not have it", describeJob(j, seen))
		}
	}
	audit, err := r.exec("slurm", "kernelctl", "audit", "verify")
	if err != nil {
		return err
	}
	if audit.Exit != 0 {
		return violated("audit: exit %d: %s%s", audit.Exit, audit.Stdout, audit.Stderr)
	}
	return nil
}
