// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"slices"
	"time"
)

// Event is one line of an allocation's timeline.
type Event struct {
	At     time.Time `json:"at"`
	Node   string    `json:"node,omitempty"`
	Event  string    `json:"event"`
	Detail string    `json:"detail,omitempty"`
}

// Events of an allocation whose detail names other jobs, which may be other users'.
const (
	EventKept      = "kept"
	EventLetGo     = "let go"
	EventGateDrain = "drained by the gate"
)

// NamesOthers reports whether the detail may name jobs of other users.
func (e Event) NamesOthers() bool {
	return e.Event == EventKept || e.Event == EventLetGo || e.Event == EventGateDrain
}

// Limits of a timeline. It is part of the allocation's record, which is written as a whole at each change and limited by
// the store. A wide job has less room: its record also has a proof for every node.
const (
	maxTimeline      = 4096
	maxTimelineBytes = 512 << 10
	minTimelineBytes = 64 << 10
	bytesPerNode     = 32
)

// eventLeftOut replaces omitted events.
const eventLeftOut = "left out"

// size estimates an event's bytes in a record.
func (e Event) size() int { return 64 + len(e.Node) + len(e.Event) + len(e.Detail) }

// Note appends to the timeline.
func (a *Allocation) Note(at time.Time, node, event, detail string) {
	a.noteAt(len(a.Timeline), Event{At: at, Node: node, Event: event, Detail: detail})
}

// NoteLate adds an event that is known later than others which followed it: the
// timeline stays in order.
func (a *Allocation) NoteLate(at time.Time, node, event, detail string) {
	place := len(a.Timeline)
	for place > 0 && a.Timeline[place-1].At.After(at) {
		place--
	}
	a.noteAt(place, Event{At: at, Node: node, Event: event, Detail: detail})
}

func (a *Allocation) noteAt(place int, event Event) {
	if place < len(a.Timeline) {
		a.Timeline = slices.Clone(a.Timeline) // a copy of the allocation may share it
	}
	a.Timeline = slices.Insert(a.Timeline, place, event)
	a.Shorten(max(minTimelineBytes, maxTimelineBytes-bytesPerNode*len(a.Nodes)))
}

// Shorten cuts a timeline larger than the given bytes to well below that. It omits the oldest node events first, then
// the job's events except the first and the last. One event counts the omitted ones.
func (a *Allocation) Shorten(bytes int) {
	size, count := 0, len(a.Timeline)
	for _, e := range a.Timeline {
		size += e.size()
	}
	if size <= bytes && count <= maxTimeline {
		return
	}
	gone := make([]bool, len(a.Timeline))
	drop := func(may func(i int) bool) {
		for i, e := range a.Timeline {
			// Shorten below the limit, so that not every new event triggers it.
			if size <= bytes/8*7 && count <= maxTimeline/8*7 {
				return
			}
			if !gone[i] && may(i) {
				gone[i] = true
				size -= e.size()
				count--
			}
		}
	}
	drop(func(i int) bool { return a.Timeline[i].Node != "" })
	drop(func(i int) bool { return i > 0 && i < len(a.Timeline)-1 && a.Timeline[i].Event != eventLeftOut })
	a.leaveOut(gone)
}

// leaveOut rebuilds the timeline without the marked events.
func (a *Allocation) leaveOut(gone []bool) {
	kept := make([]Event, 0, len(a.Timeline))
	marker := -1
	for i, e := range a.Timeline {
		marks := e.Node == "" && e.Event == eventLeftOut
		if gone[i] {
			a.LeftOut++
			e = Event{At: e.At, Event: eventLeftOut}
			marks = true
		}
		if marks && marker >= 0 {
			continue
		}
		if marks {
			marker = len(kept)
		}
		kept = append(kept, e)
	}
	if marker >= 0 {
		kept[marker].Detail = fmt.Sprintf("%d older events, which the record has no room for", a.LeftOut)
	}
	a.Timeline = kept
}
