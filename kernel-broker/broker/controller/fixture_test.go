// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSlurm is slurmctld as a test sets it; commands change it as far as the
// tests look.
type fakeSlurm struct {
	mu       sync.Mutex
	nodes    map[string]kb.SlurmNode
	jobs     map[uint32]kb.SlurmJob
	queue    []kb.SlurmJob
	comments map[string]string
	calls    []string
	cgroup   string
	viewErr  error
	refuse   map[string]int // begins of calls that fail, and how often
	prolog   bool           // the site has one of its own
	boot     string
	slow     bool // jobs that are held stay on their nodes

	resumeTimeout time.Duration
}

func newFakeSlurm() *fakeSlurm {
	return &fakeSlurm{nodes: map[string]kb.SlurmNode{}, jobs: map[uint32]kb.SlurmJob{}, comments: map[string]string{}, refuse: map[string]int{}, boot: "one"}
}

func (f *fakeSlurm) View(context.Context, bool) (kb.SlurmView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.viewErr != nil {
		return kb.SlurmView{}, f.viewErr
	}
	return kb.SlurmView{At: time.Now(), Nodes: maps.Clone(f.nodes), Jobs: maps.Clone(f.jobs), Queue: slices.Clone(f.queue), Commented: true,
		ResumeTimeout: f.resumeTimeout}, nil
}

func (f *fakeSlurm) Nodes(context.Context, []string) (map[string]kb.SlurmNode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.nodes), nil
}

func (f *fakeSlurm) Cgroup(context.Context, uint32) (string, error) { return f.cgroup, nil }

func (f *fakeSlurm) AdminComment(_ context.Context, job uint32) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reference := fmt.Sprint(job)
	if j, has := f.jobs[job]; has {
		reference = j.Reference
	}
	return f.comments[reference], nil
}

// call notes a command and fails it when a test asked for that.
func (f *fakeSlurm) call(change func(), format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, text)
	for begin, left := range f.refuse {
		if left > 0 && strings.HasPrefix(text, begin) {
			f.refuse[begin]--
			return errors.New("refused")
		}
	}
	change()
	return nil
}

func (f *fakeSlurm) ArmReturn(_ context.Context, nodes []string) error {
	return f.call(func() {
		for _, name := range nodes {
			n := f.nodes[name]
			n.Flags = append(slices.Clone(n.Flags), "DRAIN", "REBOOT_REQUESTED")
			if n.Reason == "" {
				n.Reason = "Reboot ASAP"
			}
			f.nodes[name] = n
		}
	}, "arm %s", strings.Join(nodes, ","))
}

func (f *fakeSlurm) Label(_ context.Context, nodes []string, reason string) error {
	return f.call(func() {
		for _, name := range nodes {
			n := f.nodes[name]
			n.Reason = reason
			f.nodes[name] = n
		}
	}, "label %s %s", strings.Join(nodes, ","), reason)
}

func (f *fakeSlurm) Disarm(_ context.Context, nodes []string) error {
	return f.call(func() {
		for _, name := range nodes {
			f.nodes[name] = kb.SlurmNode{Name: name, State: f.nodes[name].State}
		}
	}, "disarm %s", strings.Join(nodes, ","))
}

func (f *fakeSlurm) Drain(_ context.Context, node, reason string, _ time.Time) error {
	return f.call(func() {
		f.nodes[node] = kb.SlurmNode{Name: node, State: f.nodes[node].State, Flags: []string{"DRAIN"}, Reason: reason}
	}, "drain %s %s", node, reason)
}

func (f *fakeSlurm) Down(_ context.Context, node, reason string, _ time.Time) error {
	return f.call(func() {
		f.nodes[node] = kb.SlurmNode{Name: node, State: "DOWN", Flags: f.nodes[node].Flags, Reason: reason}
	}, "down %s %s", node, reason)
}

func (f *fakeSlurm) StartID(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.boot, f.viewErr
}

func (f *fakeSlurm) Resume(_ context.Context, node string) error {
	return f.call(func() { f.nodes[node] = kb.SlurmNode{Name: node, State: "IDLE"} }, "resume %s", node)
}

func (f *fakeSlurm) EndWait(_ context.Context, node string) error {
	return f.call(func() { f.nodes[node] = kb.SlurmNode{Name: node, State: "IDLE"} }, "end wait %s", node)
}

func (f *fakeSlurm) SettleBoot(_ context.Context, node, reason string) error {
	return f.call(func() { f.nodes[node] = kb.SlurmNode{Name: node, State: "IDLE"} }, "settle %s %s", node, reason)
}

