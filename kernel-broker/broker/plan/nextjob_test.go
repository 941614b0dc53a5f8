// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// ask has the epilog of job 7 on n1 ask whether the node is kept.
func ask(w *world) Output {
	a := w.agents["n1"]
	a.Ending, a.EndingSince = 7, w.now
	w.agents["n1"] = a
	w.now = w.now.Add(time.Millisecond)
	w.slurm.Commented = true
	return w.decide()
}

// Nodes are kept only for the job that Slurm would give them next, and only if it
// can run there as it asked to. Whatever is in doubt, they return.
func TestReuseHeedsWhatAJobAsksFor(t *testing.T) {
	job := func(change func(j *kb.SlurmJob)) kb.SlurmJob {
		j := kb.SlurmJob{ID: 9, Reference: "9", State: "PENDING", Reason: "Resources", NodeCount: 1, User: "alice", Priority: 10,
			Partition: "main", Reboot: true, AdminComment: "kernel-broker: mitgcm requested", Demand: &kb.SlurmDemand{}}
		if change != nil {
			change(&j)
		}
		return j
	}
	demand := func(d kb.SlurmDemand) func(j *kb.SlurmJob) { return func(j *kb.SlurmJob) { j.Demand = &d } }
	before := func(change func(j *kb.SlurmJob)) kb.SlurmJob {
		return job(func(j *kb.SlurmJob) {
			j.ID, j.Reference, j.Priority, j.Reboot, j.AdminComment, j.Demand = 8, "8", 20, false, "", nil
			change(j)
		})
	}
	for name, c := range map[string]struct {
		queue []kb.SlurmJob
		node  func(n *kb.SlurmNode)
		kept  bool
	}{
		"it fits":                    {queue: []kb.SlurmJob{job(nil)}, kept: true},
		"another partition":          {queue: []kb.SlurmJob{job(func(j *kb.SlurmJob) { j.Partition = "other" })}},
		"one of its partitions":      {queue: []kb.SlurmJob{job(func(j *kb.SlurmJob) { j.Partition = "other,main" })}, kept: true},
		"a reservation of its own":   {queue: []kb.SlurmJob{job(func(j *kb.SlurmJob) { j.Reservation = "course" })}},
		"features that the node has": {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{Features: []string{"ib"}}))}, kept: true},
		"a feature that it has not":  {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{Features: []string{"ib", "gpu"}}))}},
		"this node":                  {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{Required: []string{"n1"}}))}, kept: true},
		"another node":               {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{Required: []string{"n2"}}))}},
		"any node but this":          {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{Excluded: []string{"n1"}}))}},
		"more CPUs on each node":     {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{CPUs: 5}))}},
		"more CPUs in all":           {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{AllCPUs: 5}))}},
		"more memory":                {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{MemoryMiB: 1001}))}},
		"all that the node has":      {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{CPUs: 4, AllCPUs: 4, MemoryMiB: 1000}))}, kept: true},
		"licences":                   {queue: []kb.SlurmJob{job(demand(kb.SlurmDemand{Unevaluated: "licences matlab:1"}))}},
		"nobody asked what it wants": {queue: []kb.SlurmJob{job(func(j *kb.SlurmJob) { j.Demand = nil })}},
		"first in this line":         {queue: []kb.SlurmJob{before(func(j *kb.SlurmJob) { j.Partition = "other" }), job(nil)}, kept: true},
		"a plain job is first":       {queue: []kb.SlurmJob{before(func(*kb.SlurmJob) {}), job(nil)}},
		"a plain job of a higher tier is first": {queue: []kb.SlurmJob{job(func(j *kb.SlurmJob) { j.Tier = 1 }),
			before(func(j *kb.SlurmJob) { j.Tier, j.Priority, j.ID, j.Reference = 10, 1, 99, "99" })}},
		"a plain job of a lower tier": {queue: []kb.SlurmJob{job(func(j *kb.SlurmJob) { j.Tier = 10 }),
			before(func(j *kb.SlurmJob) { j.Tier = 1 })}, kept: true},
		"a plain job with a reservation": {queue: []kb.SlurmJob{before(func(j *kb.SlurmJob) { j.Reservation = "course" }), job(nil)}, kept: true},
		"the node is down":               {queue: []kb.SlurmJob{job(nil)}, node: func(n *kb.SlurmNode) { n.State = "DOWN" }},
		"the node is reserved":           {queue: []kb.SlurmJob{job(nil)}, node: func(n *kb.SlurmNode) { n.Flags = append(n.Flags, "RESERVED") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			n := w.slurm.Nodes["n1"]
			n.Features = []string{"ib"}
			if c.node != nil {
				c.node(&n)
			}
			w.slurm.Nodes["n1"], w.slurm.Queue = n, c.queue
			out := ask(w)
			if kept := w.nodes["n1"].KeptFor != ""; kept != c.kept || has(out.Actions, ReserveNodes) != c.kept {
				t.Errorf("kept for %q, actions %v", w.nodes["n1"].KeptFor, out.Actions)
			}
		})
	}
}

