// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// watchable is a collector whose event rate the test sets, with a test clock: a step is a millisecond in which the job
// uses one CPU.
type watchable struct {
	fake
	p        *pace
	looks    bool
	events   uint64
	detached int
	resumed  int
	again    error
}

func (w *watchable) Events() (uint64, error) { return w.events, nil }

// Toll: the statistics already count 50 of it.
func (w *watchable) Toll() bpf.Toll { return bpf.Toll{Plain: 150, Timed: 200, Counted: 50} }
func (w *watchable) Pause() error   { w.looks = false; return nil }
func (w *watchable) Detach() error  { w.detached++; return nil }
func (w *watchable) Resume() error  { w.looks = true; w.resumed++; return w.again }

// paced is a job with one such collector.
type paced struct {
	*watchable
	now time.Time
	job uint64
	all uint64
	// tick is the interval at which the job's CPU time is accounted.
	tick uint64
}

func newPaced(t *testing.T, share float64, others ...working) *paced {
	t.Helper()
	j := &paced{watchable: &watchable{fake: fake{name: profiling.CollectIO}, looks: true}, now: time.Unix(1000, 0), tick: 1}
	m := newMeter(func() uint64 { return j.job - j.job%j.tick })
	m.enable = func() (io.Closer, error) { return io.NopCloser(nil), nil }
	j.p = newPace(share, m, m.jobNS)
	j.p.now = func() time.Time { return j.now }
	if err := j.p.start(append(others, working{profiling.CollectIO, j.watchable})); err != nil {
		t.Fatal(err)
	}
	return j
}

// run advances the time, with the given number of events per millisecond of the job's own time; each takes 400 ns of it
// while observed. The pace is asked at the given interval in milliseconds.
func (j *paced) run(t *testing.T, span time.Duration, each uint64, asked int) {
	t.Helper()
	for i := range int(span / time.Millisecond) {
		j.now = j.now.Add(time.Millisecond)
		j.job += uint64(time.Millisecond)
		here := each
		if j.looks {
			here = uint64(float64(each) / (1 + float64(each)*400e-6))
			j.events += here
		}
		j.all += here
		if i%asked == 0 && j.p.due() != nil {
			if wrong := j.p.ask(); len(wrong) > 0 {
				t.Fatalf("%+v", wrong)
			}
		}
	}
}

func (j *paced) end(t *testing.T) profiling.Coverage {
	t.Helper()
	if wrong := j.p.end(j.p.moment()); len(wrong) > 0 {
		t.Fatalf("%+v", wrong)
	}
	all := j.p.coverage("n1")
	if len(all) != 1 {
		t.Fatalf("coverage is %+v", all)
	}
	return all[0]
}

func TestCheapEventsAreCountedExactly(t *testing.T) {
	j := newPaced(t, 0.04)
	j.run(t, 10*time.Second, 90, 20) // at 400 ns each: 3.6 %
	c := j.end(t)
	if !c.Exact || c.Pauses != 0 || c.Events != j.all || c.Estimated != j.all || c.Factor() != 1 || c.ObservedNS != c.SpanNS || c.BudgetPPM != 40000 {
		t.Errorf("of %d events: %+v", j.all, c)
	}
	if j.p.account(); j.p.coverage("n1")[0].Events != c.Events {
		t.Error("the account continued after its end")
	}
}

func TestUnlimitedOverheadCountsAll(t *testing.T) {
	j := newPaced(t, 0)
	j.run(t, 10*time.Second, 2000, 20)
	if c := j.end(t); !c.Exact || c.Events != j.all || c.BudgetPPM != 0 || j.detached != 0 {
		t.Errorf("of %d events: %+v", j.all, c)
	}
}

// If events cost ten times the budget, a tenth of the time is observed, and the rest is estimated.
func TestCostlyEventsAreEstimated(t *testing.T) {
	j := newPaced(t, 0.04)
	j.run(t, time.Minute, 1000, 10) // at 400 ns each: 40 %
	c := j.end(t)
	if c.Exact || c.Pauses == 0 || uint64(j.detached) != c.Pauses || c.Events != j.events {
		t.Fatalf("of %d events: %+v", j.all, c)
	}
	if share := c.Share(); share < 0.08 || share > 0.15 {
		t.Errorf("active for %.3f of the time", share)
	}
	if off := math.Abs(float64(c.Estimated)/float64(j.all) - 1); off > 0.02 {
		t.Errorf("%d events by the estimate, there were %d", c.Estimated, j.all)
	}
	if cost := float64(c.CostNS) / float64(c.JobNS); cost > 0.045 {
		t.Errorf("cost %.3f of the job's CPU time", cost)
	}
}

