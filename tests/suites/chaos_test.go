// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

func TestChaosReturnToService0(t *testing.T) { chaosRun(t, 0) }
func TestChaosReturnToService1(t *testing.T) { chaosRun(t, 1) }
func TestChaosReturnToService2(t *testing.T) { chaosRun(t, 2) }

// chaosJobs is the number of jobs of a run; KB_CHAOS_JOBS overrides it.
func chaosJobs(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KB_CHAOS_JOBS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KB_CHAOS_JOBS=%q is not a number of jobs", text)
	}
	return n
}

// stepsScript is the batch job of a chaos run: its own probe, then several steps with pauses, so that nodes are also
// lost between steps. A failed step does not end the job: the next one shows whether it runs on a wrong kernel.
const stepsScript = `#!/bin/bash
"$HOME/probe.sh" batch "$1"
for step in $(seq "$2"); do
	srun --immediate=60 "$HOME/probe.sh" task "$1"
	sleep 3
done
exit 0
`

// chaosJob is one submission.
type chaosJob struct {
	id, user  string
	noRequeue bool
}

// chaos is a cluster of three nodes on which users submit long jobs with several steps while nodes, daemons and
// administrators interfere.
type chaos struct {
	*faults
	chance *rand.Rand
	jobs   []chaosJob
	// hurt is when a node's hardware last failed. A node that Slurm or the broker takes out of service without that is a
	// fault of the product.
	hurt map[string]time.Time
	// drained: nodes that the administrator took out, with the reason.
	drained map[string]string
	// counts of actions.
	counts map[string]int
}

// chaosRun submits jobs one after the other, with occasional faults. At the end no step ran on a kernel that its job did
// not request, no job with --no-requeue ran twice, each drain by the administrator is still in place, and only nodes
// with broken hardware wait for an administrator.
func chaosRun(t *testing.T, returnToService int) {
	f := startFaults(t, func(o *lab.Options) {
		o.Nodes = 3
		o.Slurm.ReturnToService = returnToService
		o.Slurm.SchedulerParameters = []string{"bf_interval=5"}
		// Chaos resets more nodes in their boots than any kernel deserves.
		o.Broker["quarantine_after"] = 1000
	})
	c := &chaos{faults: f, chance: rand.New(rand.NewPCG(1123, uint64(returnToService))),
		hurt: map[string]time.Time{}, drained: map[string]string{}, counts: map[string]int{}}
	for _, user := range []string{"alice", "bob"} {
		c.file(user, "steps.sh", stepsScript)
	}
	begin := time.Now()
	for n := chaosJobs(t); len(c.jobs) < n; {
		c.submitOne()
		for acts := 1; c.waiting() >= 4; acts++ {
			if acts%6 == 0 {
				c.rest()
			} else {
				c.disturb()
			}
			c.tend()
		}
	}
	c.endDrains()
	c.wait(time.Duration(len(c.jobs))*time.Minute+settleLimit, "the end of all jobs", func() bool {
		c.tend()
		return c.waiting() == 0
	})
	c.wait(settleLimit, "all nodes in service", func() bool {
		c.tend()
		return c.inService()
	})
	c.settled()
	c.truthful()
	c.once()
	if never := c.counts["never ran"]; 4*never > len(c.jobs) {
		t.Errorf("%d of %d jobs never ran", never, len(c.jobs))
	}
	t.Logf("ReturnToService=%d: %d jobs, %.0f s, done: %v", returnToService, len(c.jobs), time.Since(begin).Seconds(), c.counts)
}

// submitOne submits a job that differs from the one before.
func (c *chaos) submitOne() {
	c.t.Helper()
	j := chaosJob{user: []string{"alice", "bob"}[c.chance.IntN(2)], noRequeue: c.chance.IntN(3) == 0}
	profile := []string{"stock", "mitgcm", "mitgcm"}[c.chance.IntN(3)]
	argv := []string{"sbatch", "--parsable", "--output=%j.out", "--open-mode=append", fmt.Sprintf("-N%d", 1+c.chance.IntN(3))}
	if profile != "stock" {
		argv = append(argv, "--kernel-profile="+profile)
	}
	if j.noRequeue {
		argv = append(argv, "--no-requeue")
	}
	argv = append(argv, "steps.sh", profile, strconv.Itoa(2+c.chance.IntN(3)))
	// slurmctld and broker are away now and then: a user tries again.
	c.wait(settleLimit, "a submit", func() bool {
		r := c.try(j.user, argv...)
		if r.Exit == 0 {
			j.id, _, _ = strings.Cut(strings.TrimSpace(r.Stdout), ";")
		}
		return r.Exit == 0
	})
	// A slurmctld that is killed within seconds of a submit forgets the job and gives its id to the next one.
	if i := slices.IndexFunc(c.jobs, func(earlier chaosJob) bool { return earlier.id == j.id }); i >= 0 {
		c.jobs = slices.Delete(c.jobs, i, i+1)
		c.counts["forgotten"]++
	}
	c.jobs = append(c.jobs, j)
	c.counts["submitted for "+profile]++
}

