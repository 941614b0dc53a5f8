// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// gated is a slurmctld whose looks end when a test says so.
type gated struct {
	*fakeSlurm
	mu       sync.Mutex
	began    int
	under    int // at this time
	most     int // at a time
	comments []bool
	gate     chan error
}

func newGated() *gated { return &gated{fakeSlurm: newFakeSlurm(), gate: make(chan error)} }

// View names the look in the job it shows.
func (g *gated) View(_ context.Context, comments bool) (kb.SlurmView, error) {
	g.mu.Lock()
	g.began++
	g.under++
	g.most = max(g.most, g.under)
	g.comments = append(g.comments, comments)
	view := kb.SlurmView{Queue: []kb.SlurmJob{{ID: uint32(g.began)}}}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.under--
	}()
	return view, <-g.gate
}

// asked is what somebody was told.
type asked struct {
	look uint32
	err  error
}

// ask has many ask, who are told in answers.
func ask(ctx context.Context, l *polls, many int, comments bool) <-chan asked {
	answers := make(chan asked, many)
	for range many {
		go func() {
			view, err := l.take(ctx, comments)
			if err != nil {
				answers <- asked{0, err}
				return
			}
			answers <- asked{view.Queue[0].ID, nil}
		}()
	}
	synctest.Wait()
	return answers
}

func (g *gated) expect(t *testing.T, answers <-chan asked, many int, look uint32, err error) {
	t.Helper()
	synctest.Wait()
	if len(answers) != many {
		t.Fatalf("%d answers, not %d", len(answers), many)
	}
	for range many {
		if a := <-answers; a.look != look || !errors.Is(a.err, err) {
			t.Fatalf("told of look %d, %v, not of look %d, %v", a.look, a.err, look, err)
		}
	}
}

// Nobody is told what was seen before he asked, and all who wait wait for one look.
func TestPollsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		l := newPolls(g.View)
		first := ask(t.Context(), l, 1, false)
		others := ask(t.Context(), l, 50, false)
		commented := ask(t.Context(), l, 50, true)
		g.expect(t, first, 0, 0, nil)
		g.gate <- nil
		g.expect(t, first, 1, 1, nil)
		g.expect(t, others, 0, 0, nil)
		last := ask(t.Context(), l, 1, false)
		g.gate <- nil
		g.expect(t, others, 50, 2, nil)
		g.expect(t, commented, 50, 2, nil)
		g.gate <- nil
		g.expect(t, last, 1, 3, nil)
		if g.most != 1 || g.began != 3 || !slices.Equal(g.comments, []bool{false, true, false}) {
			t.Errorf("%d looks, %d at a time, comments %v", g.began, g.most, g.comments)
		}
	})
}

func TestErrorOfALookReachesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		l := newPolls(g.View)
		first, others := ask(t.Context(), l, 1, false), ask(t.Context(), l, 20, false)
		away := errors.New("slurmctld is away")
		g.gate <- away
		g.expect(t, first, 1, 0, away)
		g.gate <- away
		g.expect(t, others, 20, 0, away)
		// The next is a new look, and not the old error.
		again := ask(t.Context(), l, 1, false)
		g.gate <- nil
		g.expect(t, again, 1, 3, nil)
	})
}

// Who goes away takes nothing from the others, and a look that nobody awaits
// nothing from those who ask later.
func TestWhoLeavesEndsNobodysLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		l := newPolls(g.View)
		going, leave := context.WithCancel(t.Context())
		first := ask(t.Context(), l, 1, false)
		gone, stays := ask(going, l, 3, false), ask(t.Context(), l, 2, false)
		g.gate <- nil
		g.expect(t, first, 1, 1, nil)
		leave() // the look of theirs is under way
		g.expect(t, gone, 3, 0, context.Canceled)
		g.expect(t, stays, 0, 0, nil)
		g.gate <- nil
		g.expect(t, stays, 2, 2, nil)

		going, leave = context.WithCancel(t.Context())
		alone, due := ask(going, l, 1, false), ask(going, l, 2, true)
		leave()
		g.expect(t, alone, 1, 0, context.Canceled)
		g.expect(t, due, 2, 0, context.Canceled)
		next := ask(t.Context(), l, 1, false)
		g.gate <- nil
		g.expect(t, next, 0, 0, nil)
		g.gate <- nil
		g.expect(t, next, 1, 4, nil)
		if g.most != 1 || g.began != 4 || g.under != 0 {
			t.Errorf("%d looks, %d at a time, %d under way", g.began, g.most, g.under)
		}
	})
}

// A hundred prologs at once are one load on slurmctld.
func TestManyPrologsTakeOnePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		g := newGated()
		c, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: g, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				id := kb.JobID{Job: uint32(100 + i)}
				_, err := c.Ensure(t.Context(), Request{ID: id, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n1"}})
				if i%2 == 0 {
					_, err = c.BeginRun(t.Context(), id)
				}
				if !errors.Is(err, kb.ErrNotFound) {
					t.Error(fmt.Errorf("job %s: %w", id, err))
				}
			})
		}
		done := make(chan struct{})
		go func() {
			all.Wait()
			close(done)
		}()
		for running := true; running; {
			synctest.Wait() // whoever can ask has asked
			select {
			case g.gate <- nil:
			case <-done:
				running = false
			}
		}
		// The first who asked, all others; and the same for their runs.
		if g.most != 1 || g.began > 4 {
			t.Errorf("%d looks, %d at a time", g.began, g.most)
		}
	})
}
