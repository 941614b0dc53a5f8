// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/turns"
)

// agentless refuses nodes on which no agent has ever been: nobody could boot
// them. Slurm waits for their boots already, see plan.endWaits.
func (c *Controller) agentless(id kb.JobID, nodes []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var without, rising []string
	for _, name := range nodes {
		if c.hadAgentLocked(name) {
			continue
		}
		if c.wasOffLocked(name) {
			rising = append(rising, name)
			continue
		}
		without = append(without, name)
	}
	switch {
	case len(without) > 0:
	case len(rising) > 0:
		return &kb.RetryableError{Wait: turns.AskEvery, Err: fmt.Errorf("job %s: %d of its nodes are powered up, and their agents have not connected yet: %w", id, len(rising), kb.ErrUnavailable)}
	default:
		return nil
	}
	slices.Sort(without)
	if c.clock.Now().Sub(c.begin) < c.returnGraceLocked() {
		return &kb.RetryableError{Wait: turns.AskEvery, Err: fmt.Errorf("job %s: agents of %d nodes have not connected yet: %w", id, len(without), kb.ErrUnavailable)}
	}
	few := without[:min(len(without), 8)]
	return fmt.Errorf("no agent has ever connected from %v (%d of the job's %d nodes): install kernel-broker-agent there, or keep the job off with --exclude: %w",
		few, len(without), len(nodes), kb.ErrFailedPrecondition)
}

func (c *Controller) hadAgentLocked(name string) bool {
	n := c.records.nodes[name]
	return n != nil && n.Boot.BootID != "" || c.sessions[name] != nil
}

// noteOffLocked remembers which nodes without an agent have no power. Slurm's power saving may have switched them off
// before the agent was installed in the image that they boot.
func (c *Controller) noteOffLocked(view kb.SlurmView) {
	for name, s := range view.Nodes {
		if s.PowerIsOff() && !c.hadAgentLocked(name) {
			c.off[name] = c.clock.Now()
		}
	}
}

// wasOffLocked reports whether Slurm powers up a node whose agent may come with that.
func (c *Controller) wasOffLocked(name string) bool {
	at, was := c.off[name]
	return was && c.clock.Now().Sub(at) < max(c.view.ResumeTimeout, time.Minute)
}
