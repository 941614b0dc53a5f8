// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// says sets an agent's word on run 1.
func (w *world) says(node string, state kb.RunNodeState, reason string) {
	a := w.agents[node]
	a.Runs = map[uint64]kb.RunReport{1: {State: state, Reason: reason}}
	w.agents[node] = a
}

// delivered is what the controller records when a node's files are stored.
func (w *world) delivered(node, partial string) {
	n := w.runs[1].Node(node)
	n.State, n.Partial, n.Reason = kb.RunNodeDelivered, partial, ""
}

// plain is a job without a profile whose run was recorded.
func plain(t *testing.T, nodes ...string) *world {
	w := steadyOnStock(t, nodes...)
	w.job(7, "CONFIGURING", false, nodes...)
	r := &kb.Run{ID: 1, State: kb.RunRequested, Collectors: []string{"io"}, RequestedBy: "alice", Job: kb.JobID{Job: 7}, User: "alice", Kernel: stock}
	r.Claim(w.now, nodes)
	w.runs[1] = r
	w.now = w.now.Add(time.Second)
	w.settle()
	return w
}

func (w *world) ended(job uint32) {
	delete(w.slurm.Jobs, job)
	w.now = w.now.Add(time.Second)
	w.settle()
}

func TestRun(t *testing.T) {
	type node struct {
		say     kb.RunNodeState
		reason  string
		deliver bool
		partial string
	}
	done := node{say: kb.RunNodeLooking, deliver: true}
	for _, c := range []struct {
		name   string
		nodes  []node
		state  kb.RunState
		reason string
	}{
		{"every node delivers", []node{done, done}, kb.RunComplete, ""},
		{"one is not whole", []node{done, {say: kb.RunNodeLooking, deliver: true, partial: "disk full"}}, kb.RunPartial, "n2: disk full"},
		{"one fails", []node{done, {say: kb.RunNodeFailed, reason: "no BTF"}}, kb.RunPartial, "n2: failed: no BTF"},
		{"one is lost", []node{done, {say: kb.RunNodeLooking}}, kb.RunPartial, "n2: lost: delivered nothing within 10m0s of the job's end"},
		{"one was never heard", []node{done, {}}, kb.RunPartial, "n2: lost: delivered nothing within 10m0s of the job's end"},
		{"all fail", []node{{say: kb.RunNodeFailed, reason: "no BTF"}, {say: kb.RunNodeFailed, reason: "no BTF"}}, kb.RunFailed, "n1: failed: no BTF; n2: failed: no BTF"},
		{"all are lost", []node{{}, {}}, kb.RunFailed, "n1: lost: delivered nothing within 10m0s of the job's end; n2: lost: delivered nothing within 10m0s of the job's end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := plain(t, "n1", "n2")
			w.job(7, "RUNNING", false, "n1", "n2")
			w.settle()
			if s := w.runs[1].State; s != kb.RunRunning {
				t.Fatalf("state %s while the job runs", s)
			}
			for i, n := range c.nodes {
				if n.say != "" {
					w.says(fmt.Sprintf("n%d", i+1), n.say, n.reason)
				}
			}
			w.settle()
			w.ended(7)
			for i, n := range c.nodes {
				if n.deliver {
					w.delivered(fmt.Sprintf("n%d", i+1), n.partial)
				}
			}
			w.settle()
			w.pass(w.config.RunDeliverLimit + time.Second)
			if r := w.runs[1]; r.State != c.state || r.Reason != c.reason || r.Ended.IsZero() {
				t.Errorf("state %s, ended %v: %s", r.State, r.Ended, r.Reason)
			}
		})
	}
}

// A node whose word on a run changes all the time has the run's record written
// twice in ten seconds, not with each word; what it says at last stands there.
func TestARunThatComesAndGoes(t *testing.T) {
	w := plain(t, "n1", "n2")
	written := 0
	for i := range 500 { // ten seconds
		state := kb.RunNodeLooking
		if i%2 == 1 {
			state = kb.RunNodeReady
		}
		w.says("n1", state, "")
		written += len(w.decide().Runs)
		w.now = w.now.Add(20 * time.Millisecond)
	}
	if written > 3 {
		t.Errorf("the record was written %d times", written)
	}
	w.says("n1", kb.RunNodeReady, "")
	w.pass(runStep)
	if n := w.runs[1].Node("n1"); n.State != kb.RunNodeReady {
		t.Errorf("%+v", n)
	}
	w.says("n1", kb.RunNodeLooking, "")
	w.settle()
	w.says("n1", kb.RunNodeFailed, "no BTF")
	w.settle()
	if n := w.runs[1].Node("n1"); n.State != kb.RunNodeFailed {
		t.Errorf("%+v", n)
	}
}

