// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// readPage is how many records are read at a time.
const readPage = 64

// Selection says which events to read.
type Selection struct {
	kb.EventFilter
	// After is the last number that is not wanted, if From is set; otherwise the newest events are.
	From  bool
	After uint64
	// Limit of the number of events.
	Limit int
	// See is an event as the reader sees it, if at all; nil: as it is.
	See func(kb.ClusterEvent) (kb.ClusterEvent, bool)
}

func (s Selection) take(e kb.ClusterEvent) (kb.ClusterEvent, bool) {
	// What is hidden must not be found by its job, either.
	if s.See != nil {
		seen, visible := s.See(e)
		if !visible {
			return e, false
		}
		e = seen
	}
	return e, s.Selects(e)
}

// List returns such events, the oldest first, and the number after which a later call goes on.
func (j *Journal) List(ctx context.Context, s Selection) (events []kb.ClusterEvent, next uint64, err error) {
	oldest, end, _ := j.Stats()
	if s.From && s.After >= end {
		return nil, 0, fmt.Errorf("event %d is not there yet, the last one is %d: the store was made anew; begin without a number: %w", s.After, end-1, kb.ErrInvalid)
	}
	if !s.From {
		events, err = j.newest(ctx, s)
		return events, end - 1, err
	}
	return j.after(ctx, s, max(s.After+1, oldest), end)
}

// after reads upward from a number, up to before end.
func (j *Journal) after(ctx context.Context, s Selection, from, end uint64) ([]kb.ClusterEvent, uint64, error) {
	var events []kb.ClusterEvent
	if kept, all := j.inMemory(from, end); all {
		for _, e := range kept {
			if seen, selected := s.take(e); selected {
				if events = append(events, seen); len(events) == s.Limit {
					return events, e.Number, nil
				}
			}
		}
		return events, end - 1, nil
	}
	batches := j.between(from, end)
	for page := range slices.Chunk(batches, readPage) {
		if page[len(page)-1].at.Before(s.Since) {
			continue
		}
		read, err := j.read(ctx, page)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range read {
			if e.Number < from || e.Number >= end {
				continue
			}
			if seen, selected := s.take(e); selected {
				if events = append(events, seen); len(events) == s.Limit {
					return events, e.Number, nil
				}
			}
		}
	}
	return events, end - 1, nil
}

// newest reads downward.
func (j *Journal) newest(ctx context.Context, s Selection) ([]kb.ClusterEvent, error) {
	var events []kb.ClusterEvent
	batches := j.between(0, j.number())
	for len(batches) > 0 && len(events) < s.Limit && !batches[len(batches)-1].at.Before(s.Since) {
		page := batches[max(0, len(batches)-readPage):]
		batches = batches[:len(batches)-len(page)]
		read, err := j.read(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, e := range slices.Backward(read) {
			if seen, selected := s.take(e); selected && len(events) < s.Limit {
				events = append(events, seen)
			}
		}
	}
	slices.Reverse(events)
	return events, nil
}

// inMemory returns the events from a number to before another, if all of them are in memory.
func (j *Journal) inMemory(from, end uint64) ([]kb.ClusterEvent, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if from >= end {
		return nil, true
	}
	if len(j.last) == 0 || j.last[0].Number > from {
		return nil, false
	}
	begin := from - j.last[0].Number
	return slices.Clone(j.last[begin : begin+end-from]), true
}

// between are the records that have events from a number to before another.
func (j *Journal) between(from, end uint64) []batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := func(n uint64) int {
		i, found := slices.BinarySearchFunc(j.batches, n, func(b batch, n uint64) int {
			switch {
			case b.first > n:
				return 1
			case b.first+b.count <= n:
				return -1
			}
			return 0
		})
		if found && n == end {
			i++
		}
		return i
	}
	first, last := at(from), at(end)
	return slices.Clone(j.batches[first:max(first, last)])
}

// read returns the events of records that follow each other. Those that were forgotten meanwhile are missing.
func (j *Journal) read(ctx context.Context, page []batch) (events []kb.ClusterEvent, err error) {
	records, err := j.o.Store.Range(ctx, keyOf(page[0].first), keyOf(page[len(page)-1].first)+"\x00", max(len(page), 1))
	if err != nil {
		return nil, fmt.Errorf("events: %w: %w", kb.ErrUnavailable, err)
	}
	for _, rec := range records {
		some, err := j.codec.decode(rec)
		if err != nil {
			j.o.Log.Error("events that cannot be read are left out", "record", rec.Key, "error", err)
			continue
		}
		events = append(events, some...)
	}
	return events, nil
}

// followPage is how many events are handed over at a time.
const followPage = 512

// Follow hands over such events after a number, and new ones as they come, until ctx ends or send fails. next is where
// somebody else would go on; it is sent with each page, also with one that has no such event.
func (j *Journal) Follow(ctx context.Context, s Selection, send func(events []kb.ClusterEvent, next uint64) error) error {
	s.From, s.Limit = true, followPage
	for first := true; ; first = false {
		j.mu.Lock()
		changed := j.changed
		j.mu.Unlock()
		events, next, err := j.List(ctx, s)
		if err != nil {
			return err
		}
		if len(events) > 0 || first {
			if err := send(events, next); err != nil {
				return err
			}
		}
		if s.After = next; len(events) == s.Limit {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
