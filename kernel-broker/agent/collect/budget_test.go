// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// budgetedJob is a job with invented CPU time and cost.
type budgetedJob struct {
	c     *budget
	share float64
	cpus  int
	seen  usage
	// turned is the total cost of attaching and detaching. span, turn and away are the maximum costs of one span between
	// decisions, one change, and one pause.
	turned, span, turn, away time.Duration
	paused                   time.Duration
	step                     budgetStep
	turns                    int
	looked                   time.Duration
}

func newBudgetedJob(share float64, cpus int) *budgetedJob {
	c := newBudget(share, cpus)
	return &budgetedJob{c: c, share: share, cpus: cpus, step: c.start()}
}

// base is the CPU time without collectors.
func (w *budgetedJob) base() time.Duration { return w.seen.Job - w.seen.Cost }

// goOn advances to the next decision, which is late. The job uses busy CPUs; observing costs dear times its own time,
// and a pause costs the fraction left of that.
func (w *budgetedJob) goOn(busy, dear, left float64, late, turn time.Duration, chance float64) {
	span := w.step.Ask + late
	if !w.step.Observe {
		dear *= left
	} else {
		w.looked += span
	}
	used := time.Duration(busy * float64(span))
	cost := time.Duration(float64(used) * dear / (1 + dear))
	w.seen.At += span
	w.seen.Job += used
	w.seen.Cost += cost
	before := w.step.Observe
	if before {
		w.span, w.paused = max(w.span, cost), 0
	} else {
		w.paused += cost
		w.away = max(w.away, w.paused)
	}
	w.step = w.c.decide(w.seen, chance)
	if w.step.Observe != before {
		w.turns++
		w.turned += turn
		w.turn = max(w.turn, turn)
		w.c.turned(turn)
	}
}

// over is the cost beyond the earned credit.
func (w *budgetedJob) over() time.Duration {
	return w.seen.Cost + w.turned - grant - time.Duration(w.share*float64(w.base()))
}

// slack is the permitted overrun: cost between two decisions cannot be avoided.
func (w *budgetedJob) slack() time.Duration { return w.span + 2*w.turn + w.away + time.Microsecond }

func TestOverheadOfJobs(t *testing.T) {
	const second = 100 // of steps, at least
	for name, c := range map[string]struct {
		share        float64
		busy, dear   float64
		turn         time.Duration
		least, most  float64 // share of the observed time
		noTurn, last bool
	}{
		"costs nothing":              {share: 0.04, busy: 1, dear: 0, least: 1, most: 1, noTurn: true, last: true},
		"costs what is allowed":      {share: 0.04, busy: 1, dear: 0.039, least: 1, most: 1, noTurn: true, last: true},
		"so on 128 CPUs":             {share: 0.04, busy: 128, dear: 0.039, least: 1, most: 1, noTurn: true, last: true},
		"does not use a CPU":         {share: 0.04, busy: 0, dear: 3, least: 1, most: 1, noTurn: true, last: true},
		"costs twice as much":        {share: 0.04, busy: 1, dear: 0.08, least: 0.4, most: 0.6},
		"nothing but calls":          {share: 0.04, busy: 1, dear: 2.4, least: 0.02, most: 0.08},
		"nothing but calls, 64 CPUs": {share: 0.04, busy: 64, dear: 2.4, least: 0.02, most: 0.08},
		"dear to attach":             {share: 0.04, busy: 1, dear: 2.4, turn: 10 * time.Millisecond, least: 0.005, most: 0.08},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBudgetedJob(c.share, max(1, int(c.busy)))
			for range 100 * second {
				w.goOn(c.busy, c.dear, 0, 0, c.turn, 0.5)
			}
			looked := float64(w.looked) / float64(w.seen.At)
			if looked < c.least || looked > c.most || c.noTurn && w.turns > 0 || c.last && !w.step.Observe {
				t.Errorf("active for %.3f of %v, with %d turns", looked, w.seen.At, w.turns)
			}
			if over := w.over(); over > w.slack() {
				t.Errorf("%v more than was earned", over)
			}
		})
	}
}

// For any job and any delay of decisions, the cost exceeds the credit by at most one span between two decisions.
func TestBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.IntRange(1, 128).Draw(t, "cpus")
		w := newBudgetedJob(rapid.Float64Range(0.001, 0.5).Draw(t, "share"), cpus)
		left := rapid.Float64Range(0, 0.0005).Draw(t, "left")
		for range rapid.IntRange(1, 30).Draw(t, "phases") {
			busy := rapid.Float64Range(0, float64(cpus)).Draw(t, "busy")
			dear := rapid.Float64Range(0, 5).Draw(t, "dear")
			turn := time.Duration(rapid.IntRange(0, 20).Draw(t, "turn")) * time.Millisecond
			for range rapid.IntRange(1, 50).Draw(t, "steps") {
				late := time.Duration(rapid.IntRange(0, 30).Draw(t, "late")) * time.Millisecond
				w.goOn(busy, dear, left, late, turn, rapid.Float64Range(0, 0.999).Draw(t, "chance"))
				if w.step.Ask < leastAsk || w.step.Ask > 2*mostBudgetPause {
					t.Fatalf("ask again after %v", w.step.Ask)
				}
				if over := w.over(); over > w.slack() {
					t.Fatalf("%v more than was earned, the dearest span was %v", over, w.span)
				}
			}
		}
	})
}

// A job that becomes free of cost is observed again, and then all the time.
func TestRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newBudgetedJob(0.04, 4)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			w.goOn(rapid.Float64Range(0, 4).Draw(t, "busy"), rapid.Float64Range(0, 5).Draw(t, "dear"), 0, 0, time.Millisecond, 0.5)
		}
		// One CPU earns 40 ms a second, which soon pays for the costliest span on four.
		until := w.seen.At + 2*mostBudgetPause + time.Duration(float64(w.slack())/0.04)
		for w.seen.At < until {
			w.goOn(1, 0, 0, 0, time.Millisecond, 0.5)
		}
		turns := w.turns
		for range 100 {
			w.goOn(1, 0.03, 0, 0, time.Millisecond, 0.5)
		}
		if !w.step.Observe || w.turns != turns {
			t.Fatalf("looks: %v, %d turns more", w.step.Observe, w.turns-turns)
		}
	})
}

// Pauses vary in length, so periodic activity is observed sooner or later.
func TestPausesVary(t *testing.T) {
	lengths := map[time.Duration]bool{}
	for tenth := range 10 {
		w := newBudgetedJob(0.04, 1)
		for w.step.Observe {
			w.goOn(1, 2, 0, 0, 0, float64(tenth)/10)
		}
		if w.step.Ask < budgetPause/2 || w.step.Ask >= 3*budgetPause/2 {
			t.Errorf("a pause of %v", w.step.Ask)
		}
		lengths[w.step.Ask] = true
	}
	if len(lengths) < 10 {
		t.Errorf("%d lengths", len(lengths))
	}
}

// After hours without cost a phase is slowed down for a while, not for hours.
func TestCreditIsBounded(t *testing.T) {
	w := newBudgetedJob(0.04, 1)
	for w.seen.At < 10*time.Hour {
		w.goOn(1, 0, 0, time.Minute, 0, 0.5)
	}
	before := w.seen.Cost
	for w.step.Observe {
		w.goOn(1, 2, 0, 0, 0, 0.5)
	}
	if cost := w.seen.Cost - before; cost > 3*time.Second {
		t.Errorf("%v until the pause", cost)
	}
}
