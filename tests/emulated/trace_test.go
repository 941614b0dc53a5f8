// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var record = flag.Bool("record", false, "write what slurmctld shows of a node into broker/observe/testdata")

// trace is what slurmctld shows of n1, each line when it changes, and why: what the test does, and what the broker has done.
type trace struct {
	*Trial
	began time.Time
	mu    sync.Mutex
	lines []string
	shown time.Time // when the last line came, if that is slurmctld's
	last  []string  // what that said
	read  int       // of the broker's log
	end   chan struct{}
	ended sync.WaitGroup
}

// changes are the fields of which each change is a line.
var changes = []string{"State", "Reason", "ResumeAfterTime", "BootTime", "SlurmdStartTime"}

var actionDone = regexp.MustCompile(`msg="action done" action=(?:"([^"]+)"|(\S+)) .*`)

// traced begins a trace.
func traced(t *testing.T) *trace {
	t.Helper()
	t.Parallel()
	r := &trace{Trial: Start(t, func(o *Options) { o.Nodes, o.BootTime = 1, 3*time.Second }), end: make(chan struct{})}
	pause(r.Ctx, registered)
	r.began = time.Now()
	r.lines = []string{"# " + r.Must("root", "scontrol", "--version")}
	r.actions() // those before are no part of it
	r.look()
	r.ended.Go(func() {
		for {
			select {
			case <-r.end:
				return
			case <-time.After(50 * time.Millisecond):
				r.actions()
				r.look()
			}
		}
	})
	return r
}

func (r *trace) line(mark, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.shown = append(r.lines, fmt.Sprintf("%.1f %s%s", time.Since(r.began).Seconds(), mark, text)), time.Time{}
}

// does notes why slurmctld's line changes.
func (r *trace) does(format string, args ...any) { r.line("> ", fmt.Sprintf(format, args...)) }

// fact notes what a decision knows besides the line, see observe.Facts.
func (r *trace) fact(name string) { r.line("= ", name) }

func (r *trace) scontrol(args ...string) {
	r.does("root: scontrol %s", strings.Join(args, " "))
	r.Must("root", append([]string{"scontrol"}, args...)...)
}

// look notes the line if it has changed.
func (r *trace) look() {
	out, err := r.Exec(r.Ctx, "root", "scontrol", "--oneliner", "show", "node", "n1")
	if err != nil || out.Exit != 0 {
		return // it is stopped, or away for a moment
	}
	text := strings.TrimSpace(out.Stdout)
	var now []string
	for _, name := range changes {
		now = append(now, fields(strings.ReplaceAll(text, " Reason=", "\nReason="))[name])
	}
	if slices.Equal(now, r.last) {
		return
	}
	r.last = now
	r.line("", text)
	r.shown = time.Now()
}

// actions notes what the broker has done since.
func (r *trace) actions() {
	text, err := os.ReadFile(r.Path("var/log/kernel-broker/broker.log"))
	if err != nil {
		return
	}
	if end := bytes.LastIndexByte(text, '\n') + 1; end > r.read {
		for _, found := range actionDone.FindAllSubmatch(text[r.read:end], -1) {
			if !r.began.IsZero() && r.read > 0 {
				r.done(string(found[1]) + string(found[2]))
			}
		}
		r.read = end
	}
}

// logged is how long after its effect is seen the broker may log that it has done something.
const logged = 500 * time.Millisecond

// done notes what the broker has done, before what that brought about.
func (r *trace) done(action string) {
	shown := r.shown
	r.does("broker: %s", action)
	if end := len(r.lines) - 1; time.Since(shown) < logged {
		r.lines[end-1], r.lines[end] = r.lines[end], r.lines[end-1]
		r.shown = shown
	}
}

// keep ends the trace and writes it.
func (r *trace) keep(name string) {
	close(r.end)
	r.ended.Wait()
	r.actions()
	r.look()
	version := r.Trial.Cluster.Options().Slurm
	path := filepath.Join(r.Trial.Cluster.Options().Repo, "kernel-broker/broker/observe/testdata", version, name+".trace")
	r.OK(os.MkdirAll(filepath.Dir(path), 0o755))
	r.OK(os.WriteFile(path, []byte(strings.Join(r.lines, "\n")+"\n"), 0o644))
}

