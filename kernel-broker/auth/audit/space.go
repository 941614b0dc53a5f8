// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"time"
)

const (
	// DefaultReserve is enough for half a million records of changes.
	DefaultReserve = 256 << 20
	// reserveFraction of a file system is the reserve of a small one.
	reserveFraction = 20
	// warnFactor is how many reserves are free when Health begins to warn.
	warnFactor = 4
	// measurePause lies between two looks at what is free.
	measurePause = 5 * time.Second
)

// space is what was free when it was last looked.
type space struct {
	at            time.Time
	free, reserve uint64
	err           error
	short         bool
}

// HasSpace reports whether there is room for records of what changes nothing. In the
// reserve there is none: the folder may be on the disk of the broker's store, and
// without a record no job gets its kernel.
func (l *Log) HasSpace() bool { return !l.measure().short }

// measure asks the system at most every measurePause. What nobody can say does not count as full.
func (l *Log) measure() space {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	if since := now.Sub(l.space.at); since >= 0 && since < measurePause {
		return l.space
	}
	r := space{at: now, reserve: l.o.Reserve}
	var size uint64
	if r.free, size, r.err = l.o.Space(l.o.Dir); r.err == nil {
		r.reserve = min(r.reserve, size/reserveFraction)
		r.short = r.free < r.reserve
	}
	switch {
	case r.short && !l.space.short:
		l.o.Log.Error("audit log: reads and refusals are counted only, there is room for changes alone", "dir", l.o.Dir, "free", r.free, "reserve", r.reserve)
	case !r.short && l.space.short:
		l.o.Log.Warn("audit log: reads and refusals are recorded again", "dir", l.o.Dir, "free", r.free)
	}
	l.space = r
	return r
}

// Health says how far the record is and what room there is, or what keeps it
// from being written, or soon will.
func (l *Log) Health() (string, error) {
	r := l.measure()
	l.mu.Lock()
	defer l.mu.Unlock()
	last, failed, uncertain := l.last.Seq, l.failed, l.uncertain()
	switch {
	case uncertain != nil:
		return "", fmt.Errorf("audit log %q: %w: the broker refuses changes until it can write to another file; check the disk", l.o.Dir, uncertain)
	case failed != nil:
		return "", fmt.Errorf("audit log %q: the broker refuses changes because it cannot record them: %w", l.o.Dir, failed)
	case r.err != nil:
		return "", fmt.Errorf("audit log %q: how much room there is: %w", l.o.Dir, r.err)
	case r.short:
		return "", fmt.Errorf("audit log %q: %s free, of which %s are for records of changes: reads and refusals are counted only; make room",
			l.o.Dir, mib(r.free), mib(r.reserve))
	case r.free < warnFactor*r.reserve:
		return "", fmt.Errorf("audit log %q: %s free; make room, below %s reads and refusals are no longer recorded", l.o.Dir, mib(r.free), mib(r.reserve))
	}
	return fmt.Sprintf("record %d, %s free", last, mib(r.free)), nil
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
