// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// rateSpan is the span of events before a pause from which the rate in the pause is estimated: long enough for many
// events, short enough for one phase of the job.
const rateSpan = 100 * time.Millisecond

// recheckEvery is the interval between checks of collectors that stay active in a pause.
const recheckEvery = 50 * time.Millisecond

// cheap: a collector that costs less than the budget divided by this stays active in a pause.
const cheap = 8

// pace pauses collectors when they cost the job more than the site's limit, as its budget decides, and accounts for
// unseen events. Without a limit it only accounts.
type pace struct {
	share float64
	// budget and its timer are nil if nothing is paused.
	budget   *budget
	timer    *time.Timer
	now      func() time.Time
	jobNS    func() uint64
	meter    *meter
	sessions []working
	watched  []*watched

	active, over bool
	until        time.Time // the end of the pause
	// began and last are the first and the last accounted moment.
	began, last moment
	cost        float64 // of all collectors, in nanoseconds
}

// moment in the life of a job.
type moment struct {
	at  time.Time
	job uint64
}

// watched is a collector that can pause.
type watched struct {
	working
	pauser Pauser
	// counter is nil for one that does not count its events.
	counter Counter
	// events counted by its programs, and those observed: just after the start of a pause some are counted but not
	// observed.
	events, seen uint64
	// fresh are those since the last account.
	fresh uint64
	// unseen is the estimate for past pauses, rate that for the present one, in events per nanosecond of the job's own
	// CPU time: profiling slows the job down.
	unseen, rate float64
	// older and newer are possible starts of the span for the rate.
	older, newer mark
	cost         float64
	// dear: it costs more than it may to stay active in a pause. away: it is paused. gone: it will not resume. observedFor is
	// the time without pauses.
	dear, away, gone bool
	pauses           uint64
	observedFor      time.Duration
	observedJob      uint64
}

// mark is how far everything was at a moment: events and cost of one collector,
// and the cost of all.
type mark struct {
	moment
	events   uint64
	own, all float64
}

func newPace(share float64, m *meter, jobNS func() uint64) *pace {
	return &pace{share: share, meter: m, jobNS: jobNS, now: time.Now, active: true}
}

// due says when to ask; never without a budget.
func (p *pace) due() <-chan time.Time {
	if p.timer == nil {
		return nil
	}
	return p.timer.C
}

func (p *pace) start(sessions []working) error {
	p.sessions = sessions
	p.began = p.moment()
	p.last = p.began
	var all []error
	for _, w := range sessions {
		pauser, can := w.session.(Pauser)
		if !can {
			continue
		}
		one := &watched{working: w, pauser: pauser}
		var err error
		if one.counter, can = w.session.(Counter); can {
			one.events, err = one.counter.Events()
		}
		all = append(all, err)
		one.older = mark{moment: p.began, events: one.events}
		one.newer = one.older
		p.watched = append(p.watched, one)
	}
	if p.share > 0 && len(p.watched) > 0 {
		p.budget = newBudget(p.share, nodeCPUs())
		p.timer = time.NewTimer(p.budget.start().Ask)
	}
	return errors.Join(all...)
}

// ask gets the next step and executes it. Errors concern single collectors; the others continue.
func (p *pace) ask() []profiling.Partial {
	wrong := p.account()
	changes := false
	if left := p.until.Sub(p.last.at); !p.active && left > 0 {
		p.timer.Reset(min(left, recheckEvery))
	} else {
		step := p.budget.decide(usage{
			At: p.last.at.Sub(p.began.at), Job: time.Duration(p.last.job - p.began.job), Cost: time.Duration(p.cost),
		}, rand.Float64()) //nolint:gosec // G404: spreads the pauses over time; guessing it gains nothing
		changes, p.active = step.Observe != p.active, step.Observe
		p.until = p.last.at.Add(step.Ask)
		p.timer.Reset(p.next(step))
	}
	if who := p.turning(); changes || len(who) > 0 {
		p.budget.turned(cpuTime(func() { wrong = append(wrong, p.turn(who)...) }))
	}
	return wrong
}

// next returns when to ask again: collectors that stay active in a pause may become costly.
func (p *pace) next(step budgetStep) time.Duration {
	if step.Observe {
		return step.Ask
	}
	return min(step.Ask, recheckEvery)
}

// turning returns the collectors to pause or to resume: one that costs almost nothing may continue, and stays exact.
func (p *pace) turning() []*watched {
	var all, dear []*watched
	for _, w := range p.watched {
		if w.away != p.active || w.gone {
			continue
		}
		all = append(all, w)
		// While the job's CPU time stands still, as it mostly does on CPUs without the kernel's tick, nothing new is known.
		if base := w.base(p); base > 0 {
			w.dear = w.own() > p.share/cheap*base
		}
		if w.dear {
			dear = append(dear, w)
		}
	}
	nobodyAway := len(all) == len(p.watched)
	if p.active || nobodyAway && len(dear) == 0 {
		return all
	}
	return dear
}

