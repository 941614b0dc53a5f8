// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const begunPrefix = "begun-boots/"

func begunKey(node string) string { return begunPrefix + node }

var begunKind = record.Kind[kb.BegunBoot]{
	Prefix: begunPrefix,
	Entry:  func(b *kb.BegunBoot) record.Entry { return record.Entry{Key: begunKey(b.Node)} },
}

func loadBegun(ctx context.Context, s store.Store, revisions map[string]int64) (map[string]kb.BegunBoot, error) {
	begun := map[string]kb.BegunBoot{}
	err := begunKind.Each(ctx, s, func(b *kb.BegunBoot, rec store.Record) {
		begun[b.Node], revisions[rec.Key] = *b, rec.Revision
	})
	return begun, err
}

// beginBoots puts boots on record. On an error the caller must load again.
func (r *records) beginBoots(ctx context.Context, boots []kb.BegunBoot) error {
	var writes []store.Write
	for _, b := range boots {
		key := begunKey(b.Node)
		data, err := record.Encode(key, b)
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Key: key, Value: data, Expect: r.revisions[key]})
	}
	revisions, err := r.write(ctx, store.Split(writes, r.store.Limits()), nil)
	if err != nil {
		return err
	}
	maps.Copy(r.revisions, revisions)
	for _, b := range boots {
		r.begun[b.Node] = b
	}
	return nil
}

// endBoots forgets boots that are over. On an error the caller must load again.
func (r *records) endBoots(ctx context.Context, nodes []string) error {
	if len(nodes) == 0 {
		return nil // as after most passes
	}
	var writes []store.Write
	for _, name := range nodes {
		writes = append(writes, store.Write{Key: begunKey(name), Delete: true, Expect: r.revisions[begunKey(name)]})
	}
	if _, err := r.write(ctx, store.Split(writes, r.store.Limits()), nil); err != nil {
		return err
	}
	for _, name := range nodes {
		delete(r.begun, name)
		delete(r.revisions, begunKey(name))
	}
	return nil
}

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
	defer c.toWrite()()
	var others []string
	var begun []kb.BegunBoot
	for _, name := range nodes {
		c.marks.node(name)
		b := kb.BegunBoot{Node: name, At: c.clock.Now(), ForJob: plain[name]}
		if plan.LeftToSite(c.records.nodes[name], view.Nodes[name], c.sessions[name] != nil, c.wasOffLocked(name), b.ForJob) {
			others = append(others, name)
			b.Reset = !hasProgram && c.o.Reset != nil
		}
		if b.ForJob || b.Reset {
			begun = append(begun, b)
		}
	}
	if err := c.records.beginBoots(ctx, begun); err != nil {
		c.stale = true
		return nil, fmt.Errorf("boots of %d nodes are not on record: %w: %w", len(nodes), kb.ErrUnavailable, err)
	}
	c.kickLocked()
	return others, nil
}

// bootForPlainJobs are those of the nodes that Slurm boots for a job that asked for that (sbatch --reboot) and for no
// kernel. The comment of one that asked for a kernel says so from its submission on.
func (c *Controller) bootForPlainJobs(ctx context.Context, nodes []string, view kb.SlurmView) map[string]bool {
	plain := map[string]bool{}
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
			plain[name] = plain[name] || !j.Submitted() && view.Nodes[name].Waiting()
		}
	}
	return plain
}

// reboot resets a node that is left to the site. That may have waited for a while: a node that an agent came from, or
// whose boot Slurm waits for no more, may have a job.
func (e *executor) reboot(ctx context.Context, a plan.Action) error {
	c := e.c
	nodes, err := c.o.Slurm.Nodes(ctx, []string{a.Node})
	if err != nil {
		return err
	}
	c.mu.Lock()
	due := c.records.begun[a.Node].Reset && nodes[a.Node].Waiting() && c.sessions[a.Node] == nil &&
		!plan.Done(c.receipts, a.Kind, a.Node)
	c.mu.Unlock()
	if !due {
		return errNotDue
	}
	return c.o.Reset.Reset(ctx, a.Node)
}
