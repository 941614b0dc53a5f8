// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// fakeLink is a stream whose state the test sets.
type fakeLink struct {
	mu      sync.Mutex
	status  link.Status
	sent    []*api.ConnectRequest
	changed chan struct{}
}

func (l *fakeLink) Status() link.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

func (l *fakeLink) Changed() <-chan struct{} { return l.changed }

func (l *fakeLink) Send(_ context.Context, message *api.ConnectRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, message)
	return nil
}

// set changes the stream.
func (l *fakeLink) set(change func(*link.Status)) {
	l.mu.Lock()
	change(&l.status)
	l.mu.Unlock()
	l.changed <- struct{}{}
}

// announced counts the reports that the node boots.
func (l *fakeLink) announced() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.sent {
		if m.GetReport().GetState() == api.SwitchState_SWITCH_STATE_EXECUTING {
			n++
		}
	}
	return n
}

func (l *fakeLink) Flush(context.Context) error { return nil }

func (l *fakeLink) JobEnding(context.Context, uint32) (bool, error) { return false, nil }

// fakeSlurmd is what the test says that it is.
type fakeSlurmd struct {
	slurmd decide.Slurmd
	err    error
}

func (s *fakeSlurmd) Observe() (decide.Slurmd, error) { return s.slurmd, s.err }

func (s *fakeSlurmd) Start(context.Context, uint64, bool) error { return nil }

func (s *fakeSlurmd) Stop(context.Context) error { return nil }

// fakeBooter does nothing, and waits where the test lets it.
type fakeBooter struct {
	link *fakeLink
	// admits and admit are the begin and the end of an Admit.
	admits, admit chan struct{}
	// executed gets how often the boot was announced before.
	executed chan int
}

func (*fakeBooter) Fetch(context.Context, decide.Target) error { return nil }
func (*fakeBooter) Load(context.Context, decide.Target) error  { return nil }
func (*fakeBooter) Unload(context.Context) error               { return nil }
func (*fakeBooter) Prepare(context.Context) error              { return nil }

