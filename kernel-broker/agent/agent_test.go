// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
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

func newAgent(t *testing.T, l *fakeLink, s *fakeSlurmd) *Agent {
	t.Helper()
	a, err := New(Parts{
		Node: "n1", Link: l, Slurmd: s, NodeState: filepath.Join(t.TempDir(), "node.state"),
		Inventory: func() (kb.Inventory, error) { return kb.Inventory{}, nil },
		Loaded:    func() (bool, error) { return false, nil },
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