// own is its recent cost.
func (w *watched) own() float64 { return w.cost - w.older.own }

// base is the job's own CPU time in the same period.
func (w *watched) base(p *pace) float64 {
	return float64(p.last.job-w.older.job) - (p.cost - w.older.all)
}

func (p *pace) turn(who []*watched) []profiling.Partial {
	if p.active {
		wrong := p.resume(who)
		p.meter.resume(p.sessions)
		return wrong
	}
	p.meter.hold(p.sessions)
	for _, w := range who {
		w.away = true
		w.pauses++
		if base := w.base(p); base > 0 {
			w.rate = float64(w.events-w.older.events) / base
		}
	}
	// All stop observing before the slow detaching starts.
	return append(each(who, "pause", Pauser.Pause), each(who, "be detached", Pauser.Detach)...)
}

// resume may fail for a collector: a kernel may refuse to attach again. Its other programs must then stop too, for
// good.
func (p *pace) resume(who []*watched) []profiling.Partial {
	var wrong []profiling.Partial
	for _, w := range who {
		one := []*watched{w}
		from := mark{p.last, w.events, w.cost, p.cost}
		failed := each(one, "resume", Pauser.Resume)
		if len(failed) == 0 {
			w.older, w.newer, w.away = from, from, false
			continue
		}
		w.gone = true
		wrong = append(wrong, failed...)
		wrong = append(wrong, each(one, "pause", Pauser.Pause)...)
		wrong = append(wrong, each(one, "be detached", Pauser.Detach)...)
	}
	return wrong
}

func each(who []*watched, what string, do func(Pauser) error) []profiling.Partial {
	var wrong []profiling.Partial
	for _, w := range who {
		if err := do(w.pauser); err != nil {
			wrong = append(wrong, profiling.Partial{Collector: w.name, Why: fmt.Sprintf("it could not %s: %v", what, err)})
		}
	}
	return wrong
}

// end completes the account up to the moment at which the collectors stopped.
func (p *pace) end(at moment) []profiling.Partial {
	wrong := p.accountUpTo(at)
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	return wrong
}

func (p *pace) moment() moment { return moment{p.now(), p.jobNS()} }

// account covers the time since the last call.
func (p *pace) account() []profiling.Partial {
	if p.over {
		return nil
	}
	return p.accountUpTo(p.moment())
}

func (p *pace) accountUpTo(now moment) []profiling.Partial {
	used := now.job - p.last.job
	var wrong []profiling.Partial
	for _, w := range p.watched {
		cost, err := p.costOf(w, used)
		if err != nil {
			wrong = append(wrong, profiling.Partial{Collector: w.name, Why: err.Error()})
			continue
		}
		w.cost += cost
		p.cost += cost
	}
	for _, w := range p.sessions {
		if _, can := w.session.(Pauser); !can {
			p.cost += p.meter.share(w.name) * float64(used)
		}
	}
	for _, w := range p.watched {
		if w.away {
			w.unseen += w.rate * float64(used)
			continue
		}
		w.observedFor += now.at.Sub(p.last.at)
		w.observedJob += used
		w.sees(mark{now, w.events, w.cost, p.cost})
	}
	p.last = now
	return wrong
}

// costOf the collector since the last account, in which the job used so much.
func (p *pace) costOf(w *watched, used uint64) (float64, error) {
	if w.counter == nil {
		if w.away {
			return 0, nil
		}
		return p.meter.share(w.name) * float64(used), nil
	}
	events, err := w.counter.Events()
	if err != nil {
		return 0, err
	}
	w.fresh = events - w.events
	w.events = events
	price := 0.0
	if !w.away { // otherwise the program ends at once
		price = p.meter.price(w.working)
	}
	return float64(w.fresh) * w.counter.Toll().Of(price, p.meter.open()), nil
}

// sees records new events up to now.
func (w *watched) sees(now mark) {
	w.seen += w.fresh
	w.fresh = 0
	if now.at.Sub(w.newer.at) >= rateSpan {
		w.older, w.newer = w.newer, now
	}
}

// coverage up to the last account. One that never paused and does not count its events has none to tell of.
func (p *pace) coverage(node string) []profiling.Coverage {
	var all []profiling.Coverage
	for _, w := range p.watched {
		if w.counter == nil && w.pauses == 0 {
			continue
		}
		all = append(all, profiling.Coverage{
			Node: node, Collector: w.name, Exact: w.pauses == 0, BudgetPPM: uint64(p.share * 1e6),
			SpanNS: uint64(p.last.at.Sub(p.began.at)), ObservedNS: uint64(w.observedFor), Pauses: w.pauses,
			JobNS: p.last.job - p.began.job, ObservedJobNS: w.observedJob,
			Events: w.seen, Estimated: w.seen + uint64(w.unseen), CostNS: uint64(w.cost),
		})
	}
	return all
}

// cpuTime that this thread needs for something.
func cpuTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &before) // fails for a bad address only
	do()
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &after)
	used := func(u unix.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
	return time.Duration(used(after) - used(before))
}
