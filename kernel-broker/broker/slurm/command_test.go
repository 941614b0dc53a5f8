// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

// fake is a client of scripts. Each gets its arguments written to a log.
func fake(t *testing.T, scontrol, squeue string) (*Client, func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for name, body := range map[string]string{"scontrol": scontrol, "squeue": squeue, "scancel": scontrol} {
		text := "#!/bin/sh\nprintf '%s' \"" + name + "\" >>" + log + "\nfor a; do printf ' <%s>' \"$a\" >>" + log + "; done\necho >>" + log + "\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return New(Options{BinDir: dir, Conf: "/etc/slurm/other.conf", Limit: time.Minute}), func() string {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func TestChanges(t *testing.T) {
	hostile := "a b;$(id)`id`'\"\n--help"
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, c *Client) error
		want string
	}{
		{"arm", func(ctx context.Context, c *Client) error {
			return c.ArmReturn(ctx, []string{"n1", "n2"})
		}, "scontrol <reboot> <ASAP> <nextstate=RESUME> <n1,n2>\n"},
		{"label", func(ctx context.Context, c *Client) error { return c.Label(ctx, []string{"n1", "n2"}, hostile) }, "scontrol <update> <nodename=n1,n2> <reason=" + hostile + ">\n"},
		{"say again", func(ctx context.Context, c *Client) error {
			return c.RestoreState(ctx, "n1", hostile, kb.StateDrain, time.Time{})
		},
			"scontrol <update> <nodename=n1> <state=resume>\nscontrol <update> <nodename=n1> <state=drain> <reason=" + hostile + ">\n"},
		{"say again for a while", func(ctx context.Context, c *Client) error {
			c.now = func() time.Time { return time.Unix(1000, 0) }
			return c.RestoreState(ctx, "n1", "x", kb.StateDrain, time.Unix(1600, 0))
		}, "scontrol <update> <nodename=n1> <state=resume>\nscontrol <update> <nodename=n1> <state=drain> <reason=x> <resumeafter=600>\n"},
		{"settle boot", func(ctx context.Context, c *Client) error { return c.SettleBoot(ctx, "n1", "kprof: x") },
			"scontrol <update> <nodename=n1> <state=drain> <reason=kprof: x>\nscontrol <update> <nodename=n1> <state=resume>\n"},
		{"say again down", func(ctx context.Context, c *Client) error {
			return c.RestoreState(ctx, "n1", "x", kb.StateDown, time.Time{})
		},
			"scontrol <update> <nodename=n1> <state=resume>\nscontrol <update> <nodename=n1> <state=drain> <reason=x>\n" +
				"scontrol <update> <nodename=n1> <state=down> <reason=x>\n"},
		{"say again fail", func(ctx context.Context, c *Client) error {
			return c.RestoreState(ctx, "n1", "x", kb.StateFail, time.Time{})
		},
			"scontrol <update> <nodename=n1> <state=resume>\nscontrol <update> <nodename=n1> <state=fail> <reason=x>\n"},
		{"disarm", func(ctx context.Context, c *Client) error { return c.Disarm(ctx, []string{"n1"}) }, "scontrol <cancel_reboot> <n1>\n"},
		{"down", func(ctx context.Context, c *Client) error { return c.Down(ctx, "n1", hostile, time.Time{}) }, "scontrol <update> <nodename=n1> <state=down> <reason=" + hostile + ">\n"},
		{"drain", func(ctx context.Context, c *Client) error { return c.Drain(ctx, "n1", hostile, time.Time{}) }, "scontrol <update> <nodename=n1> <state=drain> <reason=" + hostile + ">\n"},
		{"end wait", func(ctx context.Context, c *Client) error { return c.EndWait(ctx, "n1") },
			"scontrol <update> <nodename=n1> <state=future>\nscontrol <update> <nodename=n1> <state=resume>\n"},
		{"hold", func(ctx context.Context, c *Client) error { return c.Hold(ctx, "12_3") }, "scontrol <requeuehold> <incomplete> <12_3>\n"},
		{"hold for the user", func(ctx context.Context, c *Client) error { return c.HoldForUser(ctx, "12_3") }, "scontrol <uhold> <12_3>\n"},
		{"requeue", func(ctx context.Context, c *Client) error { return c.Requeue(ctx, "12_3") }, "scontrol <requeue> <incomplete> <12_3>\n"},
		{"requeue a component", func(ctx context.Context, c *Client) error { return c.Requeue(ctx, "12+1") }, "scontrol <requeue> <incomplete> <12>\n"},
		{"hold a component", func(ctx context.Context, c *Client) error { return c.Hold(ctx, "12+1") }, "scontrol <requeuehold> <incomplete> <12>\n"},
		{"hold a component for the user", func(ctx context.Context, c *Client) error { return c.HoldForUser(ctx, "12+0") }, "scontrol <uhold> <12>\n"},
		{"cancel", func(ctx context.Context, c *Client) error { return c.Cancel(ctx, "12_3") }, "scancel <12_3>\n"},
		{"comment", func(ctx context.Context, c *Client) error { return c.Comment(ctx, "12", hostile) }, "scontrol <update> <jobid=12> <admincomment=kernel-broker: " + strings.ReplaceAll(hostile, "\n", "; ") + ">\n"},
		{"features", func(ctx context.Context, c *Client) error {
			return c.SetFeatures(ctx, []string{"n1", "n2"}, "ib,kernel=mitgcm", "ib")
		}, "scontrol <update> <nodename=n[1-2]> <availablefeatures=ib,kernel=mitgcm> <activefeatures=ib>\n"},
		{"no requeue", func(ctx context.Context, c *Client) error { return c.SetNoRequeue(ctx, "12") }, "scontrol <update> <jobid=12> <requeue=0>\n"},
		{"reserve", func(ctx context.Context, c *Client) error {
			return c.Reserve(ctx, "kernel-broker-12_3", "12_3", "alice", []string{"n1"})
		}, "scontrol <create> <reservation> <reservationname=kernel-broker-12_3> <starttime=now> <duration=1-00:00:00> <users=alice> <flags=IGNORE_JOBS,NO_HOLD_JOBS_AFTER_END> <nodes=n1>\n" +
			"scontrol <update> <jobid=12_3> <reservationname=kernel-broker-12_3> <reboot=no>\n"},
		{"start", func(ctx context.Context, c *Client) error { return c.StartNow(ctx, "12") }, "scontrol <update> <jobid=12> <starttime=now> <reboot=yes>\n"},
		{"drop", func(ctx context.Context, c *Client) error { return c.DropReservation(ctx, "kernel-broker-12_3") },
			"scontrol <delete> <reservationname=kernel-broker-12_3>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, log := fake(t, `[ "$SLURM_CONF" = /etc/slurm/other.conf ] && [ "$LC_ALL" = C ]`, "exit 9")
			if err := c.do(t.Context(), client); err != nil {
				t.Error(err)
			}
			if got := log(); got != c.want {
				t.Errorf("ran %q\nwant %q", got, c.want)
			}
			// Slurm refuses by an exit code, or on stderr with exit 0.
			for _, script := range []string{"echo 'slurm_update error: Invalid node state specified' >&2; exit 1", "echo 'n1: skipped' >&2", "echo no; exit 1"} {
				refusing, _ := fake(t, script, "")
				var refused *slurmexec.ExitError
				if err := c.do(t.Context(), refusing); !errors.As(err, &refused) {
					t.Errorf("%q gives %v", script, err)
				}
			}
			// A broker that may not act runs nothing.
			ran, overtaken := filepath.Join(t.TempDir(), "ran"), errors.New("another broker acts")
			paused, _ := fake(t, "touch "+ran, "touch "+ran)
			paused.hold = func(context.Context) (context.Context, context.CancelFunc, error) { return nil, nil, overtaken }
			if err := c.do(t.Context(), paused); !errors.Is(err, overtaken) {
				t.Errorf("paused: %v", err)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("a broker that may not act runs a command")
			}
		})
	}
}

