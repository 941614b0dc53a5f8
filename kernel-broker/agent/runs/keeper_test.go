// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSession writes its result when it ends, as the real one does.
type fakeSession struct {
	request Request
	ended   chan struct{}
	once    sync.Once
	why     string
	fail    error
	refused []profiling.Refusal
	// written is another link to the result file.
	written string
}

func (l *fakeSession) Ended() <-chan struct{} { return l.ended }

func (l *fakeSession) Stop(why string) {
	l.once.Do(func() {
		l.why = why
		result := profiling.Result{Format: profiling.Format, Job: l.request.Job.Job, Nodes: []profiling.Node{{Name: "n1"}}, Refused: l.refused}
		if why != "" {
			result.Partial = []profiling.Partial{{Node: "n1", Why: why}}
		}
		if slices.Contains(l.request.Collectors, "pgo") {
			result.PGO = &profiling.PGO{Archives: []profiling.Archive{{Node: "n1", Name: "counters.tar.gz"}}}
			l.fail = errors.Join(l.fail, os.WriteFile(filepath.Join(l.request.Folder, "counters.tar.gz"), []byte("counters"), 0o600))
		}
		content, err := result.JSON()
		if l.fail == nil {
			path := filepath.Join(l.request.Folder, kb.ResultFile)
			l.written = path + ".written"
			_ = os.Remove(l.written) // of an earlier look
			l.fail = errors.Join(err, os.WriteFile(path, content, 0o600), os.Link(path, l.written))
		}
		close(l.ended)
	})
}

func (l *fakeSession) Result(context.Context) (profiling.Result, error) {
	<-l.ended
	return profiling.Result{}, l.fail
}

// world is a node with a broker that records reports.
type world struct {
	t        *testing.T
	dir      string
	keeper   *Keeper
	mu       sync.Mutex
	sessions []*fakeSession
	states   []string
	got      []link.RunFile
	partial  string
	// delivers are the results of the next uploads; the last one repeats.
	delivers []error
	tries    int
	begin    error
	check    []error
	broken   error
	refused  []profiling.Refusal
	limit    time.Duration
	places   int                // 0: any number of runs
	onReport func(state string) // called before the keeper continues; may be nil
}

func (w *world) Check([]string) []error { return w.check }

func (w *world) Begin(r Request) (Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begin != nil {
		return nil, w.begin
	}
	l := &fakeSession{request: r, ended: make(chan struct{}), fail: w.broken, refused: w.refused}
	w.sessions = append(w.sessions, l)
	return l, nil
}

func (w *world) ReportRun(_ context.Context, run uint64, state kb.RunNodeState, reason string, figures []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if figures != nil {
		reason = string(figures)
	}
	w.states = append(w.states, fmt.Sprintf("%d %s %s", run, state, reason))
	if w.onReport != nil {
		w.onReport(w.states[len(w.states)-1])
	}
	return nil
}

func (w *world) DeliverRun(_ context.Context, _ string, _ uint64, files []link.RunFile, partial string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries++
	if len(w.delivers) > 0 {
		err := w.delivers[0]
		if w.delivers = w.delivers[1:]; len(w.delivers) == 0 && err != nil {
			w.delivers = []error{err}
		}
		if err != nil {
			return err
		}
	}
	w.got, w.partial = files, partial
	return nil
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir()}
	for _, dir := range []string{"cgroup", "runs"} {
		if err := os.Mkdir(filepath.Join(w.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	t.Cleanup(func() { w.keeper.Close() })
	return w
}

func (w *world) start() {
	w.keeper = New(Options{Node: "n1", Collectors: w, Broker: w, Dir: filepath.Join(w.dir, "runs"),
		Cgroups:    []string{filepath.Join(w.dir, "nowhere*"), filepath.Join(w.dir, "cgro*")},
		SlurmLimit: w.limit, MaxRuns: w.places, Log: slog.New(slog.DiscardHandler)})
}

func (w *world) cgroup() string { return filepath.Join(w.dir, "cgroup", "job_7") }

// populate adds a process to the job's cgroup or removes it.
func (w *world) populate(alive int) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.cgroup(), "cgroup.events"), fmt.Appendf(nil, "populated %d\n", alive), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		w.mu.Lock()
		ok := is()
		w.mu.Unlock()
		if ok {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Fatalf("did not come: %s; states %q, delivered %v", what, w.states, w.got)
}

func (w *world) said(text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(w.states, func(s string) bool { return strings.Contains(s, text) })
	}
}