// Of a wide job's nodes those are kept that the next one must have.
func TestReusePicksTheNodesThatAreAskedFor(t *testing.T) {
	w := running(t)
	w.boot("n2", kernels[1], "")
	w.settle()
	n := w.nodes["n2"]
	n.Running, n.Desired, n.Owner, n.Timeline = w.nodes["n1"].Running, w.nodes["n1"].Desired, w.nodes["n1"].Owner, w.nodes["n1"].Timeline
	n.Pending, n.Running.BootID = nil, n.Boot.BootID
	n.Boot.Token, n.Issued = w.nodes["n1"].Boot.Token, w.nodes["n1"].Issued
	w.agents["n2"] = Agent{Connected: true, Since: w.now, Boot: n.Boot, Slurmd: Slurmd{Running: true, At: w.now}}
	w.node("n2", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	a := w.allocs[kb.JobID{Job: 7}]
	a.Nodes = []string{"n1", "n2"}
	w.job(7, "RUNNING", true, "n1", "n2")
	w.slurm.Queue = []kb.SlurmJob{{ID: 9, Reference: "9", State: "PENDING", Reason: "Resources", NodeCount: 1, Partition: "main",
		AdminComment: "kernel-broker: mitgcm requested", Demand: &kb.SlurmDemand{Required: []string{"n2"}}}}
	lost := again(t, w.nodes["n2"])
	ask(w)
	if w.nodes["n1"].KeptFor != "" || w.nodes["n2"].KeptFor != "9" {
		t.Errorf("n1 is kept for %q, n2 for %q", w.nodes["n1"].KeptFor, w.nodes["n2"].KeptFor)
	}
	// One that lost the kernel has nothing to be kept for.
	lost.Running.Ref = stockRef
	w.nodes["n2"], a.HandedTo = lost, ""
	d := &decision{in: w.input(), nodes: w.nodes}
	if d.suitable(w.slurm.Queue[0].Demand, "main", a, "n2") {
		t.Error("a node on stock is kept for a job that wants mitgcm")
	}
}

// A node is kept for one job, and for as long as that one waits or has it. Then
// its return is armed before the reservation goes, so that nobody can get it in
// between.
func TestKeptNodeThatIsForsaken(t *testing.T) {
	waiting := kb.SlurmJob{ID: 9, Reference: "9", State: "PENDING", Reason: "Resources", NodeCount: 1, User: "alice", Partition: "main",
		AdminComment: "kernel-broker: mitgcm requested", Demand: &kb.SlurmDemand{}, Reservation: "kernel-broker-9"}
	held := waiting
	held.Reason = "JobHeldUser"
	other := kb.SlurmJob{ID: 10, Reference: "10", State: "PENDING", Reason: "Resources", User: "alice", Partition: "main", Reservation: "kernel-broker-9"}
	several := other
	several.Reservation = "course,kernel-broker-9"
	for name, c := range map[string]struct {
		queue []kb.SlurmJob
		jobs  []kb.SlurmJob
		kept  bool
	}{
		"it waits":                        {queue: []kb.SlurmJob{waiting}, kept: true},
		"it has the node":                 {jobs: []kb.SlurmJob{{ID: 9, Reference: "9", State: "CONFIGURING", Nodes: []string{"n1"}}}, kept: true},
		"its nodes cannot be read":        {jobs: []kb.SlurmJob{{ID: 9, Reference: "9", State: "CONFIGURING", Unread: "x"}}, kept: true},
		"it has another node":             {jobs: []kb.SlurmJob{{ID: 9, Reference: "9", State: "CONFIGURING", Nodes: []string{"n2"}}}},
		"it is cancelled":                 {},
		"it is held":                      {queue: []kb.SlurmJob{held}},
		"another asks for it":             {queue: []kb.SlurmJob{waiting, other}},
		"another asks for it among other": {queue: []kb.SlurmJob{waiting, several}},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			w.slurm.Queue = []kb.SlurmJob{waiting}
			w.slurm.Queue[0].Reservation = ""
			ask(w)
			if w.nodes["n1"].KeptFor != "9" {
				t.Fatal("not kept")
			}
			w.slurm.Jobs = map[uint32]kb.SlurmJob{}
			w.slurm.Queue, w.slurm.Reservations = []kb.SlurmJob{waiting}, []kb.SlurmReservation{{Name: "kernel-broker-9", Job: "9", Nodes: []string{"n1"}}}
			w.node("n1", "IDLE+RESERVED", "")
			w.pass(time.Second)
			w.slurm.Queue = c.queue
			for _, j := range c.jobs {
				w.slurm.Jobs[j.ID] = j
			}
			actions := w.pass(time.Second)
			if kept := w.nodes["n1"].KeptFor != ""; kept != c.kept {
				t.Fatalf("kept for %q", w.nodes["n1"].KeptFor)
			}
			if c.kept {
				return
			}
			armed := slices.ContainsFunc(actions, func(a Action) bool { return a.Kind == ArmReturn && slices.Contains(a.Nodes, "n1") })
			if !armed || has(actions, DropReservation) {
				t.Errorf("the reservation goes before the return is armed: %v", actions)
			}
			w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED+RESERVED", "kprof: return from mitgcm@3")
			if actions := w.pass(time.Second); !has(actions, DropReservation) {
				t.Errorf("the reservation stays: %v", actions)
			}
		})
	}
}