// A reservation that was made while its job could not be tied to it is completed, if it is of the same nodes.
func TestReserveCompletesAReservation(t *testing.T) {
	for _, c := range []struct {
		nodes, tie string
		tied, ok   bool
	}{
		{"n1", "exit 0", true, true},
		{"n1", "echo 'Invalid job id specified' >&2; exit 1", true, false},
		{"n2", "exit 0", false, false},
	} {
		script := `case "$*" in
create*) echo "Reservation name already exists" >&2; exit 1 ;;
*"show reservation") echo "ReservationName=kernel-broker-12 Nodes=` + c.nodes + ` NodeCnt=1" ;;
update*) ` + c.tie + ` ;;
esac`
		client, log := fake(t, script, "exit 9")
		err := client.Reserve(t.Context(), "kernel-broker-12", "12", "alice", []string{"n1"})
		if tied := strings.Contains(log(), "<update>"); (err == nil) != c.ok || tied != c.tied {
			t.Errorf("of %s, %s: %v\n%s", c.nodes, c.tie, err, log())
		}
	}
}

// Slurm deletes no reservation that a job is tied to. A pending job is set to boot again; a running one cannot be
// changed.
func TestDropReservationUntiesItsJob(t *testing.T) {
	for waits, want := range map[string]int{"exit 0": 4, "echo 'Job is no longer pending' >&2; exit 1": 5} {
		script := `case "$*" in
"delete reservationname=kernel-broker-12_3") [ -e "$0.untied" ] || { echo "Requested reservation is in use" >&2; exit 1; } ;;
"update jobid=12_3 reservationname= reboot=yes") : >"$0.untied"; ` + waits + ` ;;
"update jobid=12_3 reservationname=") : >"$0.untied" ;;
*) exit 7 ;;
esac`
		client, log := fake(t, script, "cat <<'END'\n"+row("12", "12", "3", "N/A", "N/A", "0", "PENDING", "7", "bob", "1", "9", "p", "Reservation", "0", "kernel-broker-12_3", "")+"END")
		if err := client.DropReservation(t.Context(), "kernel-broker-12_3"); err != nil {
			t.Error(err)
		}
		if calls := strings.Count(log(), "\n"); calls != want {
			t.Errorf("%d commands:\n%s", calls, log())
		}
	}
	gone, _ := fake(t, "echo 'Invalid job id specified' >&2; exit 1", "")
	var refused *slurmexec.ExitError
	if err := gone.DropReservation(t.Context(), "kernel-broker-12_3"); !errors.As(err, &refused) {
		t.Errorf("DropReservation = %v", err)
	}
}

