// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// NoteReboot looks at slurmctld, which has begun to boot nodes, and returns those
// that have no agent to do it: those that an administrator asked it to boot, or a
// job without a profile, and those whose power is off. From 26.05 on Slurm brings
// the latter up for a job by RebootProgram alone. Where the site has no program for
// them they are reset.
func (c *Controller) NoteReboot(ctx context.Context, nodes []string, hasProgram bool) ([]string, error) {
	c.pollNow()
	view, err := c.polls.take(ctx, false)
	if err != nil {
		return nil, err
	}
	plain := c.bootForPlainJobs(ctx, nodes, view)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.plainBoots, plain)
	var others []string
	for _, name := range nodes {
		c.marks.node(name)
		if !c.leftToSiteLocked(name, view.Nodes[name]) {
			continue
		}
		others = append(others, name)
		if !hasProgram && c.o.Reset != nil {
			c.reboots[name] = c.clock.Now()
		}
	}
	c.kickLocked()
	return others, nil
}

// bootForPlainJobs are those of the nodes that Slurm boots for a job that asked for that (sbatch --reboot) and for no
// kernel. The comment of one that asked for a kernel says so from its submission on.
func (c *Controller) bootForPlainJobs(ctx context.Context, nodes []string, view kb.SlurmView) map[string]time.Time {
	plain := map[string]time.Time{}
	for _, j := range view.Jobs {
		on := slices.DeleteFunc(slices.Clone(j.Nodes), func(name string) bool { return !slices.Contains(nodes, name) })
		if j.State != "CONFIGURING" || !j.Reboot || len(on) == 0 {
			continue
		}
		comment, err := c.o.Slurm.AdminComment(ctx, j.ID)
		if err != nil {
			c.log.Warn("comment of the job not read, its nodes are not rebooted unless it asked for a kernel", "job", j.Reference, "error", err)
			continue
		}
		j.AdminComment = comment
		for _, name := range on {
			if !j.Submitted() && view.Nodes[name].Waiting() {
				plain[name] = c.clock.Now()
			}
		}
	}
	return plain
}

// leftToSiteLocked reports whether Slurm has begun to boot a node that no agent boots.
func (c *Controller) leftToSiteLocked(name string, s kb.SlurmNode) bool {
	n := c.records.nodes[name]
	off := n != nil && n.Slurm.PoweredOffBoot != "" || c.wasOffLocked(name)
	_, plain := c.plainBoots[name]
	begun := s.RebootIssued() && s.Free() && (n == nil || n.Pending == nil)
	return c.sessions[name] == nil && (off || plain || begun && plan.AdministratorReboots(n, s))
}

// rebootsLocked asks for the resets of nodes that are left to the site until they are done, or Slurm waits no more. An
// agent that was there a moment ago, or may not have come yet to a broker that has just begun, boots its node itself.
func (c *Controller) rebootsLocked(now time.Time) (reboots []plan.Action) {
	maps.DeleteFunc(c.plainBoots, func(name string, asked time.Time) bool {
		n := c.records.nodes[name]
		return c.view.At.After(asked) && !c.view.Nodes[name].Waiting() || c.sessions[name] != nil && n != nil && n.Reboot != nil // on record
	})
	maps.DeleteFunc(c.reboots, func(name string, asked time.Time) bool {
		return c.view.At.After(asked) && !c.view.Nodes[name].Waiting()
	})
	grace := c.returnGraceLocked()
	for _, name := range slices.Sorted(maps.Keys(c.reboots)) {
		if lost, was := c.lost[name]; was && now.Sub(lost) < grace {
			continue
		}
		reboots = append(reboots, plan.Action{Kind: plan.RebootNode, Node: name, Text: "Slurm wants it booted, and it has no agent"})
	}
	return reboots
}

// reboot resets a node that is left to the site. That may have waited for a while: a node that an agent came from, or
// whose boot Slurm waits for no more, may have a job.
func (e *executor) reboot(ctx context.Context, node string) error {
	c := e.c
	nodes, err := c.o.Slurm.Nodes(ctx, []string{node})
	if err != nil {
		return err
	}
	s := nodes[node]
	c.mu.Lock()
	asked, wanted := c.reboots[node]
	due := wanted && s.Waiting() && c.leftToSiteLocked(node, s) && !c.lost[node].After(asked)
	if !due {
		delete(c.reboots, node)
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	if err := c.o.Reset.Reset(ctx, node); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reboots, node)
	return nil
}
