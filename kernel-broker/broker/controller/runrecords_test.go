// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// Runs are kept alike by every store.
func TestRunRecords(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memstore.New() },
		"etcd": func(t *testing.T) store.Store {
			server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(), Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
			kept, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint()}, Cluster: "test", Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			return kept
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			testRunRecords(t, s)
		})
	}
}

func testRunRecords(t *testing.T, s store.Store) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 5, time.UTC)
	run := func(id uint64, state kb.RunState) *kb.Run {
		r := &kb.Run{ID: id, State: state, Since: now, Collectors: []string{"io"}, RequestedBy: "alice", Requested: now, Job: kb.JobID{Job: uint32(id)}}
		r.Claim(now, []string{"n1", "n2"})
		r.Nodes[0].Files = []kb.Document{result}
		return r
	}
	first, second := &records{store: s}, &records{store: s}
	for _, r := range []*records{first, second} {
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.runs.next != 1 {
			t.Errorf("the first run has number %d", r.runs.next)
		}
	}
	states := []kb.RunState{kb.RunRequested, kb.RunRunning, kb.RunComplete, kb.RunPartial, kb.RunFailed}
	for i, state := range states {
		if err := first.commit(t.Context(), nil, nil, run(uint64(i+1), state)); err != nil {
			t.Fatal(err)
		}
	}
	// A second broker that has not looked gets no number twice.
	if err := second.commit(t.Context(), nil, nil, run(1, kb.RunRequested)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a number twice: %v", err)
	}
	if err := second.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(second.runs.open) != 2 || second.runs.next != 6 {
		t.Errorf("%d open, next %d", len(second.runs.open), second.runs.next)
	}
	if got, want := second.runs.open[2], run(2, kb.RunRunning); !reflect.DeepEqual(got, want) {
		t.Errorf("came back as %+v, was %+v", got, want)
	}
	over := run(2, kb.RunComplete)
	if err := second.commit(t.Context(), nil, nil, over); err != nil || second.runs.open[2] != nil {
		t.Errorf("over: %v", err)
	}
	if err := first.commit(t.Context(), nil, nil, run(2, kb.RunFailed)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a broker with an old picture: %v", err)
	}
	all, err := first.profilingRuns(t.Context(), 100, 0, nil)
	if err != nil || len(all) != 5 || all[0].ID != 5 || all[3].State != kb.RunComplete {
		t.Errorf("%+v, %v", all, err)
	}
	// What is over goes, the oldest first; what is open and the newest stay.
	if err := runKind.Prune(t.Context(), second.store, &second.runIndex, 2); err != nil {
		t.Fatal(err)
	}
	if all, err = first.profilingRuns(t.Context(), 100, 0, nil); err != nil || fmt.Sprint(ids(all)) != "[5 4 1]" {
		t.Errorf("left %v, %v", ids(all), err)
	}
	if _, err := first.profilingRun(t.Context(), 2); !errors.Is(err, kb.ErrNotFound) {
		t.Error(err)
	}
}

func ids(runs []*kb.Run) (out []uint64) {
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return out
}