func desired(collectors ...string) kb.DesiredRun {
	return kb.DesiredRun{Run: 3, Job: kb.JobID{Job: 7}, UID: 1000, Collectors: collectors}
}

func (w *world) desired(change func(*kb.DesiredRun)) {
	one := desired("io")
	if change != nil {
		change(&one)
	}
	w.keeper.Desire([]kb.DesiredRun{one})
}

// looking is a world whose job runs.
func looking(t *testing.T) *world {
	w := newWorld(t)
	w.desired(nil)
	w.until("it is ready", w.said("3 ready"))
	w.populate(1)
	w.until("it looks", w.said("3 looking"))
	return w
}

// atWork is whether the run is at work on a job that is there.
func (w *world) atWork() bool {
	w.keeper.mu.Lock()
	r := w.keeper.runs[3]
	w.keeper.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == kb.RunNodeLooking
}

// end ends a look with its job.
func (w *world) end(look int) {
	w.t.Helper()
	w.until("the job is seen", w.atWork)
	if _, err := os.Stat(w.cgroup()); err == nil {
		w.populate(0)
	}
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.mu.Lock()
	l := w.sessions[look]
	w.mu.Unlock()
	l.Stop("")
}

func (w *world) folders() int {
	entries, err := os.ReadDir(filepath.Join(w.dir, "runs"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(entries)
}

func TestWholeRun(t *testing.T) {
	w := newWorld(t)
	w.check = []error{errors.New("collector \"noise\": no BTF")}
	one := desired("io", "pgo")
	w.keeper.Desire([]kb.DesiredRun{one})
	w.until("it is ready, and says what will be missing", w.said("3 ready collector \"noise\": no BTF"))
	if l := w.sessions[0]; l.request.Cgroup != w.cgroup() || l.request.UID != 1000 {
		t.Errorf("request %+v", l.request)
	}
	w.populate(1)
	w.until("it looks", w.said("3 looking"))
	if got := w.keeper.busy(); len(got) != 1 {
		t.Errorf("busy %v", got)
	}
	w.populate(0)
	w.sessions[0].Stop("") // as the real one does when the job's last process ends
	w.until("that is said", w.said("3 ready the job's processes have left"))
	if got := w.keeper.busy(); len(got) != 1 {
		t.Errorf("what the broker does not have is forgotten by a boot: busy %v", got)
	}
	one.Ended = true
	w.keeper.Desire([]kb.DesiredRun{one})
	w.until("it is delivered", func() bool { return len(w.got) == 2 && w.partial == "" })
	if w.got[0].Name != kb.ResultFile || w.got[1].Name != "counters.tar.gz" || w.got[1].Size != 8 {
		t.Errorf("delivered %+v", w.got)
	}
	w.keeper.Settle(t.Context(), 5*time.Second)
	if got := w.keeper.busy(); len(got) != 0 {
		t.Errorf("busy %v", got)
	}
	w.keeper.Desire(nil)
	w.until("all is forgotten", func() bool { return w.folders() == 0 })
}

// slurmctld considers the job ended while its cgroup is still populated.
func TestJobLeavesCgroupLate(t *testing.T) {
	w := looking(t)
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.populate(0)
	w.until("it is delivered", func() bool { return len(w.got) == 1 })
}

// slurmd kills what is left of a cancelled job after KillWait, 30 s by default.
func TestJobIsKilledLate(t *testing.T) {
	for name, c := range map[string]struct {
		left    int
		partial string
	}{
		"and is gone": {0, ""},
		"and stays":   {1, whyStays},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := looking(t)
				w.desired(func(r *kb.DesiredRun) { r.Ended = true })
				time.Sleep(35 * time.Second)
				synctest.Wait()
				select {
				case <-w.sessions[0].ended:
					t.Fatal("the session ended before the job")
				default:
				}
				w.populate(c.left)
				w.until("it is delivered", func() bool { return len(w.got) == 1 })
				if w.partial != c.partial {
					t.Errorf("partial: %q", w.partial)
				}
			})
		})
	}
}