func (b *fakeBooter) Admit(ctx context.Context, _ decide.Target) error {
	for _, step := range []chan struct{}{b.admits, b.admit} {
		select {
		case step <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *fakeBooter) Execute(ctx context.Context) error {
	b.executed <- b.link.announced()
	<-ctx.Done()
	return ctx.Err()
}

func newAgent(t *testing.T, l *fakeLink, s *fakeSlurmd) *Agent {
	t.Helper()
	a, err := New(Parts{
		Node: "n1", Link: l, Slurmd: s, NodeState: filepath.Join(t.TempDir(), "node.state"),
		Inventory: func() (kb.Inventory, error) { return kb.Inventory{Architecture: "x86_64"}, nil },
		Loaded:    func() (bool, error) { return false, nil },
		Settle:    func(context.Context) {},
		Sync:      func() {},
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A mark that cannot be read says nothing new of what was done to slurmd; that slurmd runs is known without it.
func TestUnreadableMark(t *testing.T) {
	s := &fakeSlurmd{slurmd: decide.Slurmd{Mark: decide.Started, Start: 4}}
	a := newAgent(t, &fakeLink{}, s)
	s.slurmd, s.err = decide.Slurmd{Running: true}, errors.New("an error of the disk")
	a.observe()
	if want := (decide.Slurmd{Running: true, Mark: decide.Started, Start: 4}); a.observed.Slurmd != want {
		t.Errorf("%+v, want %+v", a.observed.Slurmd, want)
	}
}

// What failed since the broker hung is tried at once with the next one, and what is the node's own waits on.
func TestNewStreamEndsTheWaitForTheBroker(t *testing.T) {
	l := &fakeLink{status: link.Status{Session: 1, Connected: true}}
	a := newAgent(t, l, &fakeSlurmd{})
	a.observe()
	for range 5 {
		a.hold(decide.Announce)
		a.hold(decide.Load)
	}
	if a.observe(); !a.observed.Hold[decide.Announce].After(time.Now()) {
		t.Fatal("nothing waits")
	}
	l.status.Session = 2
	if a.observe(); !a.observed.Hold[decide.Announce].IsZero() || a.fails[decide.Announce] != 0 || !a.observed.Hold[decide.Load].After(time.Now()) {
		t.Errorf("announce waits until %v, load until %v", a.observed.Hold[decide.Announce], a.observed.Hold[decide.Load])
	}
}

// A broker that comes after the announcement of a boot, while the boot is checked for the last time, gets one of its own.
func TestNewStreamBeforeTheBoot(t *testing.T) {
	for name, fresh := range map[string]bool{"that wants the same": true, "that is still silent": false} {
		t.Run(name, func(t *testing.T) {
			l := &fakeLink{changed: make(chan struct{}, 10)}
			b := &fakeBooter{link: l, admits: make(chan struct{}), admit: make(chan struct{}), executed: make(chan int, 1)}
			a := newAgent(t, l, &fakeSlurmd{})
			a.parts.Booter = b
			digest := "sha256:" + strings.Repeat("ab", 32)
			l.status = link.Status{Session: 1, Connected: true, Fresh: true, Desired: &kb.DesiredState{
				Generation: 7, Attested: true, Token: strings.Repeat("0f", 16), Running: kb.Ref{Profile: kb.StockProfile, Version: 1},
				Kernel: &kb.Kernel{Profile: "mitgcm", Version: 1, ImageDigest: digest, ImageSize: 1, BuildID: strings.Repeat("5f0c", 4), Release: "6.1", Architecture: "x86_64"},
			}}
			ctx, cancel := context.WithCancel(t.Context())
			var loop sync.WaitGroup
			loop.Go(func() { a.Run(ctx) })
			defer loop.Wait()
			defer cancel()
			until := func(what string, is func(local.NodeStatus) bool) {
				t.Helper()
				for end := time.Now().Add(20 * time.Second); !is(a.Status()); time.Sleep(2 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("waited in vain for %s: %+v", what, a.Status())
					}
				}
			}
			next := func(step chan struct{}) {
				t.Helper()
				select {
				case <-step:
				case <-time.After(20 * time.Second):
					t.Fatalf("waited in vain for the boot: %+v", a.Status())
				}
			}

			next(b.admits)
			l.set(func(s *link.Status) { s.Session, s.Fresh = 2, false })
			until("the new stream", func(s local.NodeStatus) bool { return !s.Fresh })
			if fresh {
				l.set(func(s *link.Status) { s.Fresh = true })
				until("its desired state", func(s local.NodeStatus) bool { return s.Fresh })
			}
			next(b.admit)
			if !fresh {
				until("the end of the boot", func(s local.NodeStatus) bool { return s.Doing != decide.Execute.String() })
				l.set(func(s *link.Status) { s.Fresh = true })
			}
			select {
			case n := <-b.executed:
				t.Fatalf("booted after %d announcements", n)
			case <-b.admits:
			case <-time.After(20 * time.Second):
				t.Fatal("waited in vain for another boot")
			}
			next(b.admit)
			if n := <-b.executed; n != 2 {
				t.Errorf("booted after %d announcements", n)
			}
		})
	}
}

// Results go to the broker before a reboot, as before a kexec. That may take long, so what is wanted is asked after it.
func TestRebootWaitsForResults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*link.Status)
		steps  []string
		err    error
	}{
		"still wanted": {func(*link.Status) {}, []string{"settle", "reboot"}, nil},
		"no longer":    {func(s *link.Status) { s.Desired = &kb.DesiredState{Generation: 8} }, []string{"settle"}, errSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			l := &fakeLink{status: link.Status{Fresh: true, Desired: &kb.DesiredState{Generation: 7, Reboot: true}}}
			a := newAgent(t, l, &fakeSlurmd{})
			var steps []string
			a.parts.Settle = func(context.Context) {
				steps = append(steps, "settle")
				c.change(&l.status)
			}
			a.parts.Reboot = func(context.Context) error {
				steps = append(steps, "reboot")
				return nil
			}
			err := a.do(t.Context(), decide.Action{Kind: decide.Reboot, Generation: 7}, 1)
			if !errors.Is(err, c.err) || !slices.Equal(steps, c.steps) {
				t.Errorf("%q, %v", steps, err)
			}
		})
	}
}

// TestSlurmdThatDies: each end by itself counts once, also where no poll saw slurmd run between, and the last one says why no start follows.
func TestSlurmdThatDies(t *testing.T) {
	s := &fakeSlurmd{slurmd: decide.Slurmd{Running: true, Mark: decide.Started, Start: 1}}
	a := newAgent(t, &fakeLink{}, s)
	s.slurmd.Running, s.slurmd.Died = false, true
	for n := 1; n <= decide.MaxDeaths; n++ {
		a.observe()
		a.observe()
		if len(a.observed.Deaths) != n || a.slurmdCause == "" {
			t.Fatalf("%d ends, cause %q, want %d", len(a.observed.Deaths), a.slurmdCause, n)
		}
		if n < decide.MaxDeaths {
			a.succeeded(result{action: decide.Action{Kind: decide.StartSlurmd, Start: 1}})
		}
	}
	if !strings.Contains(a.slurmdCause, "not started again") {
		t.Errorf("cause %q", a.slurmdCause)
	}
	s.slurmd.Running, s.slurmd.Died = true, false
	if a.observe(); a.slurmdCause != "" {
		t.Errorf("others have started slurmd, cause %q", a.slurmdCause)
	}
}
