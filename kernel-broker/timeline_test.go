// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A timeline stays within its limits, keeps the job's events and the newest node events, and counts the omitted ones.
func TestTimelineIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, events int
		detail        string
		bytes         int
	}{
		"many events":            {nodes: 2, events: 3 * maxTimeline, bytes: maxTimelineBytes},
		"long ones":              {nodes: 2, events: 2000, detail: strings.Repeat("x", 1000), bytes: maxTimelineBytes},
		"of a wide job":          {nodes: 4000, events: 8000, detail: strings.Repeat("x", 100), bytes: maxTimelineBytes - 4000*bytesPerNode},
		"of an even wider job":   {nodes: 60000, events: 8000, detail: strings.Repeat("x", 100), bytes: minTimelineBytes},
		"as few as there may be": {nodes: 2, events: 100, bytes: maxTimelineBytes},
	} {
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		a := &Allocation{}
		for i := range c.nodes {
			a.Nodes = append(a.Nodes, fmt.Sprintf("n%d", i))
		}
		a.Enter(PhaseAccepted, now, "")
		for i := range c.events {
			now = now.Add(time.Millisecond)
			a.Note(now, a.Nodes[i%c.nodes], fmt.Sprint("event ", i), c.detail)
		}
		a.Enter(PhaseReady, now, "")
		text, err := json.Marshal(a.Timeline)
		if err != nil || len(text) > c.bytes+c.bytes/8 || len(a.Timeline) > maxTimeline {
			t.Errorf("%s: %d events, %d bytes, %v", name, len(a.Timeline), len(text), err)
		}
		first, last := a.Timeline[0], a.Timeline[len(a.Timeline)-1]
		newest := a.Timeline[len(a.Timeline)-2]
		if first.Event != string(PhaseAccepted) || last.Event != string(PhaseReady) || newest.Event != fmt.Sprint("event ", c.events-1) {
			t.Errorf("%s: from %+v to %+v, %+v", name, first, newest, last)
		}
		marks, missing := 0, c.events+2-len(a.Timeline)
		for i, e := range a.Timeline {
			if e.Event == eventLeftOut {
				marks++
				missing++ // it is not one of the omitted events
				if !strings.HasPrefix(e.Detail, fmt.Sprintf("%d older events", a.LeftOut)) {
					t.Errorf("%s: it says %q of %d", name, e.Detail, a.LeftOut)
				}
			}
			if i > 0 && e.At.Before(a.Timeline[i-1].At) {
				t.Errorf("%s: event %d is older than the one before it", name, i)
			}
		}
		if missing != a.LeftOut || marks > 1 || (marks == 1) != (a.LeftOut > 0) || (c.events > 100) != (marks == 1) {
			t.Errorf("%s: %d left out, %d missing, said %d times", name, a.LeftOut, missing, marks)
		}
	}
}

// The job's own events are omitted last; its first and last never.
func TestShortenKeepsFirstAndLast(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := &Allocation{Nodes: []string{"n1"}}
	a.Enter(PhaseAccepted, now, "")
	a.Note(now, "n1", "booted", "")
	a.Enter(PhaseSwitching, now, "")
	a.Enter(PhaseReady, now, "")
	a.Shorten(3 * 80)
	if len(a.Timeline) != 3 || a.Timeline[1].Event != eventLeftOut || a.LeftOut != 2 || a.Timeline[2].Event != string(PhaseReady) {
		t.Errorf("%+v", a.Timeline)
	}
	before := fmt.Sprint(a.Timeline)
	a.Shorten(0)
	if a.Shorten(0); fmt.Sprint(a.Timeline) != before || a.LeftOut != 2 {
		t.Errorf("%+v became %+v", before, a.Timeline)
	}
}

// What is known late stands where it happened, and the record before it stays.
func TestNoteLate(t *testing.T) {
	begin := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	a := Allocation{Nodes: []string{"n1", "n2"}}
	for i, event := range []string{"kexec", "fetching", "loaded"} {
		a.Note(begin.Add(time.Duration(2*i)*time.Second), "n1", event, "")
	}
	before := a
	a.NoteLate(begin.Add(time.Second), "n2", "started", "")
	a.NoteLate(begin.Add(2*time.Second), "n2", "same time", "")
	a.NoteLate(begin.Add(9*time.Second), "n2", "last", "")
	var got []string
	for _, e := range a.Timeline {
		got = append(got, e.Event)
	}
	if want := []string{"kexec", "started", "fetching", "same time", "loaded", "last"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(before.Timeline) != 3 || before.Timeline[1].Event != "fetching" || before.Timeline[2].Event != "loaded" {
		t.Errorf("the copy is %+v", before.Timeline)
	}
}
