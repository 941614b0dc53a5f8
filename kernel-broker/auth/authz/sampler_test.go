// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// sieved is a guard with a clock of the test's, and nothing on its tape.
func sieved(t *testing.T) (*Guard, *tape, *time.Time) {
	t.Helper()
	now, r := time.Unix(1e9, 0), &tape{}
	g, err := New(Options{File: filepath.Join(t.TempDir(), "none"), Optional: true, Record: r, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	r.entries = nil
	return g, r, &now
}

func whole(t *testing.T, g *Guard, d Decision, times int) {
	t.Helper()
	for range times {
		if err := g.NoteWhole(d, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever asks without end fills no disk by what changes nothing: neither by
// reads nor by refusals, as a stranger, a node or a user. How many were left out
// is told, and nobody else's record goes with them.
func TestNobodyFillsTheRecord(t *testing.T) {
	for what, c := range map[string]struct {
		d     Decision
		burst int
	}{
		"a stranger's refusals": {Decision{Asker: Asker{Holder: "192.0.2.1"}, Unknown: true}, refusalRate.Burst},
		"a node's refusals":     {Decision{Asker: Asker{Holder: "node n1"}, Unknown: true, Who: "node n1"}, refusalRate.Burst},
		"a user's refusals":     {Decision{Asker: Asker{UID: 7}}, refusalRate.Burst},
		"a user's reads":        {Decision{Asker: Asker{UID: 7}, Allowed: true}, readRate.Burst},
	} {
		t.Run(what, func(t *testing.T) {
			g, r, now := sieved(t)
			whole(t, g, c.d, c.burst+50)
			if len(r.entries) != c.burst {
				t.Errorf("%d records, want %d", len(r.entries), c.burst)
			}
			if has := r.entries[0].UID != nil; has == c.d.Unknown {
				t.Errorf("a uid on record: %v", has)
			}
			// Others, and the other kind of the same one, are recorded one by one.
			other, same := c.d, c.d
			other.Holder, same.Allowed = "somebody else", !c.d.Allowed
			whole(t, g, other, 1)
			whole(t, g, same, 1)
			if n := len(r.entries); n != c.burst+2 || r.entries[n-1].Unrecorded != 0 || r.entries[n-2].Unrecorded != 0 {
				t.Errorf("another's: %d records, %+v", n, r.entries[c.burst:])
			}
			*now = now.Add(time.Second)
			whole(t, g, c.d, 2)
			if n := len(r.entries); n != c.burst+3 || r.entries[n-1].Unrecorded != 50 {
				t.Errorf("a second later: %d records, %+v", n, r.entries[c.burst:])
			}
		})
	}
}

// What is to change something is never left out.
func TestChangesAreNotSieved(t *testing.T) {
	g, r, _ := sieved(t)
	r.full = true
	const many = 5000
	for range many {
		if _, err := g.Note(Decision{Asker: Asker{UID: 7}, Allowed: true}, true); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.entries) != many {
		t.Errorf("%d records of %d", len(r.entries), many)
	}
}

// While there is room for changes alone the rest is counted.
func TestWithoutRoom(t *testing.T) {
	g, r, _ := sieved(t)
	r.full = true
	d := Decision{Asker: Asker{UID: 7}}
	whole(t, g, d, 3)
	d.Allowed = true
	whole(t, g, d, 4)
	if len(r.entries) != 0 {
		t.Errorf("%+v", r.entries)
	}
	r.full = false
	whole(t, g, d, 1)
	d.Allowed = false
	whole(t, g, d, 1)
	if len(r.entries) != 2 || r.entries[0].Unrecorded != 4 || r.entries[1].Unrecorded != 3 {
		t.Errorf("%+v", r.entries)
	}
}

// What could not be recorded is counted, too.
func TestWhatFailedIsCounted(t *testing.T) {
	g, r, _ := sieved(t)
	r.err = errors.New("broken")
	d := Decision{Asker: Asker{UID: 7}, Allowed: true}
	if _, err := g.Note(d, true); err == nil {
		t.Error("no error")
	}
	if err := g.NoteWhole(d, nil); err == nil {
		t.Error("no error")
	}
	g.LeaveOut(d)
	r.err = nil
	whole(t, g, d, 1)
	if len(r.entries) != 1 || r.entries[0].Unrecorded != 3 {
		t.Errorf("%+v", r.entries)
	}
}

// Who goes after a flood takes the count of what was left out with him: a record
// of its own has it, a while later or at the broker's end.
func TestTheSum(t *testing.T) {
	g, r, now := sieved(t)
	whole(t, g, Decision{Asker: Asker{Holder: "192.0.2.1"}, Unknown: true}, refusalRate.Burst+10)
	whole(t, g, Decision{Asker: Asker{UID: 7}, Allowed: true}, readRate.Burst+20)
	g.LeaveOut(Decision{Asker: Asker{Holder: "192.0.2.2"}, Unknown: true})
	sums := func() (sums []audit.Entry) {
		for _, e := range r.entries {
			if e.Kind == KindUnrecorded {
				sums = append(sums, e)
			}
		}
		return sums
	}
	if len(sums()) != 0 {
		t.Errorf("at once: %+v", sums())
	}
	*now = now.Add(sumPause)
	for range 3 {
		whole(t, g, Decision{Asker: Asker{UID: 8}, Allowed: true}, 1)
	}
	if got := sums(); len(got) != 2 || got[0].Unrecorded+got[1].Unrecorded != 31 {
		t.Fatalf("a minute later: %+v", got)
	}
	for _, e := range sums() {
		if e.Action == "refused" && e.Reason != "10 of 192.0.2.1, 1 of 192.0.2.2" || e.Action == "read" && e.Reason != "20 of uid 7" {
			t.Errorf("%+v", e)
		}
	}
	g.LeaveOut(Decision{Asker: Asker{UID: 9}})
	if err := g.NoteBroker("stop", ""); err != nil {
		t.Fatal(err)
	}
	if n := len(r.entries); r.entries[n-1].Kind != KindBroker || r.entries[n-2].Kind != KindUnrecorded || r.entries[n-2].Unrecorded != 1 {
		t.Errorf("at the end: %+v", r.entries[n-2:])
	}
}

// However many there are, so many are counted one by one and no more.
func TestTheSieveIsBounded(t *testing.T) {
	s := newSieve(refusalRate, nil)
	const more = 500
	for n := range limit.DefaultKeep + more {
		s.miss(fmt.Sprint(n), 1)
	}
	lost, others := s.all()
	if len(lost) != limit.DefaultKeep || others != more {
		t.Errorf("%d one by one, %d others", len(lost), others)
	}
	total, words := sumOf(lost, others)
	if total != limit.DefaultKeep+more || len(words) > 200 || !strings.Contains(words, "others") {
		t.Errorf("%d: %q", total, words)
	}
}

// A denial that comes as something is done is a refusal, also where the record
// before it left that open.
func TestOutcomes(t *testing.T) {
	g, r, _ := sieved(t)
	d := Decision{Asker: Asker{UID: 7}, Allowed: true, Open: true}
	of, err := g.Note(d, true)
	if err != nil || r.entries[0].Allowed != nil {
		t.Fatalf("%+v, %v", r.entries, err)
	}
	if err := g.NoteOutcome(d, of, nil); err != nil || !*r.entries[1].Allowed {
		t.Errorf("%+v, %v", r.entries[1], err)
	}
	if err := g.NoteOutcome(d, of, errors.New("broken")); err != nil || r.entries[2].Allowed != nil {
		t.Errorf("neither allowed nor denied: %+v, %v", r.entries[2], err)
	}
	r.entries = r.entries[1:]
	d.Allowed = false
	if err := g.NoteOutcome(d, of, errors.New("no")); err != nil || *r.entries[2].Allowed || r.entries[2].Outcome != "no" {
		t.Errorf("%+v, %v", r.entries[2], err)
	}
	d.Open = false
	if err := g.NoteOutcome(d, of, errors.New("no")); err != nil || *r.entries[3].Allowed {
		t.Errorf("%+v, %v", r.entries[3], err)
	}
}
