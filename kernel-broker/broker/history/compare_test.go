// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
)

// brief is an event in a line: what, the kernel, from > to, who, why and the seconds it took.
func brief(e kb.ClusterEvent) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s>%s by %s: %s %v", e.Event, e.Kernel, e.From, e.To, e.Who, e.Why, e.Took.Seconds())), " ")
}

func briefs(events []kb.ClusterEvent) (list []string) {
	for _, e := range events {
		list = append(list, brief(e))
	}
	return list
}

func kernelOf(profile string) kb.Kernel { return kb.Kernel{Profile: profile, Version: 1} }

// onStock is a node at rest.
func onStock() *kb.Node {
	return &kb.Node{Name: "n1", Boot: kb.Boot{BootID: "boot-1", Release: "6.1-stock"}, Running: kb.Proof{Ref: kb.Ref{Profile: "stock", Version: 1}, BootID: "boot-1"}}
}

func TestNode(t *testing.T) {
	mitgcm := kb.Ref{Profile: "mitgcm", Version: 1}
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	booting := func(n *kb.Node) {
		n.Pending = &kb.Pending{Kernel: kernelOf("mitgcm"), Token: "t1", Begun: at(-20), Loaded: at(-12), Executed: at(-9), Progress: kb.ProgressBooting}
	}
	drained := func(author kb.ServiceAuthor, by, reason string) func(*kb.Node) {
		return func(n *kb.Node) {
			n.Slurm.Service = kb.Service{State: kb.ServiceDrained, Author: author, By: by, Reason: reason}
		}
	}
	cases := []struct {
		name     string
		was, set func(*kb.Node)
		want     []string
	}{
		{"nothing", nil, func(n *kb.Node) { n.Generation++; n.Owner = kb.JobID{Job: 7} }, nil},
		{"a boot is requested", nil, func(n *kb.Node) { n.Pending = &kb.Pending{Kernel: kernelOf("mitgcm"), Token: "t1", Begun: noon} },
			[]string{"boot-requested mitgcm@1 stock@1>mitgcm@1 by kernel-broker: by kexec 0"}},
		{"the second try reboots", nil, func(n *kb.Node) {
			n.Attempts, n.Pending = 1, &kb.Pending{Kernel: kernelOf("stock"), Token: "t1", Way: kb.WayReboot}
		}, []string{"boot-requested stock@1 stock@1>stock@1 by kernel-broker: by reboot, try 2 0"}},
		{"requested, loaded and executed at once", nil, booting, []string{"boot-requested mitgcm@1 stock@1>mitgcm@1 by kernel-broker: by kexec 0",
			"loaded mitgcm@1 > by kernel-broker: 8", "kexec mitgcm@1 > by kernel-broker: 3"}},
		{"the kernel is proven", booting, func(n *kb.Node) {
			n.Pending, n.Boot = nil, kb.Boot{BootID: "boot-2", Release: "6.1-mitgcm"}
			n.Running = kb.Proof{Ref: mitgcm, BootID: "boot-2"}
		}, []string{"proven mitgcm@1 6.1-stock>6.1-mitgcm by kernel-broker: 9"}},
		{"another kernel came up", booting, func(n *kb.Node) {
			n.Pending, n.Boot, n.Running = nil, kb.Boot{BootID: "boot-2", Release: "6.1-other"}, kb.Proof{}
			n.Faults = []kb.Fault{{Token: "t1", Ref: mitgcm, Cause: "6.1-other came up"}}
			n.Failure = &kb.Failure{Kind: kb.FailureKernel, Ref: mitgcm, Cause: "6.1-other came up", At: noon}
		}, []string{"booted 6.1-stock>6.1-other by kernel-broker: what runs is not proven 0",
			"boot-failed mitgcm@1 booting> by kernel-broker: 6.1-other came up 0", "failed mitgcm@1 booting>kernel by kernel-broker: 6.1-other came up 0"}},
		{"the job left before the boot", booting, func(n *kb.Node) { n.Pending = nil }, []string{"boot-dropped mitgcm@1 booting> by kernel-broker: 0"}},
		{"reset", booting, func(n *kb.Node) { n.Pending.ResetAt = noon }, []string{"reset mitgcm@1 > by kernel-broker: 0"}},
		{"recovered", func(n *kb.Node) { n.Failure = &kb.Failure{Kind: kb.FailureNode, Ref: mitgcm} }, func(n *kb.Node) { n.Failure = nil },
			[]string{"recovered mitgcm@1 > by kernel-broker: 0"}},
		{"an administrator drains", nil, drained(kb.AuthorAdministrator, "eve@2026-11-28T12:00:00", "bad fan"),
			[]string{"out-of-service >drained by eve: bad fan 0"}},
		{"the armed return is no drain", nil, drained(kb.AuthorReturn, "slurm@2026", "kprof: return"), nil},
		{"nor is slurmctld's", nil, drained(kb.AuthorSlurmctld, "slurm@2026", "Reboot ASAP"), nil},
		{"another reason", drained(kb.AuthorReturn, "slurm@2026", "kprof: return"), drained(kb.AuthorFailure, "slurm@2026", "kernel-broker: no kexec"),
			[]string{"out-of-service drained>drained by kernel-broker: kernel-broker: no kexec 0"}},
		{"resumed", drained(kb.AuthorAdministrator, "eve@2026", "bad fan"), func(n *kb.Node) { n.Slurm.Service = kb.Service{} },
			[]string{"in-service drained> by slurmctld: 0"}},
		{"armed", nil, func(n *kb.Node) { n.Slurm.Requested = kb.SlurmBoot{Phase: kb.BootAsked, Owner: kb.OwnerBroker} }, []string{"armed > by kernel-broker: 0"}},
		{"registered", func(n *kb.Node) { n.Slurm.Awaited = kb.SlurmBoot{Phase: kb.BootIssued, Owner: kb.OwnerJob} }, func(n *kb.Node) { n.Slurm.Awaited = kb.SlurmBoot{} },
			[]string{"registered > by slurmctld: 0"}},
		{"kept", nil, func(n *kb.Node) { n.KeptFor = "12_3" }, []string{"kept stock@1 >job 12_3 by kernel-broker: 0"}},
		{"an administrator reboots", nil, func(n *kb.Node) { n.Reboot = &kb.Reboot{Reason: "firmware", At: noon} }, []string{"reboot-requested > by administrator: firmware 0"}},
		{"powered off", nil, func(n *kb.Node) { n.Slurm.PoweredOffBoot = "boot-1" }, []string{"powered-off > by slurmctld: 0"}},
		{"other firmware", func(n *kb.Node) { n.Hardware = kb.Hardware{Board: "B", Firmware: "1"} }, func(n *kb.Node) { n.Hardware.Firmware = "2" },
			[]string{"hardware-changed B, firmware 1>B, firmware 2 by kernel-broker: 0"}},
	}
	for _, c := range cases {
		was := onStock()
		if c.was != nil {
			c.was(was)
		}
		is := was.Clone()
		c.set(is)
		events := history.Node(was, is, func(kb.JobID) *kb.Allocation { return nil }, noon)
		if got := briefs(events); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		if again := history.Node(is, is, func(kb.JobID) *kb.Allocation { return nil }, noon); len(again) != 0 {
			t.Errorf("%s: without a change %q", c.name, briefs(again))
		}
	}
}

