// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Defaults of Options.
const (
	DefaultKeep  = 30 * 24 * time.Hour
	DefaultBytes = 64 << 20
)

const (
	// commitTries are enough for an earlier commit that came late; nobody else writes events.
	commitTries = 3
	// pruneEvery is how often old events are forgotten.
	pruneEvery = time.Minute
	// recent are the events in memory, for those who follow.
	recent = 4096
)

// Options of a Journal.
type Options struct {
	Store store.Store
	// Keep is how long events are kept, and MaxBytes how much of the store they may take. They default to DefaultKeep and
	// DefaultBytes.
	Keep     time.Duration
	MaxBytes int64
	// Now defaults to time.Now.
	Now func() time.Time
	// Log defaults to slog.Default.
	Log *slog.Logger
}

// Journal keeps events, numbers them and hands them out. Safe for concurrent use.
type Journal struct {
	o     Options
	codec codec

	// committing is held from the choice of a number until its commit is known.
	committing sync.Mutex
	// unsure: the outcome of the last commit is unknown.
	unsure    bool
	observers []func([]kb.ClusterEvent)

	mu      sync.Mutex
	batches []batch // sorted
	bytes   int64
	next    uint64            // number
	last    []kb.ClusterEvent // the newest ones, without a gap
	changed chan struct{}     // closed when there are more
}

// batch is a record of events.
type batch struct {
	first, count uint64
	at           time.Time
	bytes        int64
}

// Open reads which events the store has.
func Open(ctx context.Context, o Options) (*Journal, error) {
	o.Keep, o.MaxBytes = cmp.Or(o.Keep, DefaultKeep), cmp.Or(o.MaxBytes, DefaultBytes)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	j := &Journal{o: o, codec: codec, next: 1, changed: make(chan struct{})}
	return j, j.refresh(ctx)
}

// Observe has do called with all events that are committed from now on, in their order. It must not commit. Call it before
// the first Commit.
func (j *Journal) Observe(do func([]kb.ClusterEvent)) { j.observers = append(j.observers, do) }