// waiting counts unfinished jobs. It starts a requeued job and releases a held one.
func (c *chaos) waiting() int {
	c.t.Helper()
	all, ok := c.allJobs()
	if !ok {
		return len(c.jobs)
	}
	left := 0
	for _, job := range all {
		if slices.Contains(over, job["JobState"]) {
			continue
		}
		left++
		c.hurry(job)
		if held(job) {
			c.counts["released"]++
			c.try("root", "scontrol", "release", job["JobId"])
		}
	}
	return left
}

// disturb injects one event of a real cluster and waits some seconds.
func (c *chaos) disturb() {
	c.t.Helper()
	node := c.Node(1 + c.chance.IntN(3))
	acts := []struct {
		name string
		do   func(lab.Node)
	}{
		{"reset", c.reset}, {"power cycle", c.cycle}, {"agent killed", c.killAgent},
		{"broker killed", c.brokerAway}, {"slurmctld restarted", c.restart}, {"reconfigure", c.reconfigure},
		{"drain", c.drain}, {"drain ended", func(lab.Node) { c.endDrains() }}, {"requeue", c.requeue}, {"cancel", c.cancel},
	}
	act := acts[c.chance.IntN(len(acts))]
	c.counts[act.name]++
	c.t.Logf("%s %s", act.name, node.Name())
	act.do(node)
	// A job takes some 20 s: most jobs see one of these, few see several. On a slow machine rest lets them end.
	time.Sleep(time.Duration(5+c.chance.IntN(20)) * time.Second)
}

// rest gives jobs that need all nodes the time for which no event leaves them: it ends the administrator's drains, and
// waits for a job to end, a minute at most.
func (c *chaos) rest() {
	c.t.Helper()
	c.counts["rest"]++
	c.endDrains()
	for end := time.Now().Add(time.Minute); c.waiting() >= 4 && time.Now().Before(end); c.tend() {
		time.Sleep(2 * time.Second)
	}
}

func (c *chaos) reset(n lab.Node) {
	c.hurt[n.Name()] = time.Now()
	c.ok(n.Reset(c.ctx))
}

func (c *chaos) cycle(n lab.Node) {
	c.hurt[n.Name()] = time.Now()
	c.powerCycle(n)
}

// killAgent kills a node's agent; a node that boots has none.
func (c *chaos) killAgent(n lab.Node) {
	if err := n.KillAgent(c.ctx); err != nil {
		c.t.Logf("agent not killed: %v", err)
	}
}

func (c *chaos) brokerAway(lab.Node) {
	c.killBroker()
	time.Sleep(time.Duration(c.chance.IntN(20)) * time.Second)
	c.startBroker()
}

// restart ends slurmctld orderly or by a kill. slurmctld saves its state every few seconds: killed in between it forgets
// jobs it has just started and starts them again, with or without the product, so that case is excluded.
func (c *chaos) restart(lab.Node) {
	sig := syscall.SIGTERM
	if c.chance.IntN(2) == 0 && c.written() {
		sig = syscall.SIGKILL
	}
	c.ok(c.RestartSlurmctld(c.ctx, sig))
}

// written reports whether every job with nodes has had them long enough to be in slurmctld's state files.
func (c *chaos) written() bool {
	c.t.Helper()
	all, ok := c.allJobs()
	for _, job := range all {
		switch job["JobState"] {
		case "CONFIGURING", "COMPLETING":
			return false
		case "RUNNING":
			ok = ok && job["RunTime"] >= "00:00:10"
		}
	}
	return ok
}

func (c *chaos) reconfigure(lab.Node) { c.try("root", "scontrol", "reconfigure") }

// drain takes a node out of service, as an administrator does.
func (c *chaos) drain(n lab.Node) {
	if len(c.drained) > 0 {
		return
	}
	reason := fmt.Sprintf("bad DIMM %d", len(c.jobs))
	// A command whose answer is lost may have had its effect.
	c.try("root", "scontrol", "update", "nodename="+n.Name(), "state=drain", "reason="+reason)
	c.wait(settleLimit, "slurmctld's state of "+n.Name(), func() bool {
		state := c.slurmNode(n.Name())
		if strings.HasPrefix(state["Reason"], reason) {
			c.drained[n.Name()] = reason
		}
		return state["State"] != ""
	})
}