func TestJobNeverStarts(t *testing.T) {
	w := newWorld(t)
	w.desired(nil)
	w.until("it is ready", w.said("3 ready"))
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.until("there is nothing", w.said("3 failed "+errNobody.Error()))
	w.until("the folder that was made is removed", func() bool { _, err := os.Stat(w.cgroup()); return os.IsNotExist(err) })
	w.mu.Lock() // the last report may be in progress
	before := len(w.states)
	w.mu.Unlock()
	w.desired(func(r *kb.DesiredRun) { r.Ended = true }) // another broker
	w.until("it is said again", func() bool { return len(w.states) > before })
}

func TestNoCgroups(t *testing.T) {
	w := newWorld(t)
	if err := os.Remove(filepath.Join(w.dir, "cgroup")); err != nil {
		t.Fatal(err)
	}
	w.desired(nil)
	w.until("that is said, with the remedy", w.said("set CgroupPlugin=cgroup/v2"))
	if len(w.sessions) != 0 {
		t.Error("somebody looks")
	}
}

// Slurm 26.05 names the cgroup of a job by its SLUID. What is no such name is no path for the agent.
func TestCgroupBySLUID(t *testing.T) {
	const name = "s1C5M8FXCH1800"
	w := newWorld(t)
	w.desired(func(r *kb.DesiredRun) { r.Cgroup = name })
	w.until("it is ready", w.said("3 ready"))
	if got := w.sessions[0].request.Cgroup; filepath.Base(got) != name || filepath.Dir(got) != filepath.Dir(w.cgroup()) {
		t.Errorf("cgroup %q", got)
	}
	w = newWorld(t)
	w.desired(func(r *kb.DesiredRun) { r.Cgroup, r.Ended = "../../../tmp", true })
	w.until("it is refused", w.said(`3 failed cgroup "../../../tmp" of a job is no SLUID`))
}

