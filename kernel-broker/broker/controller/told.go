// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// told are the events of a commit, by the record that they follow from.
type told map[string][]kb.ClusterEvent

// told compares what is about to be committed with what the records are.
func (r *records) told(ctx context.Context, hardware ledgerChange, nodes []*kb.Node, allocs []*kb.Allocation) told {
	if r.history == nil {
		return nil
	}
	now, events := r.now(), told{}
	next := map[kb.JobID]*kb.Allocation{}
	for _, a := range allocs {
		next[a.ID] = a
		events[jobKey(a.ID)] = history.Job(r.allocs[a.ID], a, now)
	}
	job := func(id kb.JobID) *kb.Allocation {
		if a := next[id]; a != nil {
			return a
		}
		return r.allocs[id]
	}
	for _, n := range nodes {
		events[nodeKey(n.Name)] = history.Node(r.nodes[n.Name], n, job, now)
	}
	if hardware.rules != nil {
		who, _ := kb.AuthorOf(ctx)
		events[rulesKey] = history.Rules(r.ledger.rules, hardware.rules.Rules, who, now)
	}
	return events
}

// commitPart writes records with their events.
func (r *records) commitPart(ctx context.Context, part []store.Write, events told) (int64, error) {
	if r.history == nil {
		return r.store.Commit(ctx, part...)
	}
	var all []kb.ClusterEvent
	for _, w := range part {
		all = append(all, events[w.Key]...)
	}
	return r.history.Commit(ctx, all, part...)
}
