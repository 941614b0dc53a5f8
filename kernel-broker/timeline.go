// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"time"
)

// Event is one line of an allocation's timeline.
type Event struct {
	At     time.Time `json:"at"`
	Node   string    `json:"node,omitempty"`
	Event  string    `json:"event"`
	Detail string    `json:"detail,omitempty"`
}

// Bounds of a timeline. It is part of the allocation's record, which is written
// as a whole at each change and which a store takes only up to a size. A wide
// job has more nodes to tell of and less room for it: its record also has what
// each of them ran.
const (
	maxTimeline      = 4096
	maxTimelineBytes = 512 << 10
	minTimelineBytes = 64 << 10
	bytesPerNode     = 32
)

// eventLeftOut stands in the place of those that were left out.
const eventLeftOut = "left out"

// size is about what an event takes in a record.
func (e Event) size() int { return 64 + len(e.Node) + len(e.Event) + len(e.Detail) }

// Note appends to the timeline.
func (a *Allocation) Note(at time.Time, node, event, detail string) {
	a.Timeline = append(a.Timeline, Event{At: at, Node: node, Event: event, Detail: detail})
	a.Shorten(max(minTimelineBytes, maxTimelineBytes-bytesPerNode*len(a.Nodes)))
}

// Shorten brings a timeline that takes more than so many bytes well below that.
// The oldest events of nodes give way, and only then those of the job, but for
// its first and last. An event says how many were left out.
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
			// Below the bounds, so that this is not done again for each event.
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

// leaveOut makes the timeline anew without the events that are gone.
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