// After a boot slurmd may start after the broker has sent the desired runs.
func TestLateCgroups(t *testing.T) {
	w := newWorld(t)
	w.keeper.Close()
	w.limit = time.Minute
	w.start()
	if err := os.Remove(filepath.Join(w.dir, "cgroup")); err != nil {
		t.Fatal(err)
	}
	w.desired(nil)
	time.Sleep(3 * checkEvery)
	if err := os.Mkdir(filepath.Join(w.dir, "cgroup"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.until("it is ready", w.said("3 ready"))
}

func TestCollectorsFailToStart(t *testing.T) {
	w := newWorld(t)
	w.begin = errors.New("no space left on device")
	w.desired(nil)
	w.until("that is said", w.said("3 failed no space left"))
	if got := w.keeper.busy(); len(got) != 0 {
		t.Errorf("busy %v", got)
	}
}

func TestDeliveries(t *testing.T) {
	t.Run("tried again", func(t *testing.T) {
		w := looking(t)
		w.delivers = []error{fmt.Errorf("x: %w", kb.ErrUnavailable), nil}
		w.end(0)
		w.until("it comes", func() bool { return len(w.got) == 1 })
	})
	t.Run("refused", func(t *testing.T) {
		w := looking(t)
		w.delivers = []error{fmt.Errorf("run 3: too large: %w", kb.ErrFailedPrecondition)}
		w.end(0)
		w.until("that is said", w.said("3 failed run 3: too large"))
	})
	t.Run("wanted no more", func(t *testing.T) {
		w := looking(t)
		w.delivers = []error{fmt.Errorf("x: %w", kb.ErrUnavailable)}
		w.end(0)
		w.keeper.Settle(t.Context(), 50*time.Millisecond) // must not block
		w.keeper.Desire(nil)
		w.until("all is forgotten", func() bool { return w.folders() == 0 })
	})
	t.Run("no result was written", func(t *testing.T) {
		w := newWorld(t)
		w.broken = errors.New("disk full")
		w.desired(nil)
		w.until("it is ready", w.said("3 ready"))
		w.populate(1)
		w.end(0)
		w.until("that is said", w.said("3 failed disk full"))
	})
}

// A job with several steps on a node without a batch script: their results are delivered as one.
func TestConsecutiveSteps(t *testing.T) {
	w := looking(t)
	w.populate(0)
	w.mu.Lock()
	w.onReport = func(state string) { // the next step starts before the keeper gives up
		if strings.Contains(state, "have left this node") {
			w.populate(1)
		}
	}
	w.mu.Unlock()
	w.sessions[0].Stop("")
	w.until("the processes have left", w.said("have left this node"))
	w.until("it looks again", func() bool { return len(w.sessions) == 2 && len(w.got) == 0 })
	w.end(1)
	w.until("both are delivered", func() bool { return len(w.got) == 1 })
	content, err := os.ReadFile(w.got[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := profiling.ParseResult(content); err != nil || len(r.Nodes) != 2 || len(r.Partial) != 1 || r.Partial[0].Why != whyLate {
		t.Errorf("%+v, %v", r, err)
	}
}

// What an earlier step's result lacks is said, too, where the job ends without another step.
func TestJobEndsAfterALateStep(t *testing.T) {
	w := looking(t)
	w.populate(0)
	w.mu.Lock()
	w.onReport = func(state string) {
		switch {
		case strings.Contains(state, "have left this node"):
			w.populate(1) // the next step is there before the collectors
		case strings.Contains(state, "3 ready"):
			w.populate(0) // and soon gone
		}
	}
	w.mu.Unlock()
	w.sessions[0].Stop("")
	w.until("the next one is followed", func() bool { return len(w.sessions) == 2 && w.states[len(w.states)-1] == "3 ready " })
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.until("it is delivered as partial", func() bool { return len(w.got) == 1 })
	if w.partial != whyLate {
		t.Errorf("partial: %q", w.partial)
	}
}

// A node that is slow, or an agent that was killed before it wrote anything: the
// job was there first.
func TestJobStartsBeforeCollectors(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(w.cgroup(), 0o755); err != nil {
		t.Fatal(err)
	}
	w.populate(1)
	w.desired(nil)
	w.until("it looks", w.said("3 looking"))
	w.end(0)
	w.until("it is delivered as partial", func() bool { return len(w.got) == 1 && w.partial == whyLate })
	content, err := os.ReadFile(w.got[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := profiling.ParseResult(content); err != nil || len(r.Partial) != 1 || r.Partial[0] != (profiling.Partial{Node: "n1", Why: whyLate}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// An agent was killed before it wrote anything and restarts too late.
func TestKilledAgentWithoutResult(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "runs", "3"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.until("the reason is not that nobody came", w.said("3 failed "+errKilled.Error()))
}

// A requested collector that failed makes the result incomplete, from the start.
func TestRefusedCollectors(t *testing.T) {
	w := newWorld(t)
	refusal := profiling.Unsupported{Collector: "noise", Reason: profiling.NoBTF, Detail: "no types"}
	w.check, w.refused = []error{&refusal}, []profiling.Refusal{{Node: "n1", Unsupported: refusal}, {Node: "n1", Part: "faults", Unsupported: refusal}}
	w.desired(nil)
	w.until("it is said before the job begins", w.said("3 ready "+refusal.Error()))
	w.populate(1)
	w.until("and while it runs", w.said("3 looking "+refusal.Error()))
	w.end(0)
	w.until("it is delivered as partial", func() bool { return len(w.got) == 1 && w.partial == "noise: no types" })
}
