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

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// row is a line in the format of squeue 22.05: fields with a width are cut or padded to it, and each is followed by the
// separator. A job without a reservation omits that field.
func row(fields ...string) string {
	if at := len(jobFields) - 2; len(fields) == len(jobFields)-1 {
		fields = slices.Insert(slices.Clone(fields), at, "(null)")
	}
	var b strings.Builder
	for i, f := range fields {
		if width := jobFields[i].width; width > 0 {
			f = fmt.Sprintf("%-*.*s", width, width, f)
		}
		b.WriteString(f + separator)
	}
	return b.String()
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
			got, err := parseJob(c.line)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("parseJob = %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
	whole := row("12", "12", "N/A", "N/A", "N/A", "2", "RUNNING", "1", "a", "2", "1", "p", "None", "1", "1", "n1")
	if _, err := parseJob(whole); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"", "12", "12|12|N/A", whole[:len(whole)-1], strings.Replace(whole, "12", "x", 1), strings.Replace(whole, "|1|a|", "||a|", 1),
		strings.Repeat("x", 100<<10)} {
		job, err := parseJob(line)
		if !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrInvalid) || len(err.Error()) > 2000 {
			t.Errorf("parseJob(%.100q) = %+v, %.200v", line, job, err)
		}
	}
}

// An unreadable node list affects only its own job, which is still listed.
func TestUnreadableNodeList(t *testing.T) {
	lines := ""
	lists := []string{"n[1-", "n1|n2", "n[1-99999999]", "n 1", "n[1-2],$(id)", "n1" + strings.Repeat(",n1", 100<<10), "n[" + strings.Repeat("1,", 50<<10)}
	for i, list := range lists {
		lines += row(fmt.Sprint(i+1), fmt.Sprint(i+1), "N/A", "N/A", "N/A", "0", "RUNNING", "1000", "alice", "2", "1", "p", "None", "1", "1", list) + "\n"
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
		if job := view.Jobs[uint32(i+1)]; job.Unread == "" || len(job.Unread) > 1000 || len(job.Nodes) > 0 || !job.Holds() || job.User != "alice" {
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
const nodeHead = "NodeName=n2 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=2 CPUTot=2 CPULoad=12.45 AvailableFeatures=(null) ActiveFeatures=(null) " +
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
		{"another line", accountLine("12", ours+"\n12          kernel-broker: lammps requested"), ours},
		{"among others", accountLine("11", "kernel-broker: lammps requested") + accountLine("12", ours), ours},
		{"tasks that wait", accountLine("12", ours) + accountLine("12", ours), ours},
		{"tasks that do not agree", accountLine("12", ours) + accountLine("12", "kernel-broker: lammps requested"), ""},
	} {
		if got, err := parseAdminComment(c.out, 12); got != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.what, got, err, c.want)
		}
	}
	for _, out := range []string{"", "12\n", accountLine("13", ours), "JobId=12 AdminComment=" + ours + "\n"} {
		if got, err := parseAdminComment(out, 12); err == nil {
			t.Errorf("%.40q has %q", out, got)
		}
	}
}

// An invalid uid is rejected: it must not become root's, and one that overflows must not become another user's.
func TestParseJobWithInvalidUID(t *testing.T) {
	fields := make([]string, len(jobFields))
	for i := range fields {
		fields[i] = "1"
	}
	if j, err := parseJob(strings.Join(fields, separator) + separator); err != nil || j.UID != 1 {
		t.Fatalf("%+v, %v", j, err)
	}
	for _, uid := range []string{"", "alice", "-1", "4294967296"} {
		fields[7] = uid
		if j, err := parseJob(strings.Join(fields, separator) + separator); err == nil {
			t.Errorf("uid %q became %d", uid, j.UID)
		}
	}
}

func FuzzParseJob(f *testing.F) {
	f.Add(row("12", "12", "N/A", "N/A", "N/A", "2", "RUNNING", "1000", "alice", "2", "4294901758", "p", "None", "1", "n[1-2]"))
	f.Add(row("12", "12", "N/A", "N/A", "N/A", "2", "RUNNING", "1000", "alice", "2", "4294901758", "p", "None", "1", "n[1-"))
	f.Add("|||||||||||||||")
	f.Fuzz(func(t *testing.T, line string) {
		job, err := parseJob(line)
		if err == nil && (job.ID == 0 || job.Reference == "" || job.Unread != "" && len(job.Nodes) > 0) {
			t.Errorf("%q is %+v", line, job)
		}
		if err != nil && (!errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrInvalid)) {
			t.Errorf("%q: %v", line, err)
		}
	})
}

func FuzzParseNode(f *testing.F) {
	f.Add(nodeHead+"IDLE+DRAIN"+nodeTail, "kprof: x [root@2026]")
	f.Fuzz(func(t *testing.T, head, reason string) {
		if strings.Contains(head, " Reason=") {
			return
		}
		bare, ok := scontrol.ParseNode(head)
		with, still := scontrol.ParseNode(head + " Reason=" + reason)
		if ok != still || bare.Name != with.Name || bare.State != with.State || !reflect.DeepEqual(bare.Flags, with.Flags) {
			t.Errorf("the reason %q turns %+v into %+v", reason, bare, with)
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