func (f *fakeSlurm) RestoreState(_ context.Context, node, reason, said string, _ time.Time) error {
	return f.call(func() {
		state := "IDLE"
		if said == kb.StateDown {
			state = "DOWN"
		}
		f.nodes[node] = kb.SlurmNode{Name: node, State: state, Flags: []string{"DRAIN"}, Reason: reason}
	}, "say again %s %s %s", node, reason, said)
}

func (f *fakeSlurm) Hold(_ context.Context, reference string) error {
	return f.call(func() {
		if !f.slow {
			f.drop(reference)
		}
	}, "hold %s", reference)
}

func (f *fakeSlurm) Cancel(_ context.Context, reference string) error {
	return f.call(func() { f.drop(reference) }, "cancel %s", reference)
}

func (f *fakeSlurm) HoldForUser(_ context.Context, reference string) error {
	return f.call(func() {}, "uhold %s", reference)
}

func (f *fakeSlurm) UndoPrologDrain(_ context.Context, node, by string) error {
	var stays error
	err := f.call(func() {
		if f.prolog {
			stays = fmt.Errorf("a Prolog: %w", kb.ErrFailedPrecondition)
			return
		}
		f.nodes[node] = kb.SlurmNode{Name: node, State: "IDLE"}
	}, "undo %s %s", node, by)
	return errors.Join(err, stays)
}

func (f *fakeSlurm) Requeue(_ context.Context, reference string) error {
	return f.call(func() { f.drop(reference) }, "requeue %s", reference)
}

func (f *fakeSlurm) drop(reference string) {
	maps.DeleteFunc(f.jobs, func(_ uint32, j kb.SlurmJob) bool { return j.Reference == reference })
}

func (f *fakeSlurm) Comment(_ context.Context, reference, text string) error {
	return f.call(func() { f.comments[reference] = text }, "comment %s %s", reference, text)
}

func (f *fakeSlurm) StartNow(_ context.Context, reference string) error {
	return f.call(func() {}, "start %s", reference)
}

func (f *fakeSlurm) SetFeatures(_ context.Context, nodes []string, available, active string) error {
	return f.call(func() {
		for _, name := range nodes {
			n := f.nodes[name]
			n.Available, n.Features = strings.Split(available, ","), strings.Split(active, ",")
			f.nodes[name] = n
		}
	}, "features %s %s of %s", strings.Join(nodes, ","), active, available)
}

func (f *fakeSlurm) SetNoRequeue(_ context.Context, reference string) error {
	return f.call(func() {}, "norequeue %s", reference)
}

func (f *fakeSlurm) Reserve(_ context.Context, name, reference, user string, nodes []string) error {
	return f.call(func() {}, "reserve %s %s %s %s", name, reference, user, strings.Join(nodes, ","))
}

func (f *fakeSlurm) DropReservation(_ context.Context, name string) error {
	return f.call(func() {}, "drop %s", name)
}

func (f *fakeSlurm) node(name, state, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	words := strings.Split(state, "+")
	f.nodes[name] = kb.SlurmNode{Name: name, State: words[0], Flags: words[1:], Reason: reason}
}

func (f *fakeSlurm) job(id uint32, state string, nodes ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[id] = kb.SlurmJob{ID: id, Reference: fmt.Sprint(id), State: state, User: "alice", UID: 1000, Nodes: nodes,
		NodeCount: uint32(len(nodes)), Reboot: true}
}

func (f *fakeSlurm) end(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.jobs, id)
}

func (f *fakeSlurm) seen(begin string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, call := range f.calls {
		if strings.HasPrefix(call, begin) {
			count++
		}
	}
	return count
}

