// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Release wakes the broker after a job's end; it looks at slurmctld itself.
func (c *Controller) Release(kb.JobID) { c.pollNow() }

// Job returns one run of a job, the newest when restart is nil.
func (c *Controller) Job(ctx context.Context, job uint32, restart *uint32) (*kb.Allocation, error) {
	return c.records.job(ctx, job, restart)
}

// Jobs returns the newest runs; of one user, if of is not nil.
func (c *Controller) Jobs(ctx context.Context, limit int, of *uint32) ([]*kb.Allocation, error) {
	return c.records.jobs(ctx, limit, of)
}

// InUse returns the kernels that jobs which are not over and boots under way
// hold on to, with what holds each.
func (c *Controller) InUse() map[kb.Ref][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := map[kb.Ref][]string{}
	for _, a := range c.records.allocs {
		held[a.Kernel.Ref()] = append(held[a.Kernel.Ref()], "job "+a.Reference)
	}
	for _, n := range c.records.nodes {
		if n.Pending != nil {
			held[n.Pending.Kernel.Ref()] = append(held[n.Pending.Kernel.Ref()], "node "+n.Name)
		}
		if n.Desired.Version != 0 {
			held[n.Desired] = append(held[n.Desired], "node "+n.Name)
		}
	}
	return held
}

// Nodes returns every node, sorted by name. There may be ten thousand, and
// a listing must not keep the broker from its work: under the lock the nodes
// are only gathered. A record is not changed once it is there, but
// replaced by another.
func (c *Controller) Nodes() []kb.NodeView {
	views := c.gather()
	slices.SortFunc(views, func(a, b kb.NodeView) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	for i := range views {
		views[i].Node = views[i].Node.Clone()
	}
	return views
}

func (c *Controller) gather() []kb.NodeView {
	c.mu.Lock()
	defer c.mu.Unlock()
	views := make([]kb.NodeView, 0, len(c.records.nodes))
	for name := range c.records.nodes {
		views = append(views, c.viewLocked(name))
	}
	return views
}

// viewLocked has the record itself in it, which is for reading only.
func (c *Controller) viewLocked(name string) kb.NodeView {
	v := kb.NodeView{Node: c.records.nodes[name], LastSeen: c.lost[name], Slurm: c.view.Nodes[name]}
	if s := c.sessions[name]; s != nil {
		v.Connected, v.LastSeen, v.AgentVersion = true, c.clock.Now(), s.version
		if s.slurmd != nil && !s.slurmd.running {
			v.SlurmdCause = s.slurmd.detail
		}
	}
	if a := c.records.allocs[v.Node.Owner]; a != nil {
		v.JobUID = a.UID
	}
	return v
}

// Node returns one node.
func (c *Controller) Node(name string) (kb.NodeView, error) {
	if err := kb.ValidateNodeName(name); err != nil {
		return kb.NodeView{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records.nodes[name] == nil {
		return kb.NodeView{}, fmt.Errorf("node %q never connected: %w", name, kb.ErrNotFound)
	}
	v := c.viewLocked(name)
	v.Node = v.Node.Clone()
	return v, nil
}

// SlurmHealth says whether slurmctld could be seen at the last look.
func (c *Controller) SlurmHealth(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.viewErr != nil {
		return "", c.viewErr
	}
	return fmt.Sprintf("%d nodes, %d jobs with nodes, seen %v ago%s", len(c.view.Nodes), len(c.view.Jobs),
		c.clock.Now().Sub(c.view.At).Round(time.Millisecond), c.outLocked()+c.unreadLocked()), nil
}

// unreadLocked names the jobs of which squeue's row could not be read; they get no kernel.
func (c *Controller) unreadLocked() string {
	unread := 0
	first := kb.SlurmJob{}
	count := func(j kb.SlurmJob) {
		if j.Unread == "" {
			return
		}
		if unread++; first.ID == 0 || j.ID < first.ID {
			first = j
		}
	}
	for _, j := range c.view.Jobs {
		count(j)
	}
	for _, j := range c.view.Queue {
		count(j)
	}
	if unread == 0 {
		return ""
	}
	return fmt.Sprintf("; jobs whose row in squeue cannot be read, and that get no kernel: %d, the first is %s (%s)", unread, first.Reference, first.Unread)
}

// mostOut is how many nodes that are out of service are named.
const mostOut = 8

// outLocked names the nodes that Slurm gives no job, and whose return that does
// not end.
func (c *Controller) outLocked() string {
	var out []string
	for name := range c.records.nodes {
		if c.view.Nodes[name].Out() {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	slices.Sort(out)
	more := ""
	if n := len(out) - mostOut; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("; drained or down: %s%s (kernelctl node list says why)", strings.Join(out[:min(len(out), mostOut)], ", "), more)
}

// AgentHealth says how many agents are connected.
func (c *Controller) AgentHealth(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d of %d nodes connected", len(c.sessions), len(c.records.nodes)), nil
}
