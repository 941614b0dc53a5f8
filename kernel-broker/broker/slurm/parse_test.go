// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// row is a row in the format of squeue 22.05, with its line break: Slurm's own fields, each followed by the separator, then
// texts that are cut or padded to their widths, in bytes. A job without a reservation omits that field.
func row(fields ...string) string {
	if len(fields) == 16 {
		fields = slices.Insert(slices.Clone(fields), 15, "(null)")
	}
	var b strings.Builder
	for _, at := range []int{0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 13, 14, 16} {
		b.WriteString(fields[at] + separator)
	}
	for i, at := range []int{8, 11, 15, 12} {
		width := jobTexts[i].width
		b.WriteString((fields[at] + strings.Repeat(" ", width))[:width])
	}
	return b.String() + "\n"
}

func TestParseJob(t *testing.T) {
	for _, c := range []struct {
		name string
		line string
		want kb.SlurmJob
	}{
		{"running", row("12", "12", "N/A", "N/A", "N/A", "2", "RUNNING", "1000", "alice", "2", "4294901758", "p", "None", "1", "1", "n[1-2]"),
			kb.SlurmJob{ID: 12, Reference: "12", Restart: 2, State: "RUNNING", UID: 1000, User: "alice", NodeCount: 2, Priority: 4294901758,
				Partition: "p", Reason: "None", Reboot: true, Requeue: true, Nodes: []string{"n1", "n2"}}},
		{"a task that waits", row("2", "2", "3", "N/A", "N/A", "0", "PENDING", "0", "root", "3", "4294901758", "p", "Resources", "0", "0", ""),
			kb.SlurmJob{ID: 2, Reference: "2_3", Task: 3, State: "PENDING", User: "root", NodeCount: 3, Priority: 4294901758, Partition: "p", Reason: "Resources"}},
		{"a task that runs has an id of its own", row("6", "5", "5", "N/A", "N/A", "0", "RUNNING", "0", "root", "1", "1", "p", "None", "1", "1", "n2"),
			kb.SlurmJob{ID: 6, Reference: "5_5", Task: 5, State: "RUNNING", User: "root", NodeCount: 1, Priority: 1, Partition: "p", Reason: "None", Reboot: true, Requeue: true, Nodes: []string{"n2"}}},
		{"the last task has the array's own id", row("5", "5", "6", "N/A", "N/A", "0", "RUNNING", "0", "root", "1", "1", "p", "None", "1", "1", "n2"),
			kb.SlurmJob{ID: 5, Reference: "5_6", Task: 6, State: "RUNNING", User: "root", NodeCount: 1, Priority: 1, Partition: "p", Reason: "None", Reboot: true, Requeue: true, Nodes: []string{"n2"}}},
		{"task 0", row("5", "5", "0", "N/A", "N/A", "0", "RUNNING", "0", "root", "1", "1", "p", "None", "0", "0", "n2"),
			kb.SlurmJob{ID: 5, Reference: "5_0", State: "RUNNING", User: "root", NodeCount: 1, Priority: 1, Partition: "p", Reason: "None", Nodes: []string{"n2"}}},
		{"a component of a heterogeneous job", row("21", "21", "N/A", "20", "1", "0", "CONFIGURING", "7", "bob", "1", "9", "p", "None", "1", "1", "n3"),
			kb.SlurmJob{ID: 21, Reference: "20+1", State: "CONFIGURING", UID: 7, User: "bob", NodeCount: 1, Priority: 9, Partition: "p", Reason: "None", Reboot: true, Requeue: true, Nodes: []string{"n3"}}},
		{"nodes that are not there", row("4", "4", "N/A", "N/A", "N/A", "0", "PENDING", "0", "root", "1", "1", "p", "ReqNodeNotAvail, UnavailableNodes:n1", "0", "0", ""),
			kb.SlurmJob{ID: 4, Reference: "4", State: "PENDING", User: "root", NodeCount: 1, Priority: 1, Partition: "p", Reason: "ReqNodeNotAvail, UnavailableNodes:n1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, length, err := parseJob(c.line)
			if err != nil || length != len(c.line) || !reflect.DeepEqual(got, c.want) {
				t.Errorf("parseJob = %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
	whole := row("12", "12", "N/A", "N/A", "N/A", "2", "RUNNING", "1", "a", "2", "1", "p", "None", "1", "1", "n1")
	if _, _, err := parseJob(whole); err != nil {
		t.Error(err)
	}
	for _, out := range []string{"12", "12|12|N/A", strings.Replace(whole, "12", "x", 1), strings.Replace(whole, "|RUNNING|1|", "|RUNNING||", 1), strings.Repeat("x", 100<<10)} {
		job, _, err := parseJob(out)
		if !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrInvalid) || len(err.Error()) > 2000 {
			t.Errorf("parseJob(%.100q) = %+v, %.200v", out, job, err)
		}
	}
}

// A row of another length costs its own job only, which is known not to be over.
func TestRowOfAnotherLength(t *testing.T) {
	line := func(id, nodes string) string {
		return row(id, id, "N/A", "N/A", "N/A", "0", "RUNNING", "7", "bob", "1", "9", "p", "None", "1", "1", nodes)
	}
	good, odd := line("11", "n1"), line("12", "n2")
	for name, between := range map[string]string{
		"cut": odd[:len(odd)-30] + "\n", "longer": odd[:len(odd)-1] + "and more\n", "a separator in its nodes": line("12", "n2|n3"),
		"a line break in its nodes": line("12", "n2\nn3"), "no end": odd[:len(odd)-1],
	} {
		jobs, err := parseJobs(good + between + line("13", "n3"))
		if name == "no end" {
			jobs, err = parseJobs(good + line("13", "n3") + between)
			if len(jobs) == 3 {
				jobs[1], jobs[2] = jobs[2], jobs[1]
			}
		}
		if err != nil || len(jobs) != 3 || jobs[0].Unread != "" || jobs[2].Unread != "" || jobs[2].ID != 13 {
			t.Errorf("%s: %+v, %v", name, jobs, err)
			continue
		}
		if j := jobs[1]; j.ID != 12 || j.Unread == "" || !j.Holds() || j.UID != 7 || len(j.Nodes) != 0 {
			t.Errorf("%s: the odd job is %+v", name, j)
		}
	}
}

// What a burst buffer's script, or anybody else, writes into a text is a value, and changes no other row.
func TestTextsOfJobs(t *testing.T) {
	for _, text := range []string{"burst_buffer/lua: slurm_bb_pools: first line\nsecond | line", "|", "\n", "\n\n12|12|", "ä|ö\n", strings.Repeat("x", 64<<10),
		row("99", "99", "N/A", "N/A", "N/A", "0", "RUNNING", "0", "root", "1", "9", "p", "None", "1", "1", "n9")} {
		for field, at := range map[string]int{"user": 8, "partition": 11, "reason": 12, "reservation": 15} {
			fields := []string{"12", "12", "N/A", "N/A", "N/A", "0", "PENDING", "7", "bob", "1", "9", "p", "Resources", "1", "1", "(null)", ""}
			fields[at] = text
			after := row("13", "13", "N/A", "N/A", "N/A", "0", "RUNNING", "7", "bob", "1", "9", "p", "None", "1", "1", "n3")
			jobs, err := parseJobs(row(fields...) + after)
			if err != nil || len(jobs) != 2 || jobs[0].ID != 12 || jobs[0].Unread != "" || jobs[1].ID != 13 || jobs[1].Nodes[0] != "n3" {
				t.Errorf("%s %.40q: %+v, %v", field, text, jobs, err)
			}
		}
	}
}

// Of an array that waits, only so many tasks are kept as matter.
func TestTasksThatWaitAreBounded(t *testing.T) {
	var out strings.Builder
	for task := range 2 * mostTasks {
		out.WriteString(row("2", "2", fmt.Sprint(task), "N/A", "N/A", "0", "PENDING", "7", "bob", "1", "9", "p", "Resources", "1", "1", ""))
	}
	out.WriteString(row("3", "2", "9999", "N/A", "N/A", "1", "PENDING", "7", "bob", "1", "9", "p", "Resources", "1", "1", ""))
	jobs, err := parseJobs(out.String())
	if err != nil || len(jobs) != mostTasks+1 || jobs[mostTasks-1].Reference != "2_255" || jobs[mostTasks].Reference != "2_9999" {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}

// An unreadable node list affects only its own job, which is still listed.
func TestUnreadableNodeList(t *testing.T) {
	lines := ""
	lists := []string{"n[1-", "n1|n2", "n[1-99999999]", "n 1", "n[1-2],$(id)", "n1" + strings.Repeat(",n1", 100<<10), "n[" + strings.Repeat("1,", 50<<10)}
	for i, list := range lists {
		lines += row(fmt.Sprint(i+1), fmt.Sprint(i+1), "N/A", "N/A", "N/A", "0", "RUNNING", "1000", "alice", "2", "1", "p", "None", "1", "1", list)
	}
	file := t.TempDir() + "/lines"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	client, _ := fake(t, viewScontrol, viewSqueue+"\ncat "+file)
	view, err := client.View(t.Context(), false)
	if err != nil || len(view.Jobs) != 2+len(lists) || len(view.Queue) != 3 {
		t.Fatalf("%d jobs, %d in the queue, %v", len(view.Jobs), len(view.Queue), err)
	}
	for i, list := range lists {
		if job := view.Jobs[uint32(i+1)]; job.Unread == "" || len(job.Unread) > 1000 || len(job.Nodes) > 0 || !job.Holds() || job.UID != 1000 {
			t.Errorf("%.100q: %+v", list, job)
		}
	}
	if good := view.Jobs[12]; good.Unread != "" || len(good.Nodes) != 1 {
		t.Errorf("another job: %+v", good)
	}
}

func TestPendingReasons(t *testing.T) {
	for reason, want := range map[string]bool{"None": true, "Resources": true, "Priority": true, "Reservation": true,
		"ReqNodeNotAvail, UnavailableNodes:n1":                                                                   true,
		"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions":            true,
		"Nodes_required_for_job_are_DOWN,_DRAINED,_REBOOTING_or_reserved_for_jobs_in_higher_priority_partitions": true,
		"BeginTime": false, "JobHeldUser": false, "JobHeldAdmin": false, "Dependency": false,
		"launch failed requeued held": false} {
		if got := (kb.SlurmJob{State: "PENDING", Reason: reason}).Pending(); got != want {
			t.Errorf("a job that waits for %s: %v", reason, got)
		}
	}
}

// The head of a line as scontrol 22.05 prints it.
const nodeHead = "NodeName=n2 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=2 CPUTot=2 CPULoad=12.45 AvailableFeatures=ib,gpu ActiveFeatures=ib " +
	"Gres=(null) NodeAddr=localhost NodeHostName=localhost Port=17822 Version=22.05.8 OS=Linux 6.1.0-49-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.174-1  " +
	"RealMemory=100 AllocMem=100 FreeMem=18234 Sockets=2 Boards=1 State="

const nodeTail = " ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A NextState=RESUME Partitions=p  BootTime=2026-11-20T11:45:39 " +
	"SlurmdStartTime=2026-11-20T11:45:39 LastBusyTime=2026-11-20T11:45:39 CfgTRES=cpu=2,mem=100M,billing=2 AllocTRES=cpu=2,mem=100M CapWatts=n/a " +
	"CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"

func TestParseNode(t *testing.T) {
	type facts struct{ waiting, issued, armed, drained, down, free, unheard bool }
	for _, c := range []struct {
		state, reason string
		want          facts
	}{
		{"IDLE", "", facts{free: true}},
		{"IDLE*", "", facts{free: true}},
		{"MIXED", "", facts{}},
		{"ALLOCATED", "", facts{}},
		{"IDLE+COMPLETING", "", facts{}},
		{"IDLE+POWERING_UP", "", facts{waiting: true, free: true}},
		{"ALLOCATED+NOT_RESPONDING+POWERING_UP", "", facts{waiting: true, unheard: true}},
		{"IDLE+DRAIN+NOT_RESPONDING+REBOOT_REQUESTED", "kprof: x", facts{armed: true, drained: true, free: true, unheard: true}},
		{"ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 12", facts{armed: true, drained: true}},
		{"ALLOCATED+DRAIN+REBOOT_REQUESTED", "by hand", facts{armed: true, drained: true}}, // state of an armed node
		{"ALLOCATED+REBOOT_REQUESTED", "by hand", facts{}},                                 // keeps no job away
		{"IDLE+DRAIN+REBOOT_REQUESTED", "kprof: x", facts{armed: true, drained: true, free: true}},
		{"DOWN+DRAIN+REBOOT_ISSUED", "kprof: x : reboot issued", facts{waiting: true, issued: true, armed: true, drained: true, down: true, free: true}},
		{"DOWN*+REBOOT_ISSUED", "kprof: x : reboot issued", facts{waiting: true, issued: true, armed: true, down: true, free: true}},
		{"DOWN+DRAIN+REBOOT_ISSUED+PLANNED", "kernel-broker: stock@1: no", facts{waiting: true, issued: true, armed: true, drained: true, down: true, free: true}},
		{"IDLE+DRAIN", "kernel-broker: mitgcm@3: no driver", facts{drained: true, free: true}},
		{"DOWN*", "Not responding", facts{down: true, free: true}},
		{"UNKNOWN*", "", facts{down: true, free: true}},
		// slurmctld no longer accepts its boot.
		{"IDLE+DRAIN+REBOOT_ISSUED", "kprof: x : reboot issued", facts{issued: true, armed: true, drained: true, free: true}},
		{"IDLE+DRAIN+POWERING_UP+REBOOT_ISSUED", "", facts{waiting: true, issued: true, armed: true, drained: true, free: true}},
		{"IDLE+REBOOT_ISSUED*", "", facts{issued: true, free: true}}, // a job's, from 26.05 on
		{"ALLOCATED+REBOOT_ISSUED", "", facts{issued: true}},
		{"ALLOCATED+REBOOT_ISSUED+NOT_RESPONDING+POWERING_UP", "", facts{waiting: true, issued: true, armed: true, unheard: true}},
	} {
		t.Run(c.state, func(t *testing.T) {
			line := nodeHead + c.state + nodeTail
			if c.reason != "" {
				line += " Reason=" + c.reason + " [root@2026-11-20T11:46:18]"
			}
			n, ok := scontrol.ParseNode(line)
			got := facts{n.Waiting(), n.RebootIssued(), n.Armed(), n.Drained(), n.Down(), n.Free(), n.NotResponding()}
			if !slices.Equal(n.Features, []string{"ib"}) || !slices.Equal(n.Available, []string{"ib", "gpu"}) {
				t.Errorf("features %q of %q", n.Features, n.Available)
			}
			if !ok || n.Name != "n2" || n.Reason != c.reason || c.reason != "" && n.By != "root@2026-11-20T11:46:18" || got != c.want {
				t.Errorf("parseNode = %+v, %v: %+v, want %+v", n, ok, got, c.want)
			}
		})
	}
}

// Text that others write into a reason changes nothing but the reason.
func TestHostileReasons(t *testing.T) {
	for _, reason := range []string{
		`NodeName=n9 State=DOWN Reason=kprof: x [root@2026] | "quote" + \ end`,
		"State=DOWN+REBOOT_ISSUED", "kprofoo", " Reason=kprof: y", "[a@b] kprof: z",
	} {
		n, ok := scontrol.ParseNode(nodeHead + "IDLE" + nodeTail + " Reason=" + reason + " [root@2026-11-20T11:46:18]")
		if !ok || n.Name != "n2" || n.State != "IDLE" || len(n.Flags) != 0 || n.Reason != strings.TrimSpace(reason) || n.Armed() {
			t.Errorf("reason %q gives %+v", reason, n)
		}
	}
}

func TestParseReservation(t *testing.T) {
	const tail = " StartTime=2026-11-20T11:46:18 EndTime=2026-11-20T11:51:18 Duration=00:05:00 Nodes=n[1-2] NodeCnt=2 CoreCnt=4 Features=(null) " +
		"PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES TRES=cpu=4 Users=root Groups=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
	r, ours := parseReservation("ReservationName=kernel-broker-9_1" + tail)
	if !ours || !reflect.DeepEqual(r, kb.SlurmReservation{Name: "kernel-broker-9_1", Job: "9_1", Nodes: []string{"n1", "n2"}}) {
		t.Errorf("parseReservation = %+v, %v", r, ours)
	}
	for _, line := range []string{"No reservations in the system\n", "", "ReservationName=maintenance" + tail} {
		if r, ours := parseReservation(line); ours {
			t.Errorf("parseReservation(%q) = %+v", line, r)
		}
	}
}

func TestParseAdminComment(t *testing.T) {
	const ours = "kernel-broker: mitgcm requested; norequeue"
	for _, c := range []struct{ what, out, want string }{
		{"one", accountLine("12", ours), ours},
		{"none", accountLine("12", "(null)"), ""},
		{"empty", accountLine("12", ""), ""},
		{"blanks around it", accountLine("12", " "+ours+" "), ours},
		{"another line", accountLine("12", ours+"\n12          kernel-broker: lammps requested"), ours + "\n12          kernel-broker: lammps requested"},
		{"behind a site's two lines", accountLine("12", "grant=1\nproject | "+ours), "grant=1\nproject | " + ours},
		{"among others", accountLine("11", "kernel-broker: lammps requested") + accountLine("12", ours), ours},
		{"tasks that wait", accountLine("12", ours) + accountLine("12", ours), ours},
		{"tasks that do not agree", accountLine("12", ours) + accountLine("12", "kernel-broker: lammps requested"), ""},
	} {
		if got, err := parseAdminComment(c.out, 12); got != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.what, got, err, c.want)
		}
	}
	for _, out := range []string{"", "12\n", accountLine("13", ours), "JobId=12 AdminComment=" + ours + "\n", accountLine("12", strings.Repeat("x", scontrol.TextWidth))} {
		if got, err := parseAdminComment(out, 12); err == nil {
			t.Errorf("%.40q has %q", out, got)
		}
	}
}

// An invalid uid is rejected: it must not become root's, and one that overflows must not become another user's.
func TestParseJobWithInvalidUID(t *testing.T) {
	of := func(uid string) string {
		return row("1", "1", "N/A", "N/A", "N/A", "0", "RUNNING", uid, "a", "1", "1", "p", "None", "1", "1", "n1")
	}
	if j, _, err := parseJob(of("1")); err != nil || j.UID != 1 {
		t.Fatalf("%+v, %v", j, err)
	}
	for _, uid := range []string{"", "alice", "-1", "4294967296"} {
		if j, _, err := parseJob(of(uid)); err == nil {
			t.Errorf("uid %q became %d", uid, j.UID)
		}
	}
}

func FuzzParseJobs(f *testing.F) {
	f.Add("Resources", "alice", "p", "maintenance", "n[1-2]")
	f.Add("first\nsecond|third", "a|b", "\n12|12|", "ä", "n[1-")
	f.Add("", "", "", "", "n1|n2\n13|13|N/A")
	f.Fuzz(func(t *testing.T, reason, user, partition, reservation, nodes string) {
		before := row("11", "11", "N/A", "N/A", "N/A", "0", "RUNNING", "7", "bob", "1", "9", "p", "None", "1", "1", "n1")
		after := row("13", "13", "N/A", "N/A", "N/A", "0", "RUNNING", "7", "bob", "1", "9", "p", "None", "1", "1", "n3")
		jobs, err := parseJobs(before + row("12", "12", "N/A", "N/A", "N/A", "2", "PENDING", "1000", user, "2", "9", partition, reason, "1", "1", reservation, nodes) + after)
		if err != nil && strings.Contains(nodes, separator) {
			// Slurm makes no such list. Where rows begin behind it cannot be told: the poll fails, and no job is lost.
			if !errors.Is(err, kb.ErrUnavailable) || len(jobs) > 0 {
				t.Errorf("%+v, %v", jobs, err)
			}
			return
		}
		if err != nil || len(jobs) < 3 || jobs[0].ID != 11 || jobs[1].ID != 12 {
			t.Fatalf("%+v, %v", jobs, err)
		}
		if last := jobs[len(jobs)-1]; last.ID != 13 || last.Unread != "" || len(last.Nodes) != 1 || last.Nodes[0] != "n3" {
			t.Errorf("the next job is %+v", last)
		}
		if len(jobs) > 3 && !strings.ContainsAny(nodes, separator+"\n") {
			t.Errorf("%d jobs of three rows", len(jobs))
		}
	})
}

// What stands behind a node's reason, or is its kernel's own words, is none of the reason, the state or the author.
func TestTextsOfNodes(t *testing.T) {
	const when = "[root@2026-11-20T11:46:18]"
	for _, c := range []struct{ name, line, reason, by string }{
		{"a comment", nodeHead + "IDLE+DRAIN" + nodeTail + " Reason=bad DIMM " + when + " Comment=spare parts [ordered@noon]", "bad DIMM", "root@2026-11-20T11:46:18"},
		{"JSON", nodeHead + "IDLE+DRAIN" + nodeTail + ` Reason=bad DIMM ` + when + ` Extra={"a": ["x", "[bob@2026-01-01T00:00:00]"]}`, "bad DIMM", "root@2026-11-20T11:46:18"},
		{"a comment and no reason", nodeHead + "IDLE" + nodeTail + " Comment=look: Reason=none [bob@2026-01-01T00:00:00] State=DOWN", "", ""},
		{"a reason of two lines", nodeHead + "IDLE+DRAIN" + nodeTail + " Reason=bad DIMM " + when + "         see [1]", "bad DIMM", "root@2026-11-20T11:46:18"},
		{"a reason with brackets", nodeHead + "IDLE+DRAIN" + nodeTail + " Reason=slot [2@3] " + when, "slot [2@3]", "root@2026-11-20T11:46:18"},
		{"no author", nodeHead + "IDLE+DRAIN" + nodeTail + " Reason=bad DIMM Comment=x", "bad DIMM", ""},
		{"a cloud's instance", nodeHead + "IDLE" + nodeTail + " InstanceId=i-1 State=DOWN InstanceType=t Reason=x", "", ""},
		{"a kernel's words", strings.Replace(nodeHead, "OS=Linux", "OS=Linux State=DOWN Reason=x Comment=y", 1) + "IDLE" + nodeTail, "", ""},
	} {
		n, ok := scontrol.ParseNode(c.line)
		state := "IDLE"
		if !ok || n.Name != "n2" || n.State != state || n.Reason != c.reason || n.By != c.by || n.MemoryMiB != 100 {
			t.Errorf("%s: %+v, %v", c.name, n, ok)
		}
	}
	// A comment's further lines are none of a node's.
	client, _ := fake(t, `case "$*" in *"show node"*) cat <<'END'
`+nodeHead+"IDLE"+nodeTail+" Comment=first\n State=DOWN NodeName=n9\nlast\n"+strings.Replace(nodeHead, "n2", "n3", 1)+"MIXED"+nodeTail+"\nEND\n;; esac", "")
	nodes, err := client.Nodes(t.Context(), nil)
	if err != nil || len(nodes) != 2 || nodes["n2"].State != "IDLE" || nodes["n3"].State != "MIXED" {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// From 23.02 on a drain may have an end.
func TestResumeAfter(t *testing.T) {
	for text, want := range map[string]time.Time{"None": {}, "2026-11-20T12:00:00": time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)} {
		tail := strings.Replace(nodeTail, " CfgTRES=", " ResumeAfterTime="+text+" CfgTRES=", 1)
		if n, ok := scontrol.ParseNode(nodeHead + "IDLE+DRAIN" + tail + " Reason=bad DIMM [root@2026-11-20T11:46:18]"); !ok || !n.ResumeAfter.Equal(want) {
			t.Errorf("%s: %v, %v", text, n.ResumeAfter, ok)
		}
	}
}

func FuzzParseNode(f *testing.F) {
	f.Add("kprof: x [root@2026]", "spare parts", "Linux 6.1")
	f.Add("bad DIMM", "[bob@2026-01-01T00:00:00] Reason=y", "Linux State=DOWN")
	f.Fuzz(func(t *testing.T, reason, comment, system string) {
		if strings.Contains(system, " RealMemory=") {
			return // only a node's root says so, of his own node
		}
		line := strings.Replace(nodeHead, "OS=Linux", "OS="+system, 1) + "IDLE+DRAIN" + nodeTail
		n, ok := scontrol.ParseNode(line + " Reason=" + reason + " [root@2026-11-20T11:46:18] Comment=" + comment)
		if !ok || n.Name != "n2" || n.State != "IDLE" || !reflect.DeepEqual(n.Flags, []string{"DRAIN"}) || n.CPUs != 2 {
			t.Fatalf("%+v, %v", n, ok)
		}
		if plain := strings.TrimSpace(reason); !strings.ContainsAny(reason, "[]\n") && (n.Reason != plain || n.By != "root@2026-11-20T11:46:18") {
			t.Errorf("reason %q by %q, want %q", n.Reason, n.By, plain)
		}
		if bare, ok := scontrol.ParseNode(line + " Comment=" + comment); !ok || bare.Reason != "" || bare.State != "IDLE" {
			t.Errorf("without a reason: %+v, %v", bare, ok)
		}
	})
}

func FuzzParseReservation(f *testing.F) {
	f.Add("ReservationName=kernel-broker-9_1 Nodes=n[1-2]")
	f.Fuzz(func(t *testing.T, line string) {
		if r, ours := parseReservation(line); ours && !strings.HasPrefix(r.Name, kb.ReservationPrefix) {
			t.Errorf("%q is ours: %+v", line, r)
		}
	})
}
