// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// refusals last until somebody changes something.
var refusals = []error{kb.ErrNotFound, kb.ErrQuarantined, kb.ErrRetired, kb.ErrFailedPrecondition, kb.ErrDenied}

// refused holds a job that cannot get its kernel as things are, with the
// reason where its user looks, records that, and passes the refusal on.
func (c *Controller) refused(ctx context.Context, r Request, job kb.SlurmJob, have *kb.Allocation, revision int64, err error) error {
	if !slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return err
	}
	c.log.Warn("allocation refused", "job", r.ID.String(), "user", job.User, "profile", r.Ref.String(), "error", err)
	a := c.refusal(ctx, r, job, have, err)
	a.Comment = kb.Comment{Text: a.Reason, Collectors: a.Collectors, NoRequeue: a.NoRequeue}.String()
	if cerr := c.o.Slurm.Comment(ctx, job.Reference, a.Comment); cerr != nil {
		c.log.Warn("reason not written to the job", "job", r.ID.String(), "error", cerr)
	}
	herr := c.hold(ctx, r.ID, job.Reference)
	if herr != nil {
		c.log.Warn("job not held", "job", r.ID.String(), "error", herr)
	}
	a.Requeued = herr == nil
	if rerr := c.recordRefusal(ctx, a, revision); rerr != nil {
		c.log.Warn("refusal not recorded, job list does not show the job", "job", r.ID.String(), "error", rerr)
	}
	return err
}

// refusal is the record of a job that asked for a kernel and got none. What it asked at its submission stays in its comment,
// for when it is released.
func (c *Controller) refusal(ctx context.Context, r Request, job kb.SlurmJob, have *kb.Allocation, why error) *kb.Allocation {
	comment, err := c.o.Slurm.AdminComment(ctx, job.ID)
	if err != nil {
		c.log.Warn("comment of the job not read, it is not profiled when it is released", "job", job.Reference, "error", err)
	}
	job.AdminComment = comment
	last, err := c.lastRun(ctx, r.ID, job)
	if err != nil {
		c.log.Warn("record of the job not read, it may be requeued when it is released", "job", job.Reference, "error", err)
	}
	now := c.clock.Now()
	a := &kb.Allocation{
		ID: r.ID, Reference: job.Reference, User: job.User, UID: job.UID, Requested: r.Ref, Kernel: kb.Kernel{Profile: r.Ref.Profile, Version: r.Ref.Version},
		Collectors: c.collectorsFor(job), NoRequeue: job.SaidNoRequeue() || last.NoRequeue, Missed: last.Missed, Nodes: r.Nodes,
		Created: now, Ended: now, Hold: true, Reason: why.Error(),
	}
	c.goOn(a, have)
	a.Note(now, "", string(kb.PhaseAccepted), fmt.Sprintf("%s asked for %s", job.User, r.Ref))
	a.Enter(kb.PhaseFailed, now, "refused: "+a.Reason)
	return a
}

// recordRefusal keeps that the job asked for a kernel and why it got none. Nothing is left to do for it but on nodes without
// an agent, for whose boots Slurm waits.
func (c *Controller) recordRefusal(ctx context.Context, a *kb.Allocation, revision int64) error {
	if c.records.hasRoomFor(a) != nil {
		a.Nodes = nil // too many for a record may be why it is refused
	}
	defer c.toWrite()()
	a.Closed = !slices.ContainsFunc(a.Nodes, func(name string) bool { return !c.hadAgentLocked(name) })
	if other := c.records.allocs[a.ID]; other != nil && !isReleasing(other) { // another request was accepted meanwhile
		return nil
	}
	if revision != 0 {
		c.records.revisions[jobKey(a.ID)] = revision
	}
	err := c.records.commit(ctx, nil, []*kb.Allocation{a})
	if err != nil {
		c.stale = true
	}
	c.marks.job(a.ID)
	return err
}
