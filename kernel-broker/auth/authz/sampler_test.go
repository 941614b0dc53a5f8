// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"
)

// sampled is an authorizer with a clock of the test's, and nothing on its tape.
func sampled(t *testing.T) (*Authorizer, *tape, *time.Time) {
	t.Helper()
	now, r := time.Unix(1e9, 0), &tape{}
	g, err := New(Options{File: filepath.Join(t.TempDir(), "none"), Optional: true, Record: r, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	r.entries = nil
	return g, r, &now
}

func whole(t *testing.T, g *Authorizer, d Decision, times int) {
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
		"a stranger's refusals": {Decision{Caller: Caller{Holder: "192.0.2.1"}, Unknown: true}, refusalRate.Burst},
		"a node's refusals":     {Decision{Caller: Caller{Holder: "node n1"}, Unknown: true, Who: "node n1"}, refusalRate.Burst},
		"a user's refusals":     {Decision{Caller: Caller{UID: 7}}, refusalRate.Burst},
		"a user's reads":        {Decision{Caller: Caller{UID: 7}, Answer: Answer{Allowed: true}}, readRate.Burst},
	} {
		t.Run(what, func(t *testing.T) {
			g, r, now := sampled(t)
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
			if n := len(r.entries); n != c.burst+2 || r.entries[n-1].Unrecorded != 0 || r.entries[n-2].Unrecorded != 50 {
				t.Errorf("another's: %d records, %+v", n, r.entries[c.burst:])
			}
			*now = now.Add(time.Second)
			whole(t, g, c.d, 2)
			if n := len(r.entries); n != c.burst+3 || r.entries[n-1].Unrecorded != 0 {
				t.Errorf("a second later: %d records, %+v", n, r.entries[c.burst:])
			}
			whole(t, g, other, 1)
			if n := len(r.entries); r.entries[n-1].Unrecorded != 1 {
				t.Errorf("the next record: %+v", r.entries[n-1])
			}
		})
	}
}

// What is to change something is never left out.
func TestChangesAreNotSampled(t *testing.T) {
	g, r, _ := sampled(t)
	r.full = true
	const many = 5000
	for range many {
		if _, err := g.Note(Decision{Caller: Caller{UID: 7}, Answer: Answer{Allowed: true}}, true); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.entries) != many {
		t.Errorf("%d records of %d", len(r.entries), many)
	}
}

// While there is room for changes alone the rest is counted.
func TestWithoutRoom(t *testing.T) {
	g, r, _ := sampled(t)
	r.full = true
	d := Decision{Caller: Caller{UID: 7}}
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
	g, r, _ := sampled(t)
	r.err = errors.New("broken")
	d := Decision{Caller: Caller{UID: 7}, Answer: Answer{Allowed: true}}
	if _, err := g.Note(d, true); err == nil {
		t.Error("no error")
	}
	if err := g.NoteWhole(d, nil); err == nil {
		t.Error("no error")
	}
	r.err = nil
	whole(t, g, d, 1)
	if len(r.entries) != 1 || r.entries[0].Unrecorded != 2 {
		t.Errorf("%+v", r.entries)
	}
}

// What is left out behind the last record is on record when the broker stops.
func TestLeftOutAtTheEnd(t *testing.T) {
	g, r, _ := sampled(t)
	whole(t, g, Decision{Caller: Caller{Holder: "192.0.2.1"}, Unknown: true}, refusalRate.Burst+10)
	whole(t, g, Decision{Caller: Caller{UID: 7}, Answer: Answer{Allowed: true}}, readRate.Burst+20)
	if err := g.NoteBroker("stop", ""); err != nil {
		t.Fatal(err)
	}
	left := map[string]uint64{}
	for _, e := range r.entries {
		if e.Kind == KindUnrecorded {
			left[e.Action] = e.Unrecorded
		}
	}
	if left["refused"] != 10 || left["read"] != 20 || r.entries[len(r.entries)-1].Kind != KindBroker {
		t.Errorf("%v, %+v", left, r.entries[len(r.entries)-3:])
	}
}

// Root on a node may be any uid to MUNGE, and has no more of the record by it. The
// same users at other addresses are recorded.
func TestManyUsersAtOneAddress(t *testing.T) {
	const uids, times = 1000, 5
	g, r, _ := sampled(t)
	at := func(uid int, host string) Decision {
		return Decision{Caller: Caller{UID: uint32(uid), Host: host}}
	}
	for uid := range uids {
		whole(t, g, at(uid, "192.0.2.7"), times)
	}
	if len(r.entries) != hostRate.Burst {
		t.Errorf("%d records of %d", len(r.entries), uids*times)
	}
	n := len(r.entries)
	whole(t, g, at(7, "192.0.2.8"), 1)
	whole(t, g, at(7, ""), 1)
	if len(r.entries) != n+2 || r.entries[n].Unrecorded != uids*times-uint64(n) {
		t.Errorf("%+v", r.entries[n:])
	}
}

// However many addresses there are, the record grows by networkRate, and callers
// on the broker's host are recorded.
func TestManyAddresses(t *testing.T) {
	g, r, now := sampled(t)
	const hosts = 12_000
	for n := range hosts {
		whole(t, g, Decision{Caller: Caller{Holder: fmt.Sprint(n), Host: fmt.Sprint(n)}, Unknown: true}, 1)
	}
	if len(r.entries) != networkRate.Burst {
		t.Errorf("%d records", len(r.entries))
	}
	n := len(r.entries)
	whole(t, g, Decision{Caller: Caller{UID: 7}}, 1)
	*now = now.Add(10 * time.Second)
	for n := range hosts {
		whole(t, g, Decision{Caller: Caller{Holder: fmt.Sprint("x", n), Host: fmt.Sprint("x", n)}, Unknown: true}, 1)
	}
	if got, want := len(r.entries)-n, 1+int(10*networkRate.PerSecond); got != want {
		t.Errorf("%d records, want %d", got, want)
	}
}

// A denial that comes as something is done is a refusal, also where the record
// before it left that open.
func TestOutcomes(t *testing.T) {
	g, r, _ := sampled(t)
	d := Decision{Caller: Caller{UID: 7}, Answer: Answer{Allowed: true}, Open: true}
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
