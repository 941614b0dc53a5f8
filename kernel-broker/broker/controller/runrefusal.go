// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
)

// runOf is a new run of a job.
func (c *Controller) runOf(id kb.JobID, job kb.SlurmJob, cgroup string, kernel kb.Ref, collectors []string) *kb.Run {
	now := c.clock.Now()
	return &kb.Run{State: kb.RunRequested, Since: now, Collectors: collectors, RequestedBy: job.User, Requested: now,
		Job: id, Reference: job.Reference, User: job.User, UID: job.UID, Cgroup: cgroup, Kernel: kernel}
}

// runOfJob is the run that a user's job has, or nil. One that is over may be of an earlier job with the same id.
func (c *Controller) runOfJob(ctx context.Context, id kb.JobID, uid uint32) (*kb.Run, error) {
	runs, err := runKind.List(ctx, c.records.store, &c.records.runIndex, 1, func(e record.Entry) bool { return e.Job == id && e.UID == uid })
	if err != nil || len(runs) == 0 || runs[0].Over() && !c.maybeAgain(runs[0].Since) {
		return nil, err
	}
	return runs[0], nil
}

// mayProfile decides whether a job is profiled. While nobody can say, it is not: no job waits for its profiling.
func (c *Controller) mayProfile(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error {
	if c.o.AuthorizeProfiling == nil {
		return nil
	}
	return c.o.AuthorizeProfiling(ctx, job, ref)
}

// refuseRun makes of a run one that is over, so that its user reads why the job is not profiled.
func refuseRun(r *kb.Run, reason string) {
	r.Enter(kb.RunFailed, r.Since, kb.OneLine(reason))
	r.Nodes = nil
}

// deniedRun records that a job that gets a kernel may not be profiled, and returns that run; 0 if it may be.
func (c *Controller) deniedRun(ctx context.Context, id kb.JobID, job kb.SlurmJob, kernel kb.Ref, collectors []string) (uint64, error) {
	if len(collectors) == 0 {
		return 0, nil
	}
	denied := c.mayProfile(ctx, job, kernel)
	if denied == nil {
		return 0, nil
	}
	r, err := c.runOfJob(ctx, id, job.UID)
	if err == nil && r == nil {
		r = c.runOf(id, job, "", kernel, collectors)
		refuseRun(r, "not profiled: "+denied.Error())
		r, err = c.recordRun(ctx, r)
	}
	if err != nil {
		return 0, err
	}
	return r.ID, nil
}
