// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func tryOn(node string, ok bool) kb.Try {
	return kb.Try{Node: node, Hardware: kb.Hardware{Board: "Dell"}, Kernel: kb.Ref{Profile: "mitgcm", Version: 3}, Way: kb.WayReturn, OK: ok,
		Cause: "hangs", At: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Times: kb.UnknownTimes()}
}

// The ledger is written with the nodes, and the next broker reads it.
func TestLedgerIsKept(t *testing.T) {
	r := records{store: memstore.New()}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := &kb.Node{Name: "n1", Hardware: kb.Hardware{Board: "Dell"}}
	for range 3 {
		change := r.ledger.fold([]kb.Try{tryOn("n1", true), tryOn("n1", false), tryOn("n2", false)}, nil, 0, time.Now())
		if err := r.commitAll(t.Context(), change, []*kb.Node{node}, nil); err != nil {
			t.Fatal(err)
		}
	}
	again := records{store: r.store}
	if err := again.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(again.ledger.rows) != 1 || again.nodes["n1"].Hardware.Board != "Dell" {
		t.Fatalf("ledger %+v", again.ledger)
	}
	for _, row := range again.ledger.rows {
		if row.Tries != 9 || row.Successes != 3 || row.Streak != 2 || len(row.Samples) != 3 {
			t.Errorf("row %+v", row)
		}
	}
	// The first broker is late: nothing of its commit is written.
	if err := again.commitAll(t.Context(), again.ledger.fold([]kb.Try{tryOn("n1", true)}, nil, 0, time.Now()), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.commitAll(t.Context(), r.ledger.fold([]kb.Try{tryOn("n1", true)}, nil, 0, time.Now()), []*kb.Node{node}, nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a late broker: %v", err)
	}
}

// The rule follows when returns by kexec fail in a row on two nodes of the same hardware, and never from one node alone.
func TestRuleFollowsFromReturns(t *testing.T) {
	bare := func(node string) kb.Try {
		try := tryOn(node, false)
		try.Hardware = kb.Hardware{}
		return try
	}
	for name, c := range map[string]struct {
		tries []kb.Try
		after uint32
		want  int
	}{
		"two nodes":        {[]kb.Try{tryOn("n1", false), tryOn("n2", false), tryOn("n1", false)}, 3, 1},
		"more of it":       {[]kb.Try{tryOn("n1", false), tryOn("n2", false), tryOn("n1", false), tryOn("n2", false)}, 3, 1},
		"one node":         {[]kb.Try{tryOn("n1", false), tryOn("n1", false), tryOn("n1", false)}, 3, 0},
		"one between":      {[]kb.Try{tryOn("n1", false), tryOn("n2", true), tryOn("n2", false), tryOn("n1", false)}, 3, 0},
		"turned off":       {[]kb.Try{tryOn("n1", false), tryOn("n2", false), tryOn("n1", false)}, 0, 0},
		"unknown hardware": {[]kb.Try{bare("n1"), bare("n2"), bare("n1")}, 3, 0},
		"another adapter":  {[]kb.Try{tryOn("n1", false), {Node: "n2", Kernel: kb.Ref{Profile: "mitgcm", Version: 3}, Way: kb.WayReturn}, tryOn("n1", false)}, 3, 0},
	} {
		change := ledger{}.fold(c.tries, nil, c.after, time.Now())
		if len(change.made) != c.want || (change.rules != nil) != (c.want > 0) {
			t.Errorf("%s: made %+v", name, change.made)
		}
		for _, rule := range change.made {
			if err := rule.Validate(); err != nil || !rule.Matches("n9", kb.Hardware{Board: "Dell"}, kb.Ref{Profile: "mitgcm", Version: 3}) || !strings.Contains(rule.Reason, "n1, n2") {
				t.Errorf("%s: %+v, %v", name, rule, err)
			}
		}
	}
}

// The ledger does not grow beyond its limit: what was tried longest ago makes room.
func TestLedgerIsBounded(t *testing.T) {
	r := records{store: memstore.New()}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for i := range mostRows + 10 {
		try := tryOn("n1", true)
		try.Hardware.Firmware, try.At = fmt.Sprint(i), begin.Add(time.Duration(i)*time.Second)
		if err := r.commitAll(t.Context(), r.ledger.fold([]kb.Try{try}, nil, 0, begin), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	again := records{store: r.store}
	if err := again.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(again.ledger.rows) != mostRows || len(again.revisions) != len(r.revisions) {
		t.Fatalf("%d rows, %d and %d revisions", len(again.ledger.rows), len(r.revisions), len(again.revisions))
	}
	for _, row := range again.ledger.rows {
		if row.Last.Before(begin.Add(10 * time.Second)) {
			t.Errorf("an old row is left: %+v", row)
		}
	}
}

// A damaged row is left out, and the next boot of its kind replaces it: nothing but figures depends on it.
func TestDamagedRowStopsNothing(t *testing.T) {
	for name, damage := range map[string]string{"cut off": `{"hardware":{"board":"De`, "a type": `{"tries":"many"}`, "another's": `{"tries":1}`, "nothing": "", "packed": "\x1f\x8bx"} {
		r := records{store: memstore.New()}
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		try, other := tryOn("n1", true), tryOn("n1", true)
		other.Way = kb.WaySwitch
		if err := r.commitAll(t.Context(), r.ledger.fold([]kb.Try{try, other}, nil, 0, try.At), nil, nil); err != nil {
			t.Fatal(err)
		}
		key := ledgerKey(try.Row().ID())
		if _, err := r.store.Commit(t.Context(), store.Write{Key: key, Value: []byte(damage), Expect: store.AnyRevision}); err != nil {
			t.Fatal(err)
		}
		again := records{store: r.store}
		if err := again.load(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(again.ledger.rows) != 1 || len(again.ledger.damaged) != 1 || !strings.Contains(again.ledger.health(), key) {
			t.Errorf("%s: %s", name, again.ledger.health())
		}
		if err := again.commitAll(t.Context(), again.ledger.fold([]kb.Try{try}, nil, 0, try.At), nil, nil); err != nil {
			t.Errorf("%s: the next boot: %v", name, err)
		}
		if len(again.ledger.rows) != 2 || len(again.ledger.damaged) != 0 {
			t.Errorf("%s, after the next boot: %s", name, again.ledger.health())
		}
	}
}

// The host's clock was set back between two brokers: what is tried from then on is not what was tried longest ago.
func TestLedgerAfterAClockThatWasSetBack(t *testing.T) {
	r := records{store: memstore.New()}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	future := tryOn("n1", false)
	future.At = now.Add(365 * 24 * time.Hour)
	if err := r.commitAll(t.Context(), r.ledger.fold([]kb.Try{future}, nil, 0, now), nil, nil); err != nil {
		t.Fatal(err)
	}
	again := records{store: r.store}
	if err := again.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.rebase(now, plan.Defaults())
	for _, row := range again.ledger.rows {
		if !row.First.Equal(now) || !row.Last.Equal(now) || !row.LastFailure.At.Equal(now) {
			t.Errorf("row %+v, newest failure %v", row, row.LastFailure.At)
		}
	}
}

// The command that a held job's user reads excludes every node that the rule is for: with some of them only, the job
// would be placed on the others, and the next command would replace the first one's list.
func TestForbiddenJobExcludesAllSuchNodes(t *testing.T) {
	for nodes, want := range map[int]string{1: "ExcNodeList=n001)", 20: "ExcNodeList=n[001-020])", 3000: "ExcNodeList=n[001-3000])"} {
		f, _ := bare(t)
		for i := range nodes {
			name := fmt.Sprintf("n%03d", i+1)
			f.c.records.nodes[name] = &kb.Node{Name: name, Hardware: kb.Hardware{Board: "Dell"}}
		}
		f.c.records.nodes["other1"] = &kb.Node{Name: "other1", Hardware: kb.Hardware{Board: "HPE"}}
		f.c.records.ledger.rules = []kb.HardwareRule{{Name: "hangs", Board: "Dell", Kexec: kb.KexecNever, By: kb.WayReboot}}
		err := f.c.forbiddenOn(kb.SlurmJob{Reference: "7", Nodes: []string{"n001", "other1"}}, kb.Ref{Profile: "mitgcm", Version: 3})
		if !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cannot run on n001:") {
			t.Errorf("%d nodes: %v", nodes, err)
		}
		if err := f.c.forbiddenOn(kb.SlurmJob{Nodes: []string{"other1"}}, kb.Ref{Profile: "mitgcm", Version: 3}); err != nil {
			t.Errorf("another board: %v", err)
		}
	}
	// What no comment has room for is not named by halves.
	f, _ := bare(t)
	for i := range 400 {
		name := fmt.Sprintf("rack%d-gpu", i)
		f.c.records.nodes[name] = &kb.Node{Name: name, Hardware: kb.Hardware{Board: "Dell"}}
	}
	f.c.records.ledger.rules = []kb.HardwareRule{{Name: "hangs", Board: "Dell", Kexec: kb.KexecNever, By: kb.WayReboot}}
	err := f.c.forbiddenOn(kb.SlurmJob{Reference: "7", Nodes: []string{"rack1-gpu"}}, kb.Ref{Profile: "mitgcm", Version: 3})
	if err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "ExcNodeList=") || !strings.Contains(err.Error(), "400 nodes") {
		t.Errorf("400 nodes without numbers: %v", err)
	}
}

// A rule for one return is gone with it, in one commit with the node.
func TestUsedRuleIsGone(t *testing.T) {
	l := ledger{rules: []kb.HardwareRule{{Name: "a"}, {Name: "b"}}}
	change := l.fold(nil, []string{"a"}, 3, time.Now())
	if change.rules == nil || len(change.rules.Rules) != 1 || change.rules.Rules[0].Name != "b" || len(l.rules) != 2 {
		t.Errorf("change %+v, before %+v", change, l)
	}
	if change := l.fold(nil, nil, 3, time.Now()); change.rules != nil {
		t.Errorf("nothing happened: %+v", change)
	}
}
