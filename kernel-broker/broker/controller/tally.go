// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
)

// Tally counts. Under the lock it copies a line for each node and no record.
func (c *Controller) Tally() kb.Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := kb.Tally{Nodes: make([]kb.NodeTally, 0, len(c.records.nodes)), Jobs: map[kb.Phase]int{}, Connected: len(c.sessions), SlurmSeen: c.view.At,
		Ledger: slices.Collect(maps.Values(c.records.ledger.rows))}
	for name, n := range c.records.nodes {
		t.Nodes = append(t.Nodes, kb.NodeTally{Name: name, Running: n.Running.Ref, Release: n.Boot.Release, State: n.Progress(),
			Connected: c.sessions[name] != nil, Armed: n.Slurm.Armed(), Serving: history.Serves(n.Slurm.Service)})
	}
	for _, a := range c.records.allocs {
		t.Jobs[a.Phase]++
	}
	for id := range c.line.Waiting(time.Now()) {
		if c.records.allocs[id] == nil {
			t.Turns++
			t.LongestTurn = max(t.LongestTurn, time.Since(c.line.Since(id.Job)))
		}
	}
	return t
}
