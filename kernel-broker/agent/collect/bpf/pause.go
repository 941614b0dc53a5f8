// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// attached is a program and the link that holds it; nil while it is detached.
type attached struct {
	name    string
	program *ebpf.Program
	link    link.Link
	// slow to detach: the kernel releases a traced function only after every CPU was elsewhere, a tenth of a second
	// each. A tracepoint is released at once.
	slow bool
}

// Pause stops all counting and detaches tracepoints, since those of system calls slow down every call of every job on
// the node. Function traces stay attached until Detach.
func (p *Programs) Pause() error {
	if err := p.count(); err != nil {
		return err
	}
	return p.detach(func(a *attached) bool { return !a.slow })
}

// Detach leaves the functions as well.
func (p *Programs) Detach() error {
	return p.detach(func(*attached) bool { return true })
}

func (p *Programs) detach(which func(*attached) bool) error {
	var all []error
	for _, a := range p.attached {
		if a.link == nil || p.wanted.Stays[a.name] || !which(a) {
			continue
		}
		all = append(all, a.link.Close())
		a.link = nil
	}
	return errors.Join(all...)
}

// Resume starts another period of observation.
func (p *Programs) Resume() error {
	if err := p.count(); err != nil {
		return err
	}
	for _, a := range p.attached {
		if a.link != nil {
			continue
		}
		again, err := link.AttachTracing(link.TracingOptions{Program: a.program})
		if err != nil {
			return fmt.Errorf("program %q: attached again: %w", a.name, err)
		}
		a.link = again
	}
	return nil
}

// count increments the period number: odd numbers observe, see job.h.
func (p *Programs) count() error {
	p.look++
	return p.Set("look", p.look)
}

// Set changes a variable of the programs while they run.
func (p *Programs) Set(name string, value any) error {
	variable := p.collection.Variables[name]
	if variable == nil {
		return fmt.Errorf("bpf object %q: no variable %q", p.wanted.Object, name)
	}
	if err := variable.Set(value); err != nil {
		return fmt.Errorf("bpf object %q: variable %q: %w", p.wanted.Object, name, err)
	}
	return nil
}

// Clock is the time by the programs' clock, in nanoseconds.
func Clock() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// ClockAt is a past moment of this process by that clock, whatever became of the host's time since.
func ClockAt(then time.Time) (uint64, error) {
	now, err := Clock()
	return now - uint64(time.Since(then)), err
}

// Toll is the cost of an event beyond the kernel's statistics for its program: the longer path of a system call, the
// trampoline of a function. For tasks outside of the job the program ends at once, and the toll includes such a run.
type Toll struct {
	// Plain is with the statistics off, Timed with them on: then each program
	// waits for the clock at both of its ends.
	Plain, Timed time.Duration
	// Counted is what the statistics record for such a run, which a price based on them must subtract.
	Counted time.Duration
}

// Of returns the cost of an event of the job with that price by the statistics.
func (t Toll) Of(price float64, timed bool) float64 {
	toll := t.Plain
	if timed {
		toll = t.Timed
	}
	return float64(toll) + max(0, price-float64(t.Counted))
}

// Gate measures a toll: a call of ours before and after attaching the programs.
type Gate struct {
	call   func()
	before time.Duration
}

// Rounds of calls are too short for many interruptions.
const (
	rounds = 20
	calls  = 50
)

// NewGate times the call without the programs.
func NewGate(call func()) Gate { return Gate{call, fastest(call)} }

// Toll of the attached programs, for each of the given number that the call triggers.
func (g Gate) Toll(p *Programs, programs int) Toll {
	each := func() time.Duration { return max(0, fastest(g.call)-g.before) / time.Duration(programs) }
	t := Toll{Plain: each()}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		// Kernels before 5.8 have no statistics.
		t.Timed = t.Plain
		return t
	}
	defer stats.Close()
	t.Timed, t.Counted = each(), p.counted(g.call)
	return t
}

// counted is the recorded cost of a run for other tasks than the job's.
func (p *Programs) counted(call func()) time.Duration {
	before, err := p.Spent()
	if err != nil {
		return 0
	}
	least := time.Duration(0)
	for range rounds {
		for range calls {
			call()
		}
		after, err := p.Spent()
		runs := after.Runs - before.Runs
		if err != nil || runs < calls {
			return 0
		}
		// The job may run meanwhile: its runs are longer.
		if each := time.Duration((after.NS - before.NS) / runs); least == 0 || each < least {
			least = each
		}
		before = after
	}
	return least
}

// fastest is the duration of an undisturbed call: the best of several rounds.
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