// A command that hangs is ended when another broker may act.
func TestCommandEndsWithTheTerm(t *testing.T) {
	client, _ := fake(t, "sleep 600", "")
	client.hold = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		return ctx, cancel, nil
	}
	if err := client.Hold(t.Context(), "1"); err == nil {
		t.Error("it is done")
	}
}

func TestBoot(t *testing.T) {
	client, log := fake(t, "echo 'Configuration data as of 2026-11-23T12:00:00'; echo 'BOOT_TIME               = 2026-11-23T11:58:01'", "exit 9")
	if boot, err := client.StartID(t.Context()); err != nil || boot != "2026-11-23T11:58:01" || log() != "scontrol <show> <config>\n" {
		t.Errorf("%q, %v, ran %q", boot, err, log())
	}
	for _, script := range []string{"echo x", "exit 1"} {
		silent, _ := fake(t, script, "exit 9")
		if boot, err := silent.StartID(t.Context()); err == nil {
			t.Errorf("%s: %q", script, boot)
		}
	}
}

func TestCommandTimeouts(t *testing.T) {
	client, _ := fake(t, "sleep 60", "sleep 60")
	client.runner.Limit = 50 * time.Millisecond
	begin := time.Now()
	if err := client.Hold(t.Context(), "1"); !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), `scontrol requeuehold incomplete took more than 50ms`) {
		t.Errorf("Hold = %v", err)
	}
	if _, err := client.View(t.Context(), false); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("View = %v", err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Hold(ctx, "1"); err == nil {
		t.Error("a cancelled call succeeds")
	}
	missing := New(Options{BinDir: t.TempDir(), Limit: time.Second})
	if err := missing.Hold(t.Context(), "1"); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("a missing program: %v", err)
	}
}

var viewRows = row("12", "12", "N/A", "N/A", "N/A", "0", "RUNNING", "1000", "alice", "1", "10", "p", "None", "1", "1", "n1") +
	row("13", "13", "N/A", "N/A", "N/A", "0", "COMPLETING", "1000", "alice", "1", "10", "p", "None", "0", "1", "n2") +
	row("14", "14", "1", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "9", "p", "Resources", "1", "1", "") +
	row("14", "14", "2", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "9", "p", "JobHeldUser", "1", "1", "") +
	row("15", "15", "N/A", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "11", "p", "Resources", "0", "1", "maintenance", "")

var viewSqueue = `case "$*" in
*--jobs=14*--Format=JobID:12,admin_comment:1100) printf '%-12s%-1100s\n' 14 'kernel-broker: mitgcm requested'; exit ;;
*--jobs=14*--format=%12A*) printf '%-12s%-512s%-512s%-256s%-16s%-16s%-24s%-64s%-64s%-64s%-24s%-8s%-16s\n' \
	14 'n[1-2]' '' 'ib&gpu' 2 4 500M '(null)' '(null)' N/A '*:*:*' N/A 0; exit ;;
*--jobs=14*--Format=JobID:12,Contiguous*) printf '%-12s%-8s%-64s%-64s%-64s\n' 14 0 N/A N/A N/A; exit ;;
*--jobs*) exit 1 ;;
esac
cat <<'END'
` + viewRows + `END`

const viewScontrol = `case "$*" in
*"show node"*) echo "NodeName=n1 State=ALLOCATED+DRAIN+REBOOT_REQUESTED NextState=RESUME Reason=kprof: x [root@2026-11-20T11:45:47]"
	echo "NodeName=n2 State=IDLE+COMPLETING" ;;
*"show reservation"*) echo "ReservationName=kernel-broker-14_1 Nodes=n1 NodeCnt=1" ;;
*"show partition"*) echo "PartitionName=p AllowGroups=ALL PriorityJobFactor=1 PriorityTier=1 State=UP"
	echo "PartitionName=urgent AllowGroups=ALL PriorityJobFactor=1 PriorityTier=10 State=UP" ;;
*) exit 1 ;;
esac`