// On CPUs without the kernel's tick a job's CPU time moves once a second, and most intervals see none of it: what is known
// from the others stays.
func TestCPUTimeMovesOnceASecond(t *testing.T) {
	other := &watchable{fake: fake{name: profiling.CollectSyscalls}, looks: true}
	j := newPaced(t, 0.04, working{profiling.CollectSyscalls, other})
	j.tick = uint64(time.Second)
	for range 10 * 60 * 1000 {
		if other.looks {
			other.events++
		}
		j.run(t, time.Millisecond, 1000, 1) // at 400 ns each: 40 %
	}
	j.p.account()
	cheap, dear := j.p.coverage("n1")[0], j.p.coverage("n1")[1]
	if dear.Pauses < 100 || dear.Estimated < dear.Events*3/2 {
		t.Errorf("pauses count almost nothing: %+v", dear)
	}
	if cheap.Pauses > dear.Pauses/4 {
		t.Errorf("it costs almost nothing: %+v", cheap)
	}
}

// Observation is short in busy phases and long in quiet ones: rates must not be mixed between them.
func TestPhasesAreNotMixed(t *testing.T) {
	j := newPaced(t, 0.04)
	for range 20 {
		j.run(t, 3*time.Second, 1, 10)
		j.run(t, 3*time.Second, 2500, 10)
	}
	c := j.end(t)
	if off := math.Abs(float64(c.Estimated)/float64(j.all) - 1); c.Exact || off > 0.25 {
		t.Errorf("%d events by the estimate, there were %d; seen %d in %.2f of the time", c.Estimated, j.all, c.Events, c.Share())
	}
}

// A cheap collector continues while the other one pauses, and is exact; once it becomes costly, it pauses too.
func TestCheapCollectorsStayActive(t *testing.T) {
	other := &watchable{fake: fake{name: profiling.CollectSyscalls}, looks: true}
	j := newPaced(t, 0.04, working{profiling.CollectSyscalls, other})
	j.run(t, 10*time.Second, 1000, 10)
	other.events++
	all := j.p.account()
	if c := j.p.coverage("n1"); len(all) > 0 || len(c) != 2 || !c[0].Exact || c[0].Events != 1 || c[0].Share() != 1 || c[1].Exact {
		t.Fatalf("coverage is %+v", c)
	}
	for range 2000 {
		if other.looks {
			other.events += 1000
		}
		j.run(t, time.Millisecond, 1000, 1)
	}
	if c := j.p.coverage("n1"); c[0].Exact || c[0].Pauses == 0 {
		t.Errorf("it is costly now: %+v", c[0])
	}
}

// The cost of collectors that cannot pause counts too.
func TestUnpausableCollectorsCount(t *testing.T) {
	calls := &fake{name: profiling.CollectCallCounts}
	j := newPaced(t, 0.04, working{profiling.CollectCallCounts, calls})
	j.p.meter.recent[profiling.CollectCallCounts] = profiling.Overhead{JobNS: 100, SpentNS: 3}
	j.run(t, 20*time.Second, 50, 10) // at 400 ns each: 2 %
	if c := j.end(t); c.Exact {
		t.Errorf("3 and 2 %% of allowed 4: %+v", c)
	}
}

// sampling is a collector that pauses and counts no events, as noise and callgraph are.
type sampling struct {
	fake
	looks bool
}

func (s *sampling) Pause() error  { s.looks = false; return nil }
func (s *sampling) Detach() error { return nil }
func (s *sampling) Resume() error { s.looks = true; return nil }