// fixture is a controller on a store in memory.
type fixture struct {
	alive   func() // see Options.Alive
	t       *testing.T
	store   *memstore.Store
	catalog *catalog.Catalog
	slurm   *fakeSlurm
	c       *Controller
	stop    context.CancelFunc
	reset   func(node string) error
	tune    func(*plan.Config)
	// tuneOptions changes what the controller is made with.
	tuneOptions func(*Options)
	hang        func(context.Context) error // in a reset
	log         logText
	runs        RunLimits
	has         func(digest string, size uint64) (bool, error)
	// profile decides whose jobs may be profiled; nil: all.
	profile func(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error
	room    func() (uint64, error)    // see Options.RunRoom
	release func(digest string) error // see Options.ReleaseArtifact
}

// logText is what the controller logs.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

func (f *fixture) Reset(ctx context.Context, node string) error {
	if f.hang != nil {
		return f.hang(ctx)
	}
	return f.reset(node)
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, store: memstore.New(), slurm: newFakeSlurm(), runs: DefaultRunLimits(), reset: func(string) error { return nil }}
	quiet := slog.New(slog.DiscardHandler)
	f.catalog = catalog.New(catalog.Options{Store: f.store, Log: quiet})
	for _, p := range simProfiles() {
		p.Application, p.Description = "test", "test"
		if _, _, err := f.catalog.Apply(t.Context(), "apply-"+p.Name, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"n1", "n2"} {
		f.slurm.node(name, "IDLE", "")
	}
	t.Cleanup(func() {
		if f.stop != nil {
			f.stop()
		}
		if err := f.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// runFiles are what runs need of the artifacts.
func (f *fixture) runFiles(ctx context.Context) (map[string][]string, error) {
	return RunFiles(ctx, f.c.o.Store)
}

// commit writes records as the controller does.
func (f *fixture) commit(ctx context.Context, nodes []*kb.Node, allocs []*kb.Allocation, runs ...*kb.Run) error {
	defer f.c.toWrite()()
	return f.c.records.commit(ctx, nodes, allocs, runs...)
}

// start runs a controller, which knows what the store knows.
func (f *fixture) start() {
	f.t.Helper()
	config := plan.Defaults()
	config.RegisterDelay, config.CanReset = 10*time.Millisecond, true
	if f.tune != nil {
		f.tune(&config)
	}
	o := Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm, Reset: f, Plan: config,
		PollBusy: 5 * time.Millisecond, PollIdle: 20 * time.Millisecond, QuarantineAfter: 2, KeepJobs: 100, Runs: f.runs,
		HasArtifact: func(digest string, size uint64) (bool, error) { return f.has(digest, size) },
		Alive:       f.alive, AuthorizeProfiling: f.profile, RunRoom: f.room, ReleaseArtifact: f.release,
		Log: slog.New(slog.NewTextHandler(&f.log, nil))}
	if f.tuneOptions != nil {
		f.tuneOptions(&o)
	}
	c, err := New(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	c.begin = c.begin.Add(-2 * reconnectGrace) // agents have had their time
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 2)
	go func() { done <- c.Run(ctx) }()
	go func() { done <- c.Publish(ctx, noSnapshot) }()
	f.c, f.stop = c, func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, kb.ErrUnavailable) {
				f.t.Error(err)
			}
		}
		f.stop = nil
	}
}

// kill is kill -9 as far as the store can tell, and a start.
func (f *fixture) restart() {
	f.stop()
	f.start()
}

// fakeAgent is an agent's end of a session.
type fakeAgent struct {
	*Session
	mu   sync.Mutex
	last kb.DesiredState
	any  bool
	news []Message
	done chan struct{}
}

func (f *fixture) attach(node, profile, token, bootID string) *fakeAgent {
	f.t.Helper()
	k := simKernel(profile)
	s, err := f.c.Attach(node, kb.Boot{BootID: bootID, BuildID: k.BuildID, Release: k.Release, Token: token}, kb.Inventory{Architecture: "x86_64"}, true)
	if err != nil {
		f.t.Fatal(err)
	}
	a := &fakeAgent{Session: s, done: make(chan struct{})}
	go func() {
		for {
			select {
			case m := <-s.Messages():
				a.mu.Lock()
				if a.news = append(a.news, *m); m.Desired != nil {
					a.last, a.any = *m.Desired, true
				}
				a.mu.Unlock()
				if m.Desired != nil {
					a.told(m.Desired.Generation)
				}
			case <-s.Replaced():
				return
			case <-a.done:
				return
			}
		}
	}()
	f.t.Cleanup(func() { close(a.done) })
	return a
}

// told is the word that the gate goes by a desired state.
func (a *fakeAgent) told(generation uint64) {
	a.update(func() { a.agent.Acknowledged = generation })
}

func (a *fakeAgent) wish() (kb.DesiredState, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.any
}

// until waits for what must come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("did not come: %s", what)
}

// wished waits for a wish that is as asked.
func (a *fakeAgent) wished(t *testing.T, what string, is func(d kb.DesiredState) bool) kb.DesiredState {
	t.Helper()
	until(t, what, func() bool {
		d, any := a.wish()
		return any && is(d)
	})
	d, _ := a.wish()
	return d
}

func (f *fixture) phase(job uint32) kb.Phase {
	a, err := f.c.Job(f.t.Context(), job, nil)
	if err != nil {
		return ""
	}
	return a.Phase
}

// noSnapshot is for a broker whose host has no plugin.
func noSnapshot(context.Context, string) error { return nil }
