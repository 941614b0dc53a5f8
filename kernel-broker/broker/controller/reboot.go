// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// NoteReboot looks at slurmctld, which has begun to boot nodes, and returns those
// that have no agent to do it: those that an administrator asked it to boot, and
// those whose power is off. From 26.05 on Slurm brings the latter up for a job by
// RebootProgram alone. Where the site has no program for them they are reset.
func (c *Controller) NoteReboot(ctx context.Context, nodes []string, hasProgram bool) ([]string, error) {
	c.pollNow()
	view, err := c.polls.take(ctx, false)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var others []string
	for _, name := range nodes {
		n, s := c.records.nodes[name], view.Nodes[name]
		off := n != nil && n.Off != ""
		begun := s.RebootIssued() && s.Free() && (n == nil || n.Pending == nil)
		if c.sessions[name] != nil || !off && (!begun || !plan.AdministratorReboots(n, s)) {
			continue
		}
		others = append(others, name)
		if !hasProgram && c.o.Reset != nil {
			c.actions.submit(plan.Action{Kind: plan.RebootNode, Node: name, Text: "Slurm wants it booted, and it has no agent"})
		}
	}
	return others, nil
}