// A job too short for slurmctld to be polled meanwhile has run if a node saw
// it; one that nobody saw has not.
func TestShortJob(t *testing.T) {
	w := plain(t, "n1")
	w.ended(7)
	if r := w.runs[1]; r.State != kb.RunRequested || r.Ended.IsZero() {
		t.Fatalf("%+v", r)
	}
	w.says("n1", kb.RunNodeFailed, "no process of the job was seen")
	w.settle()
	if r := w.runs[1]; r.State != kb.RunFailed || !strings.Contains(r.Reason, "no process") {
		t.Errorf("%+v", r)
	}
	w = plain(t, "n1")
	w.ended(7)
	w.delivered("n1", "")
	w.settle()
	if r := w.runs[1]; r.State != kb.RunComplete || r.Began.IsZero() {
		t.Errorf("%+v", r)
	}
}

// A requeued job is another run; the profiling of the first one has ended.
func TestRequeuedJob(t *testing.T) {
	w := plain(t, "n1")
	w.job(7, "RUNNING", false, "n1")
	w.settle()
	j := w.slurm.Jobs[7]
	j.Restart, j.State = 1, "CONFIGURING"
	w.slurm.Jobs[7] = j
	w.settle()
	if w.runs[1].Ended.IsZero() {
		t.Error("the first run of the job goes on")
	}
}