// Commit writes records together with the events of their change. It is store.Store's Commit, with its errors.
func (j *Journal) Commit(ctx context.Context, events []kb.ClusterEvent, writes ...store.Write) (int64, error) {
	j.committing.Lock()
	defer j.committing.Unlock()
	if j.unsure {
		if err := j.refresh(ctx); err != nil {
			return 0, err
		}
		j.unsure = false
	}
	var revision int64
	var err error
	for _, part := range j.parts(events, writes) {
		if revision, err = j.commit(ctx, part); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// part is one commit of the store. Its events are one record.
type part struct {
	writes []store.Write
	events []kb.ClusterEvent
}

// parts are one commit, but where the store would not take all of it: then the records come first.
func (j *Journal) parts(events []kb.ClusterEvent, writes []store.Write) []part {
	now := j.o.Now()
	for i, e := range events {
		if e.At.IsZero() {
			e.At = now
		}
		e.At = e.At.UTC().Round(time.Millisecond)
		events[i] = clipped(e)
	}
	first := part{writes: writes}
	size := 0
	for _, w := range writes {
		size += len(w.Key) + len(w.Value)
	}
	if len(events) == 0 {
		return []part{first}
	}
	parts := []part{first}
	for chunk := range slices.Chunk(events, mostInRecord) {
		parts = append(parts, part{events: chunk})
	}
	// Packed they take less than as text, and no text is that long.
	most := j.o.Store.Limits()
	if len(writes) < most.Writes && len(parts[1].events)*6*maxText < most.Bytes-size {
		parts[1].writes = writes
		return parts[1:]
	}
	if value, err := j.codec.encode(parts[1].events, now); err == nil && len(writes) < most.Writes && size+len(value)+len(keyOf(0)) < most.Bytes {
		parts[1].writes = writes
		return parts[1:]
	}
	return parts
}

// commit needs j.committing.
func (j *Journal) commit(ctx context.Context, p part) (int64, error) {
	if len(p.events) == 0 {
		return j.o.Store.Commit(ctx, p.writes...)
	}
	for try := 1; ; try++ {
		at := j.o.Now().UTC().Round(time.Millisecond)
		value, err := j.codec.encode(p.events, at)
		if err != nil {
			return 0, err
		}
		first := j.number()
		key := keyOf(first)
		revision, err := j.o.Store.Commit(ctx, append(slices.Clone(p.writes), store.Write{Key: key, Value: value})...)
		var conflict *store.ConflictError
		switch {
		case err == nil:
			j.keep(batch{first: first, count: uint64(len(p.events)), at: at, bytes: int64(len(key) + len(value))}, p.events)
			return revision, nil
		case errors.As(err, &conflict) && conflict.Key == key && try < commitTries:
			// A commit whose outcome was unknown has come late.
			if err := j.refresh(ctx); err != nil {
				return 0, err
			}
		default:
			j.unsure = !errors.As(err, &conflict)
			return 0, err
		}
	}
}

func (j *Journal) number() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// keep takes in what is committed. It needs j.committing.
func (j *Journal) keep(b batch, events []kb.ClusterEvent) {
	numbered := slices.Clone(events)
	for i := range numbered {
		numbered[i].Number = b.first + uint64(i)
	}
	j.mu.Lock()
	if b.first != j.next { // what is in memory has no gap
		j.last = nil
	}
	j.batches = append(j.batches, b)
	j.bytes += b.bytes
	j.next = b.first + b.count
	j.last = append(j.last, numbered...)
	if over := len(j.last) - 2*recent; over > 0 {
		j.last = slices.Clone(j.last[len(j.last)-recent:])
	}
	close(j.changed)
	j.changed = make(chan struct{})
	j.mu.Unlock()
	for _, do := range j.observers {
		do(numbered)
	}
}

// refresh takes in what the store has beyond what is known. A record that cannot be read is left out, and said.
func (j *Journal) refresh(ctx context.Context) error {
	for from := keyOf(j.number()); ; {
		records, err := j.o.Store.Range(ctx, from, prefix+"\xff", store.MaxRange)
		if err != nil {
			return fmt.Errorf("events: %w: %w", kb.ErrUnavailable, err)
		}
		for _, rec := range records {
			if err := j.takeIn(rec); err != nil {
				return err
			}
		}
		if len(records) < store.MaxRange {
			return nil
		}
		from = records[len(records)-1].Key + "\x00"
	}
}

func (j *Journal) takeIn(rec store.Record) error {
	first, err := firstOf(rec.Key)
	if err != nil {
		return err
	}
	b, err := j.codec.index(rec)
	if err != nil {
		j.o.Log.Error("events that cannot be read are left out", "record", rec.Key, "error", err)
		b = batch{first: first, count: 1, at: j.o.Now(), bytes: int64(len(rec.Key) + len(rec.Value))}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.batches = append(j.batches, b)
	j.bytes += b.bytes
	j.next, j.last = b.first+b.count, nil
	close(j.changed)
	j.changed = make(chan struct{})
	return nil
}

// Run forgets old events until ctx ends.
func (j *Journal) Run(ctx context.Context) error {
	again := time.NewTicker(pruneEvery)
	defer again.Stop()
	for {
		if err := j.Prune(ctx); err != nil && ctx.Err() == nil {
			j.o.Log.Warn("old events not forgotten", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// Prune forgets events that are too old or too many. The newest record stays, since the next number follows from it.
func (j *Journal) Prune(ctx context.Context) error {
	for {
		var writes []store.Write
		most := j.o.Store.Limits().Writes
		j.mu.Lock()
		bytes := j.bytes
		for _, b := range j.batches[:max(0, len(j.batches)-1)] {
			if len(writes) == most || bytes <= j.o.MaxBytes && j.o.Now().Sub(b.at) <= j.o.Keep {
				break
			}
			bytes -= b.bytes
			writes = append(writes, store.Write{Key: keyOf(b.first), Delete: true, Expect: store.AnyRevision})
		}
		j.mu.Unlock()
		if len(writes) == 0 {
			return nil
		}
		if _, err := j.o.Store.Commit(ctx, writes...); err != nil {
			return fmt.Errorf("events: %w", err)
		}
		j.mu.Lock()
		for _, b := range j.batches[:len(writes)] {
			j.bytes -= b.bytes
		}
		j.batches = slices.Clone(j.batches[len(writes):])
		j.mu.Unlock()
	}
}

// Stats says which numbers are kept, and how many bytes of the store they take.
func (j *Journal) Stats() (oldest, next uint64, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	oldest = j.next
	if len(j.batches) > 0 {
		oldest = j.batches[0].first
	}
	return oldest, j.next, j.bytes
}