// Slurm considers a partition's tier before a job's priority.
func TestTiers(t *testing.T) {
	lines := ""
	for _, job := range [][2]string{{"14", "p"}, {"15", "urgent"}, {"16", "p,urgent"}} {
		lines += row(job[0], job[0], "N/A", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "9", job[1], "Resources", "0", "1", "")
	}
	client, _ := fake(t, viewScontrol, "cat <<'END'\n"+lines+"END")
	view, err := client.View(t.Context(), true)
	if err != nil || len(view.Queue) != 3 {
		t.Fatalf("%+v, %v", view.Queue, err)
	}
	for i, want := range []struct{ id, tier uint32 }{{15, 10}, {16, 10}, {14, 1}} {
		if j := view.Queue[i]; j.ID != want.id || j.Tier != want.tier {
			t.Errorf("job %d with tier %d is number %d, want job %d with tier %d", j.ID, j.Tier, i, want.id, want.tier)
		}
	}
}

// Which jobs ended with a node is asked where Slurm boots one of which an administrator has said something.
func TestJobsOfFailedNodes(t *testing.T) {
	for name, c := range map[string]struct {
		state, reason, ended string
		want                 map[uint32]bool
		fails                bool
	}{
		"drained or set down": {"DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued", "7           \n12          \n", map[uint32]bool{7: true, 12: true}, false},
		"no job":              {"DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM", "", map[uint32]bool{}, false},
		"no id":               {"DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM", "7_2         \n", nil, true},
		"a return":            {"DOWN+DRAIN+REBOOT_ISSUED", "kprof: return", "7           \n", nil, false},
		"no boot":             {"DOWN+DRAIN", "bad DIMM", "7           \n", nil, false},
	} {
		client, _ := fake(t, fmt.Sprintf(`case "$*" in
*"show node"*) echo "NodeName=n1 State=%s Reason=%s [root@2026-11-20T11:45:47]" ;;
*"show reservation"*) echo "No reservations in the system" ;;
esac`, c.state, c.reason), `case "$*" in *--states=NODE_FAIL*) printf '`+c.ended+`' ;; esac`)
		view, err := client.View(t.Context(), false)
		if (err != nil) != c.fails || !maps.Equal(view.NodeFailed, c.want) {
			t.Errorf("%s: %v, %v", name, view.NodeFailed, err)
		}
	}
}

func TestView(t *testing.T) {
	client, log := fake(t, viewScontrol, viewSqueue)
	view, err := client.View(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(view.Jobs) != 2 || view.Jobs[12].Nodes[0] != "n1" || !view.Jobs[12].Holds() || view.Jobs[13].Holds() {
		t.Errorf("jobs %+v", view.Jobs)
	}
	if len(view.Queue) != 3 || view.Queue[0].ID != 15 || !view.Commented {
		t.Errorf("queue %+v", view.Queue)
	}
	if ref, ok := view.Queue[1].Requested(); !ok || ref.String() != "mitgcm" {
		t.Errorf("the first task requests %v, %v", ref, ok)
	}
	if got, want := *view.Queue[1].Demand, (kb.SlurmDemand{Required: []string{"n1", "n2"}, Features: []string{"ib", "gpu"},
		CPUs: 2, AllCPUs: 4, MemoryMiB: 500}); !reflect.DeepEqual(got, want) {
		t.Errorf("the first task requests %+v, want %+v", got, want)
	}
	if view.Queue[0].Reservation != "maintenance" || view.Queue[1].Reservation != "" {
		t.Errorf("reservations in %+v", view.Queue)
	}
	if !view.Nodes["n1"].Armed() || view.Nodes["n2"].Free() || len(view.Reservations) != 1 {
		t.Errorf("nodes %+v, reservations %+v", view.Nodes, view.Reservations)
	}
	if strings.Count(log(), "--states") != 3 || strings.Count(log(), "admin_comment") != 1 {
		t.Errorf("ran\n%s", log())
	}
	if view.NodeFailed != nil {
		t.Errorf("jobs that ended were asked for: %v", view.NodeFailed)
	}
	for name, scripts := range map[string][2]string{
		"squeue fails":       {viewScontrol, "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"},
		"scontrol fails":     {"exit 1", viewSqueue},
		"a line that is cut": {viewScontrol, "echo '12          |12'"},
	} {
		broken, _ := fake(t, scripts[0], scripts[1])
		if view, err := broken.View(t.Context(), false); err == nil {
			t.Errorf("%s: %+v", name, view)
		}
	}
}
