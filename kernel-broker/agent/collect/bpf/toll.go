// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Toll is what an event costs beside what the kernel's statistics say of the
// program that it runs: the longer path of a system call, the trampoline in front
// of a function. A program that sees that a task is not the job's ends at once,
// and the toll has the whole of such a run.
type Toll struct {
	// Plain is with the statistics off, Timed with them on: then each program
	// waits for the clock at both of its ends.
	Plain, Timed time.Duration
	// Counted is what the statistics say of such a run, and so what a price by
	// them has too much beside the toll.
	Counted time.Duration
}

// Of an event of the job for which the statistics would say, or say, so many
// nanoseconds.
func (t Toll) Of(price float64, timed bool) float64 {
	toll := t.Plain
	if timed {
		toll = t.Timed
	}
	return float64(toll) + max(0, price-float64(t.Counted))
}

// Gate measures a toll: a call of ours takes the way before the programs are
// attached and after.
type Gate struct {
	call   func()
	before time.Duration
}

// Rounds of calls are too short for much to come in between.
const (
	rounds = 20
	calls  = 50
)

// NewGate times the call without the programs.
func NewGate(call func()) Gate { return Gate{call, fastest(call)} }

// Toll of the programs that are attached now, for each of so many that the call
// meets.
func (g Gate) Toll(p *Programs, programs int) Toll {
	each := func() time.Duration { return max(0, fastest(g.call)-g.before) / time.Duration(programs) }
	t := Toll{Plain: each()}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		// Kernels before 5.8; nothing has a price by the statistics then.
		t.Timed = t.Plain
		return t
	}
	defer stats.Close()
	t.Timed, t.Counted = each(), p.counted(g.call)
	return t
}

// counted is what the statistics say of a run for others than the job.
func (p *Programs) counted(call func()) time.Duration {
	runs, ns, err := p.Spent()
	if err != nil {
		return 0
	}
	least := time.Duration(0)
	for range rounds {
		for range calls {
			call()
		}
		moreRuns, moreNS, err := p.Spent()
		if err != nil || moreRuns-runs < calls {
			return 0
		}
		// The job may be at work meanwhile: its runs are longer.
		if each := time.Duration((moreNS - ns) / (moreRuns - runs)); least == 0 || each < least {
			least = each
		}
		runs, ns = moreRuns, moreNS
	}
	return least
}

// fastest is how long a call takes when nothing comes in between: the best of
// several rounds.
func fastest(call func()) time.Duration {
	best := time.Hour
	for range rounds {
		began := time.Now()
		for range calls {
			call()
		}
		best = min(best, time.Since(began))
	}
	return best / calls
}