func TestDesiredRuns(t *testing.T) {
	w := plain(t, "n1", "n2")
	want := []kb.DesiredRun{{Run: 1, Job: kb.JobID{Job: 7}, Collectors: []string{"io"}}}
	if got := DesiredRuns(w.runs, &kb.Node{Name: "n1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := DesiredRuns(w.runs, &kb.Node{Name: "n3"}); got != nil {
		t.Errorf("a node without the job: %+v", got)
	}
	w.job(7, "RUNNING", false, "n1", "n2")
	w.settle()
	w.ended(7)
	want[0].Ended = true
	if got := DesiredRuns(w.runs, &kb.Node{Name: "n1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("after the job: %+v", got)
	}
	w.delivered("n1", "")
	if got := DesiredRuns(w.runs, &kb.Node{Name: "n1"}); got != nil {
		t.Errorf("delivered: %+v", got)
	}
	w.pass(w.config.RunDeliverLimit + time.Second)
	if got := DesiredRuns(w.runs, &kb.Node{Name: "n2"}); got != nil || w.runs[1].State != kb.RunPartial {
		t.Errorf("given up: %+v, %s", got, w.runs[1].State)
	}
}

// A node that has yet to boot is not told to look: it would begin in vain.
func TestDesiredRunsOfABootingNode(t *testing.T) {
	runs := map[uint64]*kb.Run{1: {ID: 1, State: kb.RunRequested, Job: kb.JobID{Job: 7}, Kernel: mit, Nodes: []kb.RunNode{{Name: "n1", State: kb.RunNodeWaiting}}}}
	n := &kb.Node{Name: "n1", Running: kb.Proof{Ref: stock}, Pending: &kb.Pending{}}
	for _, c := range []struct {
		name   string
		change func()
		want   int
	}{
		{"on its way", func() {}, 0},
		{"proven", func() { n.Running.Ref, n.Pending = mit, nil }, 1},
		{"crashed in the middle", func() { n.Running.Ref, runs[1].Nodes[0].State = stock, kb.RunNodeReady }, 1},
		{"back on stock, the job has ended", func() { n.Running.Ref, runs[1].Ended = stock, noon }, 1},
		{"delivered", func() { runs[1].Nodes[0].State = kb.RunNodeDelivered }, 0},
	} {
		c.change()
		if got := DesiredRuns(runs, n); len(got) != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// The run of a job with a profile is made with its allocation, once.
func TestRunOfAnAllocation(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	a := w.ensure(7, mit, "n1")
	a.Collectors, a.Application = []string{"io", "noise"}, "MITgcm"
	w.settle()
	w.pass(time.Minute)
	if len(w.runs) != 1 || w.allocs[a.ID].Run != 1 {
		t.Fatalf("%d runs, the allocation has %d", len(w.runs), w.allocs[a.ID].Run)
	}
	if r := w.runs[1]; r.Job != a.ID || r.Kernel != mit || len(r.Nodes) != 1 || r.RequestedBy != "alice" {
		t.Errorf("%+v", r)
	}
	told := false
	for _, action := range w.settle() {
		told = told || action.Kind == CommentJob && strings.HasSuffix(action.Text, "; profiling=io,noise")
	}
	if !told {
		t.Error("the comment forgets what was asked for: a requeued job would not be profiled again")
	}
	// The run was committed, the allocation was not: the broker was killed.
	w.allocs[a.ID].Run = 0
	w.settle()
	if len(w.runs) != 1 || w.allocs[a.ID].Run != 1 {
		t.Errorf("%d runs, the allocation has %d", len(w.runs), w.allocs[a.ID].Run)
	}
}

// A user who has as many runs under way as one user may gets another that says so; the job has its kernel all the same.
func TestRunBeyondTheUsersLimit(t *testing.T) {
	for _, c := range []struct {
		name    string
		other   kb.Run
		refused bool
	}{
		{"another job of the user", kb.Run{State: kb.RunRunning, Job: kb.JobID{Job: 5}, UID: 1000}, true},
		{"one that is over", kb.Run{State: kb.RunComplete, Job: kb.JobID{Job: 5}, UID: 1000}, false},
		{"another user's", kb.Run{State: kb.RunRunning, Job: kb.JobID{Job: 5}, UID: 1001}, false},
		{"a request", kb.Run{State: kb.RunRequested, Application: "x", UID: 1000}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := steadyOnStock(t, "n1")
			w.config.RunsOfUser = 1
			c.other.ID, c.other.Requested = 1, w.now
			w.runs[1] = &c.other
			w.job(7, "CONFIGURING", true, "n1")
			w.node("n1", "ALLOCATED+POWERING_UP", "")
			a := w.ensure(7, mit, "n1")
			a.Collectors, a.UID = []string{"io"}, 1000
			w.settle()
			r := w.runs[2]
			if r == nil || w.allocs[a.ID].Run != 2 || w.allocs[a.ID].Phase == kb.PhaseFailed {
				t.Fatalf("%+v, %+v", r, w.allocs[a.ID])
			}
			if refused := r.State == kb.RunFailed && len(r.Nodes) == 0 && strings.Contains(r.Reason, "runs.of_user"); refused != c.refused {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestRequestedRun(t *testing.T) {
	for _, c := range []struct {
		name                 string
		application, profile string
		taken                bool
	}{
		{"the application", "mitGCM", "", true},
		{"another application", "LAMMPS", "", false},
		{"the profile", "", "mitgcm", true},
		{"another profile", "", "lammps", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := steadyOnStock(t, "n1")
			w.runs[1] = &kb.Run{ID: 1, State: kb.RunRequested, Collectors: []string{"io"}, RequestedBy: "root", Requested: w.now,
				Application: c.application, Profile: c.profile}
			w.job(7, "CONFIGURING", true, "n1")
			w.node("n1", "ALLOCATED+POWERING_UP", "")
			a := w.ensure(7, mit, "n1")
			a.Application = "MITgcm"
			w.settle()
			if taken := w.runs[1].Job == a.ID; taken != c.taken || len(w.runs) != 1 {
				t.Fatalf("taken %v, %d runs", taken, len(w.runs))
			}
			if !c.taken {
				w.pass(w.config.RunRequestLimit + time.Second)
				if r := w.runs[1]; r.State != kb.RunFailed || !strings.Contains(r.Reason, "no job of") {
					t.Errorf("%+v", r)
				}
				return
			}
			w.ended(7) // before it began: the request waits on
			if r := w.runs[1]; !r.Job.IsZero() || r.State != kb.RunRequested || r.Nodes != nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Whatever agents say and in which order, a run comes to an end, never leaves
// it, and is complete only if each node delivered a whole result.
func TestRunEnds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := plain(t, "n1", "n2")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"run", "end", "n1 ready", "n1 looking", "n1 failed", "n2 looking", "n1 away",
			"n1 deliver", "n2 deliver", "n2 partly", "wait"}), 0, 12).Draw(rt, "steps")
		for _, step := range append(steps, "end", "wait") {
			before := *w.runs[1].Clone()
			node, what, _ := strings.Cut(step, " ")
			switch {
			case step == "run" && before.Ended.IsZero():
				w.job(7, "RUNNING", false, "n1", "n2")
			case step == "end":
				delete(w.slurm.Jobs, 7)
			case step == "wait":
				w.now = w.now.Add(w.config.RunDeliverLimit + time.Minute)
			case what == "away":
				w.silence(node)
			case what == "deliver" || what == "partly":
				if n := w.runs[1].Node(node); !w.runs[1].Over() && !n.Settled() {
					w.delivered(node, strings.TrimPrefix(what, "deliver"))
				}
			case what != "":
				w.says(node, kb.RunNodeState(what), "reason")
			}
			w.now = w.now.Add(time.Second)
			w.settle()
			if before.Over() && !reflect.DeepEqual(&before, w.runs[1]) {
				rt.Fatalf("it was over and changed: %+v to %+v", before, w.runs[1])
			}
		}
		w.pass(w.config.RunDeliverLimit + time.Minute)
		r := w.runs[1]
		whole := true
		for _, n := range r.Nodes {
			whole = whole && n.State == kb.RunNodeDelivered && n.Partial == ""
		}
		if !r.Over() || whole != (r.State == kb.RunComplete) {
			rt.Fatalf("%s with %+v", r.State, r.Nodes)
		}
	})
}