// A reservation that was made, and to which its job could not be tied, is asked for again: the node stays armed, since
// without the job nobody uses it.
func TestReservationWithoutItsJob(t *testing.T) {
	name := ReservationName("9")
	for reservation, tied := range map[string]bool{"": false, "other": false, name: true, "other," + name: true} {
		w := running(t)
		w.slurm.Queue = []kb.SlurmJob{{ID: 9, Reference: "9", State: "PENDING", Reason: "Resources", NodeCount: 1, User: "alice", Partition: "main",
			Reboot: true, AdminComment: "kernel-broker: mitgcm requested", Demand: &kb.SlurmDemand{}}}
		ask(w)
		w.slurm.Queue[0].Reservation = reservation
		w.slurm.Reservations = []kb.SlurmReservation{{Name: name, Job: "9", Nodes: []string{"n1"}}}
		actions := w.pass(time.Second)
		if w.nodes["n1"].KeptFor != "9" || has(actions, ReserveNodes) == tied || has(actions, Disarm) != tied {
			t.Errorf("the job asks for %q: %v", reservation, actions)
		}
	}
}

// A kept node that an administrator drains returns, and the drain stays: to take its armed return back would end it.
func TestKeptNodeThatIsDrained(t *testing.T) {
	w := running(t)
	waiting := kb.SlurmJob{ID: 9, Reference: "9", State: "PENDING", Reason: "Resources", NodeCount: 1, User: "alice", Partition: "main",
		Reboot: true, AdminComment: "kernel-broker: mitgcm requested", Demand: &kb.SlurmDemand{}}
	w.slurm.Queue = []kb.SlurmJob{waiting}
	ask(w)
	if w.nodes["n1"].KeptFor != "9" {
		t.Fatal("not kept")
	}
	w.slurm.Jobs = map[uint32]kb.SlurmJob{}
	waiting.Reservation = ReservationName("9")
	w.slurm.Queue, w.slurm.Reservations = []kb.SlurmJob{waiting}, []kb.SlurmReservation{{Name: ReservationName("9"), Job: "9", Nodes: []string{"n1"}}}
	w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED+RESERVED", "bad DIMM")
	actions := w.pass(time.Second)
	if n := w.nodes["n1"]; n.Slurm.Restore == nil || n.KeptFor != "" || has(actions, Disarm) {
		t.Errorf("out of service %+v, kept for %q, %v", n.Slurm.Restore, n.KeptFor, actions)
	}
}
