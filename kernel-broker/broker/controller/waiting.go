// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// commentLimit bounds the question for one job's AdminComment, and so many are
	// asked at a time: each is a process, and anybody may ask.
	commentLimit   = 2 * time.Second
	commentsAtOnce = 2
)

// Waiting returns a job that asked for a kernel and waits in Slurm, with its
// AdminComment, as slurmctld was seen last. Tasks of an array that wait share
// their id: the first of them stands for all. The error is ErrNotFound for any
// other job.
func (c *Controller) Waiting(ctx context.Context, job uint32) (kb.SlurmJob, error) {
	found, at := c.queued(job)
	if found.ID == 0 || !found.Reboot {
		return kb.SlurmJob{}, fmt.Errorf("job %d never asked for a kernel, as slurmctld was seen %v ago: %w", job, c.clock.Now().Sub(at).Round(time.Second), kb.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, commentLimit)
	defer cancel()
	err := c.comments.Acquire(ctx, 1)
	if err != nil {
		return kb.SlurmJob{}, fmt.Errorf("job %d: its AdminComment was not read: %w: %w", job, kb.ErrUnavailable, err)
	}
	defer c.comments.Release(1)
	if found.AdminComment, err = c.o.Slurm.AdminComment(ctx, job); err != nil {
		return kb.SlurmJob{}, err
	}
	if !found.Submitted() {
		return kb.SlurmJob{}, fmt.Errorf("job %d asked Slurm to boot its nodes, and not for a kernel: %w", job, kb.ErrNotFound)
	}
	return found, nil
}

// Queue returns the jobs that requested a boot and have had no nodes in this run of theirs, as slurmctld was seen last, in
// its order; of one user, if of is not nil. Only the first have their AdminComment.
func (c *Controller) Queue(of *uint32) []kb.SlurmJob {
	c.mu.Lock()
	defer c.mu.Unlock()
	var queue []kb.SlurmJob
	for _, j := range c.view.Queue {
		if j.Reboot && (of == nil || *of == j.UID) && c.records.allocs[kb.JobID{Job: j.ID, Restart: j.Restart}] == nil {
			queue = append(queue, j)
		}
	}
	return queue
}

// queued is a job that has had no kernel yet, and when slurmctld was seen.
func (c *Controller) queued(job uint32) (kb.SlurmJob, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j, has := c.view.Jobs[job]; has {
		return j, c.view.At
	}
	var first kb.SlurmJob
	for _, j := range c.view.Queue {
		switch {
		case j.ID != job:
		case first.ID == 0:
			first = j
		default: // one of several
			first.Reference = fmt.Sprint(job)
		}
	}
	return first, c.view.At
}