// running is a job on n1 with its kernel, whose return is armed.
func (r *trace) running() (id string) {
	r.does("alice: sbatch --kernel-profile=mitgcm")
	id = r.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	r.Wait(Limit, "the job's step", func() bool { return len(r.Records("alice", id)) == 1 })
	r.Wait(Limit, "the return to be armed", func() bool { return strings.Contains(r.NodeState("n1")["State"], "REBOOT_REQUESTED") })
	return id
}

func (r *trace) ends(id string) {
	r.does("the job ends")
	r.LetGo("alice", id)
	r.WaitJob(id, "COMPLETED")
}

func TestTraces(t *testing.T) {
	if !*record {
		t.Skip("it records, with -args -record")
	}
	t.Run("Job", traceJob)
	t.Run("DrainInSwitch", traceDrainInSwitch)
	t.Run("DrainTakenBack", traceDrainTakenBack)
	t.Run("Reboot", traceReboot)
	t.Run("DownAndBack", traceDownAndBack)
}

func traceJob(t *testing.T) {
	r := traced(t)
	r.ends(r.running())
	r.Settled(Limit, "n1")
	r.keep("job-and-return")
}

func traceDrainInSwitch(t *testing.T) {
	r := traced(t)
	r.does("alice: sbatch --kernel-profile=mitgcm")
	id := r.Sbatch("alice", "4", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	r.Wait(Limit, "n1 in its switch", func() bool { return r.inSwitch("n1") })
	pause(r.Ctx, 2*time.Second) // it has no kernel
	r.scontrol("update", "nodename=n1", "state=drain", "reason=bad fan")
	r.Wait(Limit, "n1 on stock, idle and drained", func() bool {
		return (r.Over(id) || r.Job(id)["JobState"] == "PENDING") && r.homeAndDrained("n1", "bad fan")
	}, func() string { return r.NodeLine("n1") })
	r.scontrol("update", "nodename=n1", "state=resume")
	r.Settled(Limit, "n1")
	r.keep("drain-in-switch")
}

func traceDrainTakenBack(t *testing.T) {
	r := traced(t)
	id := r.running()
	r.scontrol("update", "nodename=n1", "state=drain", "reason=bad DIMM")
	pause(r.Ctx, 3*time.Second) // for the broker to see it
	r.scontrol("update", "nodename=n1", "state=resume")
	r.Wait(Limit, "the return to be armed again", func() bool { return strings.Contains(r.NodeState("n1")["State"], "REBOOT_REQUESTED") })
	r.ends(id)
	r.Settled(Limit, "n1")
	r.keep("drain-taken-back")
}

func traceReboot(t *testing.T) {
	r := traced(t)
	before := r.Node("n1").BootID()
	r.scontrol("reboot", "ASAP", "nextstate=resume", "reason=kernel security update", "n1")
	r.Wait(Limit, "the next boot", func() bool { return r.Node("n1").BootID() != before })
	r.Settled(Limit, "n1")
	r.keep("administrators-reboot")
}

func traceDownAndBack(t *testing.T) {
	r := traced(t)
	id := r.running()
	r.scontrol("update", "nodename=n1", "state=down", "reason=smoke in rack 7")
	r.Wait(Limit, "the job to be thrown off", func() bool { return r.Job(id)["JobState"] != "RUNNING" })
	r.fact("thrown off")
	r.Try("alice", "scancel", id)
	r.Wait(Limit, "n1 down and on stock", func() bool { return r.on("n1", "stock") && strings.HasPrefix(r.NodeState("n1")["State"], "DOWN") })
	pause(r.Ctx, holdLimit)
	r.scontrol("update", "nodename=n1", "state=resume")
	r.Settled(Limit, "n1")
	r.keep("down-and-back")
}