// Collectors that sample keep to the budget, too, and say how much of the job they saw.
func TestSamplingCollectorsKeepToTheBudget(t *testing.T) {
	for _, c := range []struct {
		spent  uint64 // percent of the job's CPU time while it observes
		paused bool
	}{{3, false}, {20, true}} {
		noise := &sampling{fake{name: profiling.CollectNoise}, true}
		j := newPaced(t, 0.04, working{profiling.CollectNoise, noise})
		j.p.meter.recent[profiling.CollectNoise] = profiling.Overhead{JobNS: 100, SpentNS: c.spent}
		looked := 0
		for range 60 * 1000 {
			if noise.looks {
				looked++
			}
			j.run(t, time.Millisecond, 0, 1)
		}
		j.p.account()
		took := float64(looked) / 60000 * float64(c.spent) / 100
		all := j.p.coverage("n1")
		if took > 0.045 || (len(all) == 2) != c.paused {
			t.Fatalf("%d %%: it took %.3f of the job's CPU time; coverage %+v", c.spent, took, all)
		}
		if !c.paused {
			continue
		}
		if got := all[0]; got.Collector != profiling.CollectNoise || got.Exact || got.Share() < 0.1 || got.Share() > 0.25 || got.CostNS == 0 || got.Factor() != 1 {
			t.Errorf("coverage %+v", got)
		}
		if !all[1].Exact { // it costs nothing
			t.Errorf("the other one paused: %+v", all[1])
		}
	}
}

// What a collector costs in a new phase of the job is known after a few windows, however many the phase before had.
func TestRecentWindowsCount(t *testing.T) {
	f := &fake{name: profiling.CollectNoise}
	sessions := []working{{f.name, f}}
	job := uint64(0)
	m := newMeter(func() uint64 { return job })
	m.enable = func() (io.Closer, error) { return io.NopCloser(nil), nil }
	window := func(spent uint64) {
		m.turn(sessions)
		job += 1000
		f.spent.NS += spent
		m.turn(sessions)
	}
	for range 100 {
		window(1)
	}
	for range 3 {
		window(200)
	}
	if share := m.share(f.name); share < 0.15 {
		t.Errorf("it takes 20 %% now, and is taken for %.1f %%", 100*share)
	}
	m.timer.Stop()
}

// A collector that cannot resume is gone, reports it, and is not asked again. Its unseen events are estimated from
// before.
func TestFailedResumeIsReported(t *testing.T) {
	j := newPaced(t, 0.04)
	j.again = errors.New("busy")
	var wrong []profiling.Partial
	for range 20000 {
		j.now, j.job = j.now.Add(time.Millisecond), j.job+uint64(time.Millisecond)
		if j.looks {
			j.events += 2000
		}
		wrong = append(wrong, j.p.ask()...)
	}
	if len(wrong) != 1 || wrong[0].Collector != profiling.CollectIO || wrong[0].Why != "it could not resume: busy" {
		t.Errorf("said %+v", wrong)
	}
	if j.resumed != 1 || j.looks || j.detached != 2 {
		t.Errorf("resumed %d times, detached %d times, looks: %v", j.resumed, j.detached, j.looks)
	}
	c := j.end(t)
	if c.Exact || c.Pauses != 1 || c.Share() > 0.02 || c.Estimated < 20*c.Events {
		t.Errorf("coverage is %+v", c)
	}
}

// A window during a pause would measure no cost.
func TestNoWindowsInPauses(t *testing.T) {
	f := &fake{name: profiling.CollectIO}
	sessions := []working{{f.name, f}}
	m := newMeter(func() uint64 { return 0 })
	m.enable = func() (io.Closer, error) { return io.NopCloser(nil), nil }
	m.turn(sessions)
	f.spent = bpf.Cost{Runs: 1000, NS: 200000}
	if price := m.price(sessions[0]); price != 200 {
		t.Errorf("a run costs %v ns in an open window", price)
	}
	m.hold(sessions)
	if m.stats != nil || m.overhead("n1")[0].Events != 1000 {
		t.Errorf("held: %+v", m.overhead("n1"))
	}
	f.spent = bpf.Cost{Runs: 1010, NS: 900000}
	m.turn(sessions)
	if m.stats != nil || m.price(sessions[0]) != 200 {
		t.Error("a window in the pause")
	}
	m.resume(sessions)
	if m.stats == nil {
		t.Error("the window due in the pause did not follow it")
	}
	// Too few runs are not significant.
	f.spent = bpf.Cost{Runs: 1015, NS: 990000}
	m.hold(sessions)
	m.resume(sessions)
	if m.price(sessions[0]) != 200 || m.stats != nil {
		t.Errorf("a run costs %v ns", m.price(sessions[0]))
	}
	m.timer.Stop()
}
