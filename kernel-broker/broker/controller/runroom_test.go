// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// stored is a run with a result of so many bytes.
func stored(id uint64, uid uint32, state kb.RunState, size uint64) *kb.Run {
	document := kb.Document{Name: kb.ResultFile, Digest: fmt.Sprintf("sha256:%064x", id), Size: size}
	return &kb.Run{ID: id, State: state, Job: kb.JobID{Job: uint32(id)}, UID: uid, Ended: time.Unix(1, 0),
		Nodes: []kb.RunNode{{Name: "n1", State: kb.RunNodeDelivered, Files: []kb.Document{document}}, {Name: "n2", State: kb.RunNodeLooking}}}
}

// Results have their part of the store: who holds most of it makes room for the next.
func TestMakeRoom(t *testing.T) {
	over, open := kb.RunComplete, kb.RunRunning
	for name, c := range map[string]struct {
		runs  []*kb.Run // their numbers are the places from 1 on
		keep  int
		wants uint64
		left  string
		err   error
	}{
		"there is room":            {[]*kb.Run{stored(1, 1, over, 40), stored(2, 2, over, 40)}, 9, 20, "[1 2]", nil},
		"one user's many":          {[]*kb.Run{stored(1, 1, over, 20), stored(2, 2, over, 30), stored(3, 2, over, 30), stored(4, 2, open, 10)}, 9, 20, "[1 3 4]", nil},
		"one user's large one":     {[]*kb.Run{stored(1, 1, over, 10), stored(2, 1, over, 10), stored(3, 2, over, 70), stored(4, 1, open, 10)}, 9, 20, "[1 2 4]", nil},
		"the oldest first":         {[]*kb.Run{stored(1, 1, over, 50), stored(2, 1, over, 50), stored(3, 1, open, 0)}, 9, 10, "[2 3]", nil},
		"open ones stay":           {[]*kb.Run{stored(1, 1, open, 80), stored(2, 2, over, 10), stored(3, 1, open, 0)}, 9, 20, "[1 3]", nil},
		"open ones have it all":    {[]*kb.Run{stored(1, 1, open, 90), stored(2, 2, over, 10), stored(3, 1, open, 0)}, 9, 20, "[1 2 3]", kb.ErrExhausted},
		"larger than the part":     {[]*kb.Run{stored(1, 1, over, 10), stored(2, 2, over, 10), stored(3, 1, open, 0)}, 9, 101, "[1 2 3]", kb.ErrExhausted},
		"all of it":                {[]*kb.Run{stored(1, 1, over, 10), stored(2, 2, over, 10), stored(3, 1, open, 0)}, 9, 100, "[3]", nil},
		"too many runs, room left": {[]*kb.Run{stored(1, 1, over, 1), stored(2, 2, over, 1), stored(3, 2, over, 1), stored(4, 2, open, 0)}, 3, 1, "[1 3 4]", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.runs.Keep = c.keep
			var released []string
			f.room = func() (uint64, error) { return 100, nil }
			f.release = func(digest string) error { released = append(released, digest); return nil }
			f.start()
			f.stop() // no pass ends the runs
			if err := f.commit(t.Context(), nil, nil, c.runs...); err != nil {
				t.Fatal(err)
			}
			if err := f.c.MakeRoom(t.Context(), c.wants); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
			list, err := f.c.ProfilingRuns(t.Context(), 9, 0, nil)
			left := ids(list)
			slices.Sort(left)
			if err != nil || fmt.Sprint(left) != c.left || len(released) != len(c.runs)-len(left) {
				t.Errorf("left %v, %v; released %v", left, err, released)
			}
		})
	}
}

// A thousand results of one user, here fifty, fill half of the store: another user's stays, and a kernel has room.
func TestResultsLeaveRoomForKernels(t *testing.T) {
	f := newFixture(t)
	files, err := artifact.OpenStore(t.TempDir(), artifact.StoreOptions{Limit: 1000, Grace: time.Hour, Log: slog.New(slog.DiscardHandler),
		Needed: f.runFiles})
	if err != nil {
		t.Fatal(err)
	}
	f.has, f.release = files.Has, files.Release
	f.room = func() (uint64, error) { capacity, err := files.Capacity(); return capacity / 2, err }
	f.start()
	for id := uint64(1); id <= 50; id++ {
		content := bytes.Repeat(fmt.Appendf(nil, "%03d ", id), 10)
		d := Delivery{Run: id, Node: "n1", Files: []kb.Document{{Name: kb.ResultFile, Digest: digest.Of(content), Size: uint64(len(content))}}}
		run := &kb.Run{ID: id, State: kb.RunRunning, Job: kb.JobID{Job: uint32(id)}, UID: 1000, Claimed: time.Now(), Nodes: []kb.RunNode{{Name: "n1", State: kb.RunNodeLooking}}}
		if id == 1 {
			run.UID = 1001
		}
		if err := f.commit(t.Context(), nil, nil, run); err != nil {
			t.Fatal(err)
		}
		if err := f.c.MakeRoom(t.Context(), d.Files[0].Size); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Put(t.Context(), d.Files[0].Digest, d.Files[0].Size, bytes.NewReader(content)); err != nil {
			t.Fatalf("result of run %d: %v", id, err)
		}
		if err := f.c.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		until(t, "the run is over", func() bool { return f.run(id).Over() })
	}
	kernel := []byte(strings.Repeat("k", 500))
	if _, err := files.Put(t.Context(), digest.Of(kernel), 500, bytes.NewReader(kernel)); err != nil {
		t.Errorf("no kernel can be registered: %v", err)
	}
	if r := f.run(1); len(r.Nodes[0].Files) != 1 {
		t.Errorf("%+v", r)
	} else if has, err := files.Has(r.Nodes[0].Files[0].Digest, r.Nodes[0].Files[0].Size); !has || err != nil {
		t.Errorf("another user's result is gone: %v", err)
	}
	runs, err := f.c.ProfilingRuns(t.Context(), 100, 0, nil)
	if err != nil || len(runs) < 10 || len(runs) > 12 || runs[0].ID != 50 {
		t.Errorf("%d runs are left, %v", len(runs), err)
	}
}
