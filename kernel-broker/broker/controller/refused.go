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

// refusal is the comment of a job that is refused. What it asked of the profiling
// stays in it, for when it is released.
func (c *Controller) refusal(ctx context.Context, job kb.SlurmJob, err error) string {
	said := kb.Comment{Text: err.Error()}
	comment, lost := c.o.Slurm.AdminComment(ctx, job.ID)
	if lost != nil {
		c.log.Warn("comment of the job not read, it is not profiled when it is released", "job", job.Reference, "error", lost)
		return said.String()
	}
	job.AdminComment = comment
	last, lost := c.lastRun(ctx, kb.JobID{Job: job.ID, Restart: job.Restart}, job)
	if lost != nil {
		c.log.Warn("record of the job not read, it may be requeued when it is released", "job", job.Reference, "error", lost)
	}
	said.Collectors, said.NoRequeue = c.collectorsFor(job), job.SaidNoRequeue() || last.NoRequeue
	return said.String()
}

// refused holds a job that cannot get its kernel as things are, with the
// reason where its user looks, records that, and passes the refusal on.
func (c *Controller) refused(ctx context.Context, r Request, job kb.SlurmJob, have *kb.Allocation, revision int64, err error) error {
	if !slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return err
	}
	c.log.Warn("allocation refused", "job", r.ID.String(), "user", job.User, "profile", r.Ref.String(), "error", err)
	if cerr := c.o.Slurm.Comment(ctx, job.Reference, c.refusal(ctx, job, err)); cerr != nil {
		c.log.Warn("reason not written to the job", "job", r.ID.String(), "error", cerr)
	}
	herr := c.hold(ctx, r.ID, job.Reference)
	if herr != nil {
		c.log.Warn("job not held", "job", r.ID.String(), "error", herr)
	}
	if rerr := c.recordRefusal(ctx, r, job, have, revision, err, herr == nil); rerr != nil {
		c.log.Warn("refusal not recorded, job list does not show the job", "job", r.ID.String(), "error", rerr)
	}
	return err
}

// recordRefusal keeps that the job asked for a kernel and why it got none. Nothing is left to do for it: the record is closed.
func (c *Controller) recordRefusal(ctx context.Context, r Request, job kb.SlurmJob, have *kb.Allocation, revision int64, why error, held bool) error {
	last, err := c.lastRun(ctx, r.ID, job)
	if err != nil {
		return err
	}
	now := c.clock.Now()
	a := &kb.Allocation{
		ID: r.ID, Reference: job.Reference, User: job.User, UID: job.UID, Requested: r.Ref, Kernel: kb.Kernel{Profile: r.Ref.Profile, Version: r.Ref.Version},
		NoRequeue: job.SaidNoRequeue() || last.NoRequeue, Missed: last.Missed, Nodes: r.Nodes,
		Created: now, Ended: now, Hold: true, Requeued: held, Closed: true, Reason: why.Error(),
	}
	c.goOn(a, have)
	a.Note(now, "", string(kb.PhaseAccepted), fmt.Sprintf("%s asked for %s", job.User, r.Ref))
	a.Enter(kb.PhaseFailed, now, "refused: "+a.Reason)
	if c.records.hasRoomFor(a) != nil {
		a.Nodes = nil // too many for a record may be why it is refused
	}
	defer c.toWrite()()
	if c.records.allocs[r.ID] != nil { // another request was accepted meanwhile
		return nil
	}
	if revision != 0 {
		c.records.revisions[jobKey(r.ID)] = revision
	}
	if err = c.records.commit(ctx, nil, []*kb.Allocation{a}); err != nil {
		c.stale = true
	}
	return err
}
