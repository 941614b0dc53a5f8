// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func run(job, restart uint32) kb.JobID { return kb.JobID{Job: job, Restart: restart} }

// Jobs begin in the order in which they first asked; one that asks no more holds up nobody, and one that is requeued keeps its
// place.
func TestTurns(t *testing.T) {
	now := time.Unix(1000, 0)
	l := New(1)
	ask := func(id kb.JobID, under, want int) {
		t.Helper()
		if ahead, _ := l.Ask(id, under, now); ahead != want {
			t.Errorf("%v: %d ahead, want %d", id, ahead, want)
		}
		now = now.Add(time.Second)
	}
	ask(run(7, 0), 0, -1)
	l.Leave(7)
	ask(run(8, 0), 1, 0)
	ask(run(9, 0), 1, 1)
	ask(run(9, 0), 0, 1) // its turn is not the first one's
	ask(run(8, 1), 1, 0) // requeued
	if l.Ahead(run(8, 0), now) != -1 || l.Ahead(run(9, 0), now) != 1 || !l.Waiting(now)[run(8, 1)] || len(l.Waiting(now)) != 2 {
		t.Errorf("waiting %v", l.Waiting(now))
	}
	ask(run(8, 1), 0, -1)
	now = now.Add(askedLately)
	ask(run(9, 0), 0, -1) // job 8 asks no more
	now = now.Add(placeKept + time.Second)
	ask(run(10, 0), 1, 0)
	if len(l.places) != 1 {
		t.Errorf("%d places are kept", len(l.places))
	}
}

func TestWaitOfOneRun(t *testing.T) {
	now := time.Unix(1000, 0)
	l := New(1)
	l.Ask(run(8, 0), 1, now)
	if _, waited := l.Ask(run(8, 0), 1, now.Add(time.Minute)); waited != time.Minute {
		t.Errorf("waited %v", waited)
	}
	if _, waited := l.Ask(run(8, 1), 1, now.Add(time.Minute)); waited != 0 {
		t.Errorf("the next run waited %v", waited)
	}
	if ahead, _ := New(0).Ask(run(8, 0), 100, now); ahead != -1 {
		t.Error("a line without a bound")
	}
}

// A user is told once of each place.
func TestNews(t *testing.T) {
	l := New(1)
	l.Ask(run(8, 0), 1, time.Unix(1000, 0))
	if !l.News(run(8, 0), "one") {
		t.Error("nothing was said yet")
	}
	l.Said(run(8, 0), "one")
	if l.News(run(8, 0), "one") || !l.News(run(8, 0), "two") || !l.News(run(8, 1), "one") {
		t.Error("said again, or not at all")
	}
}