// endDrains checks that each drain is still there, and ends it.
func (c *chaos) endDrains() {
	c.t.Helper()
	for name, reason := range c.drained {
		state := map[string]string{}
		c.wait(settleLimit, "slurmctld's state of "+name, func() bool {
			state = c.slurmNode(name)
			return state["State"] != ""
		})
		// Between two attempts of the broker the drain may be absent for a moment, in which no job may start.
		lost := time.Now().Add(30 * time.Second)
		for !strings.Contains(state["State"], "DRAIN") && !strings.HasPrefix(state["State"], "DOWN") || !strings.HasPrefix(state["Reason"], reason) {
			if time.Now().After(lost) {
				c.t.Errorf("node %s: drained for %q, and is %s for %q", name, reason, state["State"], state["Reason"])
				break
			}
			time.Sleep(500 * time.Millisecond)
			state = c.slurmNode(name)
		}
		c.try("root", "scontrol", "update", "nodename="+name, "state=resume")
		delete(c.drained, name)
		c.counts["drains that stayed"]++
	}
}

// slurmNode is slurmctld's view of a node; empty if it does not answer.
func (c *chaos) slurmNode(name string) map[string]string {
	c.t.Helper()
	r := c.try("root", "scontrol", "--oneliner", "show", "node", name)
	head, reason, _ := strings.Cut(r.Stdout, " Reason=")
	fields := map[string]string{"Reason": strings.TrimSpace(reason)}
	for _, field := range strings.Fields(head) {
		if k, v, ok := strings.Cut(field, "="); ok && fields[k] == "" {
			fields[k] = v
		}
	}
	return fields
}

// requeue requeues a running job, as its user may.
func (c *chaos) requeue(lab.Node) { c.onRunning("scontrol", "requeue") }

func (c *chaos) cancel(lab.Node) { c.onRunning("scancel") }

// onRunning runs a command on a job that has nodes, if there is one.
func (c *chaos) onRunning(argv ...string) {
	c.t.Helper()
	all, _ := c.allJobs()
	for _, job := range all {
		if job["JobState"] == "RUNNING" || job["JobState"] == "CONFIGURING" {
			c.try("root", append(argv, job["JobId"])...)
			return
		}
	}
}

// tend plays the administrator: it resumes nodes with broken hardware once they are up again. Any other node that stays out
// of service fails the wait for the end.
func (c *chaos) tend() {
	c.t.Helper()
	for _, n := range c.Nodes() {
		name := n.Name()
		state := c.slurmNode(name)
		out := strings.HasPrefix(state["State"], "DOWN") || strings.Contains(state["State"], "DRAIN")
		reason := state["Reason"]
		if !out || c.drained[name] != "" || strings.HasPrefix(reason, "kprof:") || strings.Contains(state["State"], "REBOOT") {
			continue
		}
		ours := strings.HasPrefix(reason, "kernel-broker:")
		if !ours && !strings.Contains(reason, "unexpectedly rebooted") && !strings.HasPrefix(reason, "Not responding") {
			continue
		}
		if !c.back(name) {
			continue
		}
		if hurt := c.hurt[name]; hurt.IsZero() {
			c.t.Errorf("node %s is %s for %q without an injected fault", name, state["State"], reason)
		}
		c.try("root", "scontrol", "update", "nodename="+name, "state=resume")
		delete(c.hurt, name)
		c.counts["resumed: "+strings.Join(strings.Fields(reason)[:min(3, len(strings.Fields(reason)))], " ")]++
	}
}

// back reports whether a node is up and proven on stock, which an administrator checks before a resume.
func (c *chaos) back(name string) bool {
	c.t.Helper()
	r := c.try("alice", "kernelctl", "node", "list", "--output", "json")
	var list struct {
		Nodes []nodeStatus `json:"nodes"`
	}
	if r.Exit != 0 || json.Unmarshal([]byte(r.Stdout), &list) != nil {
		return false
	}
	return slices.ContainsFunc(list.Nodes, func(n nodeStatus) bool {
		return n.Name == name && n.RunningProfile == "stock" && n.Connected && n.Attested
	})
}

func (c *chaos) inService() bool {
	c.t.Helper()
	for _, n := range c.Nodes() {
		if c.slurmNode(n.Name())["State"] != "IDLE" {
			return false
		}
	}
	return true
}

// once checks that each run of a job has one record of its script, and that a
// job with --no-requeue has one in all.
func (c *chaos) once() {
	c.t.Helper()
	for _, j := range c.jobs {
		scripts := map[string]int{}
		for _, r := range c.probes(j.user, j.id) {
			if r["kind"] == "batch" {
				scripts[r["restart"]]++
			}
		}
		runs := 0
		for restart, n := range scripts {
			runs += n
			if n > 1 {
				c.t.Errorf("job %s: its script ran %d times in run %s", j.id, n, restart)
			}
		}
		if j.noRequeue && runs > 1 {
			c.t.Errorf("job %s ran %d times with --no-requeue: %v", j.id, runs, c.probes(j.user, j.id))
		}
		if runs == 0 {
			c.counts["never ran"]++
		}
	}
}
