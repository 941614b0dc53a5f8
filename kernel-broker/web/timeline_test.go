// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func TestSpans(t *testing.T) {
	spans, between := spansOf(someJobs()[1])
	if len(spans) != 2 || len(between) != 2 || between[1].Event != "taken out of service" {
		t.Fatalf("%d spans, between them %v", len(spans), between)
	}
	there, back := spans[0], spans[1]
	if there.Slowest == nil || there.Slowest.Name != "boot" || there.Last != "n4" || there.Took != 27800*time.Millisecond {
		t.Errorf("to the kernel: %v, %v of %q", there.Took, there.Slowest, there.Last)
	}
	if back.Slowest.Name != "settle on stock" || back.Last != "n2" || len(back.Lanes) != 4 || back.Lanes[2].Phases != nil {
		t.Errorf("back: %v of %q, %d lanes", back.Slowest, back.Last, len(back.Lanes))
	}
	failed := back.Lanes[1].Phases[0]
	if !failed.Bad || failed.Detail != "no space" {
		t.Errorf("a failed load is %v", failed)
	}
}

// Of a wide job those are drawn that the others waited for.
func TestWideJob(t *testing.T) {
	j := &api.Job{Timeline: []*api.TimelineEvent{{At: at(0), Event: "accepted"}}}
	for i := range 4000 {
		name := fmt.Sprintf("n%d", i)
		j.Nodes = append(j.Nodes, name)
		j.Timeline = append(j.Timeline, &api.TimelineEvent{At: at(float64(1 + i)), Node: name, Event: "booted"})
	}
	spans, _ := spansOf(j)
	s := spans[0]
	if len(s.Lanes) != mostLanes || s.More != 4000-mostLanes || s.Lanes[0].Node != "n3999" || s.Last != "n3999" || len(s.Ticks) > mostTicks+1 {
		t.Errorf("%d lanes, %d more, the first %s; the last node %s, %d ticks", len(s.Lanes), s.More, s.Lanes[0].Node, s.Last, len(s.Ticks))
	}
}

// Whatever a record says, phases follow each other without gaps and stay within their span, and one of them is the
// slowest of the node that was done last.
func TestPhasesFillTheirLane(t *testing.T) {
	names := append([]string{"ready", "returning", "lost", "accepted"}, slices.Sorted(func(yield func(string) bool) {
		for name := range phaseKinds {
			if !yield(name) {
				return
			}
		}
	})...)
	rapid.Check(t, func(t *rapid.T) {
		j := &api.Job{Nodes: []string{"n1", "n2", "n3"}}
		now := noon
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "later")))
			j.Timeline = append(j.Timeline, &api.TimelineEvent{At: timestamppb.New(now), Node: rapid.SampledFrom([]string{"", "n1", "n2", "n9"}).Draw(t, "node"),
				Event: rapid.SampledFrom(names).Draw(t, "event")})
		}
		spans, between := spansOf(j)
		count := len(between)
		for _, s := range spans {
			slowest := 0
			for _, l := range s.Lanes {
				var until time.Duration
				for _, p := range l.Phases {
					if p.From != until || p.Took < 0 || p.Left < 0 || p.Left+p.Width > 100.0001 || math.IsNaN(p.Width) {
						t.Fatalf("%s of %s begins at %v, not %v: %+v", p.Name, l.Node, p.From, until, p)
					}
					until += p.Took
					if p.Slowest {
						slowest++
						if l.Node != s.Last || s.Slowest.Took != p.Took {
							t.Fatalf("%s is marked on %s, and %v is told of %s", p.Name, l.Node, s.Slowest, s.Last)
						}
					}
				}
				if until != l.Took || l.Took > s.Took {
					t.Fatalf("%s has phases of %v, took %v, of %v", l.Node, until, l.Took, s.Took)
				}
				count += len(l.Phases)
			}
			if (s.Slowest != nil) != (slowest == 1) {
				t.Fatalf("%d phases are marked", slowest)
			}
		}
		for _, e := range j.GetTimeline() {
			if e.GetNode() == "" {
				count++
			}
		}
		lost := 0
		for _, s := range between {
			if s.Node == "" {
				lost++
			}
		}
		if count-lost != len(j.GetTimeline()) {
			t.Fatalf("%d of %d events are shown", count-lost, len(j.GetTimeline()))
		}
	})
}

func TestWordsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{-1: "", 980 * time.Millisecond: "980 ms", 60 * time.Hour: "2 d 12 h"} {
		if got := took(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 nodes", 1: "1 node", 999: "999 nodes", 4000: "4,000 nodes", 1234567: "1,234,567 nodes"} {
		if got := plural(n, "node"); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
