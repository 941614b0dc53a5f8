// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/explain"
)

// Explain says what an unfinished job waits for, as slurmctld was seen last.
func (c *Controller) Explain(job uint32) (explain.Answer, error) {
	found, at := c.queued(job)
	if found.ID == 0 {
		return explain.Answer{}, fmt.Errorf("job %d has ended or is unknown, by slurmctld's answer %v ago: %w", job, c.clock.Now().Sub(at).Round(time.Second), kb.ErrNotFound)
	}
	facts := explain.Facts{Job: found, Ahead: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := kb.JobID{Job: found.ID, Restart: found.Restart}
	if facts.Allocation = c.records.allocs[id]; facts.Allocation == nil {
		facts.Ahead = c.line.Ahead(id, time.Now())
	}
	if found.Pending() {
		facts.Returning = c.returningLocked()
	}
	return explain.Job(facts), nil
}

// returningLocked are the nodes whose jobs have ended and that do not run stock yet.
func (c *Controller) returningLocked() []explain.Node {
	var nodes []explain.Node
	for _, a := range c.records.allocs {
		if a.Phase != kb.PhaseReturning || a.HandedTo != "" {
			continue
		}
		for _, name := range a.Nodes {
			if n := c.records.nodes[name]; n != nil && n.Owner == a.ID && (n.Pending != nil || !n.Runs(kb.Ref{Profile: kb.StockProfile})) {
				nodes = append(nodes, explain.Node{Name: name, Partitions: c.view.Nodes[name].Partitions, Since: a.Since})
			}
		}
	}
	slices.SortFunc(nodes, func(a, b explain.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}