func TestNodeNamesTheJobAndItsUser(t *testing.T) {
	was, is := onStock(), onStock()
	is.Timeline, is.KeptFor = kb.JobID{Job: 7, Restart: 1}, "8"
	events := history.Node(was, is, func(id kb.JobID) *kb.Allocation { return &kb.Allocation{ID: id, User: "alice", UID: 1000} }, noon)
	if len(events) != 1 || events[0].Job != is.Timeline || events[0].User != "alice" || *events[0].UID != 1000 || events[0].Node != "n1" || !events[0].At.Equal(noon) {
		t.Errorf("%+v", events)
	}
	if first := history.Node(nil, onStock(), func(kb.JobID) *kb.Allocation { return nil }, noon); !slices.Equal(briefs(first),
		[]string{"seen >6.1-stock by kernel-broker: 0", "proven stock@1 >6.1-stock by kernel-broker: 0"}) {
		t.Errorf("a new node: %q", briefs(first))
	}
}

func TestJob(t *testing.T) {
	job := func(phase kb.Phase, set func(*kb.Allocation)) *kb.Allocation {
		a := &kb.Allocation{ID: kb.JobID{Job: 7}, User: "alice", UID: 1000, Kernel: kernelOf("mitgcm"), Nodes: []string{"n1", "n2"}, Phase: phase, Created: noon, Since: noon.Add(5 * time.Second)}
		if set != nil {
			set(a)
		}
		return a
	}
	cases := []struct {
		name    string
		was, is *kb.Allocation
		want    []string
	}{
		{"accepted", nil, job(kb.PhaseAccepted, nil), []string{"accepted mitgcm@1 >n[1-2] by alice: 0"}},
		{"refused", nil, job(kb.PhaseFailed, func(a *kb.Allocation) { a.Closed, a.Reason = true, "quarantined" }), []string{"refused mitgcm@1 > by kernel-broker: quarantined 0"}},
		{"ready", job(kb.PhaseSwitching, nil), job(kb.PhaseReady, nil), []string{"ready mitgcm@1 switching>ready by kernel-broker: 5"}},
		{"running", job(kb.PhaseReady, nil), job(kb.PhaseReady, func(a *kb.Allocation) { a.Seen = true }), []string{"running mitgcm@1 > by slurmctld: 0"}},
		{"failed", job(kb.PhaseSwitching, nil), job(kb.PhaseFailed, func(a *kb.Allocation) { a.Reason = "n1: no kexec" }),
			[]string{"failed mitgcm@1 switching>failed by kernel-broker: n1: no kexec 5"}},
		{"held", job(kb.PhaseFailed, nil), job(kb.PhaseFailed, func(a *kb.Allocation) { a.Requeued, a.Hold = true, true }), []string{"held mitgcm@1 > by kernel-broker: 0"}},
		{"requeued", job(kb.PhaseFailed, nil), job(kb.PhaseFailed, func(a *kb.Allocation) { a.Requeued = true }), []string{"requeued mitgcm@1 > by kernel-broker: 0"}},
		{"suspended", job(kb.PhaseReady, nil), job(kb.PhaseReady, func(a *kb.Allocation) { a.Suspended = true }), []string{"suspended mitgcm@1 > by slurmctld: 0"}},
		{"resumed", job(kb.PhaseReady, func(a *kb.Allocation) { a.Suspended = true }), job(kb.PhaseReady, nil), []string{"resumed mitgcm@1 > by slurmctld: 0"}},
		{"a node lost the kernel", job(kb.PhaseReady, nil), job(kb.PhaseReady, func(a *kb.Allocation) {
			a.Lost, a.LostAt = map[string]string{"n1": "it crashed"}, map[string]time.Time{"n1": noon}
		}),
			[]string{"kernel-lost mitgcm@1 > by kernel-broker: it crashed 0"}},
		{"handed over", job(kb.PhaseReturning, nil), job(kb.PhaseReturning, func(a *kb.Allocation) { a.HandedTo = "8" }), []string{"handed-over mitgcm@1 >job 8 by kernel-broker: 0"}},
		{"done", job(kb.PhaseReturning, nil), job(kb.PhaseDone, func(a *kb.Allocation) { a.Ended = noon.Add(2 * time.Second) }), []string{"done mitgcm@1 returning>done by kernel-broker: 3"}},
	}
	for _, c := range cases {
		if got := briefs(history.Job(c.was, c.is, noon)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		if again := history.Job(c.is, c.is, noon); len(again) != 0 {
			t.Errorf("%s: without a change %q", c.name, briefs(again))
		}
	}
}

func TestProfile(t *testing.T) {
	registered := kb.Change{At: noon, Who: "root", What: kb.ChangeRegistered, Version: 1}
	promoted := kb.Change{At: noon.Add(time.Second), Who: "eve", What: kb.ChangePromoted, Version: 1, Reason: "faster"}
	changed := kb.Change{At: noon.Add(2 * time.Second), Who: "eve", What: kb.ChangeChanged}
	was := kb.Profile{Name: "mitgcm", History: []kb.Change{registered}, Versions: []kb.ProfileVersion{{Kernel: kernelOf("mitgcm"), BootFailures: 1}}}
	is := was
	// The oldest change is gone by now.
	is.History = []kb.Change{promoted, changed}
	is.Versions = []kb.ProfileVersion{{Kernel: kernelOf("mitgcm"), BootFailures: 2, FailedOn: []string{"n1", "n2"}}}
	events := history.Profile(was, is, noon)
	want := []string{"promoted mitgcm@1 > by eve: faster 0", "changed mitgcm > by eve: 0",
		"boot-failed mitgcm@1 > by kernel-broker: 2 boots failed since it was registered or released, on n[1-2] 0"}
	if got := briefs(events); !slices.Equal(got, want) || events[0].Subject != kb.SubjectKernel || events[1].Subject != kb.SubjectProfile {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if again := history.Profile(is, is, noon); len(again) != 0 {
		t.Errorf("without a change %q", briefs(again))
	}
	if first := history.Profile(kb.Profile{}, was, noon); len(first) != 1 || first[0].Event != kb.ChangeRegistered {
		t.Errorf("a new profile: %q", briefs(first))
	}
}

func TestRules(t *testing.T) {
	a := kb.HardwareRule{Name: "a", Kexec: kb.KexecNever, Author: "root", Reason: "it hangs"}
	b := kb.HardwareRule{Name: "b", Kexec: kb.KexecNoReturn, Author: "root"}
	other := b
	other.Author, other.Kexec = "eve", kb.KexecNever
	events := history.Rules([]kb.HardwareRule{b, {Name: "c", Kexec: kb.KexecNever}}, []kb.HardwareRule{a, other}, "adam", noon)
	want := []string{"added >never by root: it hangs 0", "changed >never by eve: 0", "removed >never by adam: 0"}
	if got := briefs(events); !slices.Equal(got, want) || events[2].Rule != "c" {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}
