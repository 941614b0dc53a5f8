// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// A record that is under another's key would be written to a third one.
func TestRecordsUnderAnothersKey(t *testing.T) {
	for key, value := range map[string]string{
		nodeKey("n1"): `{"name":"n2"}`, nodeKey("n2"): `null`, nodeKey("n3"): `{}`,
		jobKey(kb.JobID{Job: 7}): `{"id":{"job":8}}`, jobKey(kb.JobID{Job: 8}): `null`,
		runKey(1): `{"id":2}`, runKey(2): `null`,
	} {
		s := memstore.New()
		if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if err := (&records{store: s}).load(t.Context()); err == nil {
			t.Errorf("record %q may be %s", key, value)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzRecords gives the broker a store in which anything may stand. What it
// takes for records it can decide on and write back, and reads again as the same.
func FuzzRecords(f *testing.F) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	seed := func(node *kb.Node, alloc *kb.Allocation, run *kb.Run) {
		var texts [3][]byte
		for i, value := range []any{node, alloc, run} {
			text, err := json.Marshal(value)
			if err != nil {
				f.Fatal(err)
			}
			texts[i] = text
		}
		f.Add(texts[0], texts[1], texts[2])
	}
	k, id := simKernel("mitgcm"), kb.JobID{Job: 7, Restart: 1}
	node := &kb.Node{Name: "n1", Generation: 3, Desired: k.Ref(), Owner: id, Timeline: id, Pending: &kb.Pending{}, Failure: &kb.Failure{}, Slurm: kb.SlurmSide{Awaited: kb.SlurmBoot{Phase: kb.BootIssued}}}
	node.Issue("token", k)
	alloc := &kb.Allocation{ID: id, Reference: "7", User: "alice", UID: 1000, Requested: k.Ref(), Kernel: k, BootAttempts: 2, BootTimeout: time.Minute,
		Nodes: []string{"n1", "n2"}, Phase: kb.PhaseSwitching, Since: now, Created: now, Run: 1, Collectors: []string{"io"}}
	alloc.Note(now, "n1", "begun", "x")
	run := &kb.Run{ID: 1, State: kb.RunRunning, Since: now, Collectors: []string{"io"}, Job: id, Reference: "7",
		Nodes: []kb.RunNode{{Name: "n1", State: kb.RunNodeReady}}}
	seed(node, alloc, run)
	ready, waiting := *alloc, *run
	ready.Phase, ready.Seen = kb.PhaseReady, true
	waiting.State, waiting.Job, waiting.Nodes = kb.RunRequested, kb.JobID{}, nil
	seed(&kb.Node{Name: "n1", KeptFor: "7", KeptUntil: now, SlurmdStart: 1}, &ready, &waiting)
	f.Add([]byte("null"), []byte(`{"nodes":[""],"before":null}`), []byte(`{"nodes":[{}]}`))

	f.Fuzz(func(t *testing.T, nodeText, allocText, runText []byte) {
		s := memstore.New()
		defer s.Close()
		// Each under the key that it asks for, or most would never be read.
		var node kb.Node
		var alloc kb.Allocation
		var run kb.Run
		if json.Unmarshal(nodeText, &node) != nil || json.Unmarshal(allocText, &alloc) != nil || json.Unmarshal(runText, &run) != nil {
			return
		}
		for key, value := range map[string][]byte{nodeKey(node.Name): nodeText, jobKey(alloc.ID): allocText, runKey(run.ID): runText} {
			if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: value}); err != nil {
				return // no store takes it
			}
		}
		r := &records{store: s}
		if r.load(t.Context()) != nil {
			return
		}
		tokens := 0
		in := plan.Input{
			Now: now.Add(time.Hour), Config: plan.Defaults(), Nodes: r.nodes, Allocations: r.allocs, Runs: r.runs.open, NextRun: r.runs.next,
			Catalog: newKernels(simProfiles(), map[string]bool{}), Agents: map[string]plan.Agent{"n1": {Connected: true, Since: now, Boot: kb.Boot{BootID: "b", Token: "token"}}},
			Slurm: kb.SlurmView{At: now.Add(30 * time.Minute), Nodes: map[string]kb.SlurmNode{"n1": {Name: "n1", State: "IDLE"}},
				Jobs: map[uint32]kb.SlurmJob{7: {ID: 7, Reference: "7", Restart: 1, State: "RUNNING", Nodes: []string{"n1", "n2"}}}},
			NewToken: func() string { tokens++; return fmt.Sprint("new", tokens) },
		}
		out := plan.Decide(in)
		if err := r.commit(t.Context(), out.Nodes, out.Allocations, out.Runs...); err != nil {
			t.Fatalf("what was decided cannot be written: %v", err)
		}
		again := &records{store: s}
		if err := again.load(t.Context()); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if len(again.nodes) != len(r.nodes) || len(again.allocs) != len(r.allocs) || len(again.runs.open) != len(r.runs.open) {
			t.Errorf("%d nodes, %d allocations, %d runs became %d, %d, %d", len(r.nodes), len(r.allocs), len(r.runs.open),
				len(again.nodes), len(again.allocs), len(again.runs.open))
		}
	})
}
