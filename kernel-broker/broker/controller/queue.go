// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/turns"
)

// requireSlot refuses a job while the site's number of switches is under way
// (switch.at_once): its prolog asks again.
func (c *Controller) requireSlot(ctx context.Context, id kb.JobID) error {
	c.mu.Lock()
	ahead, waited := c.askLocked(id)
	limit := c.view.ResumeTimeout / 2
	job, known := c.view.Jobs[id.Job]
	age := c.clock.Now().Sub(c.view.At)
	c.mu.Unlock()
	if ahead < 0 {
		return nil
	}
	if !known || job.Restart != id.Restart || !job.Holds() {
		if age < waited {
			// Slurm starts the job anew when this run's prolog has ended.
			return fmt.Errorf("job %s has no nodes in slurmctld and is not queued: %w", id, kb.ErrNotFound)
		}
		job.Reference = fmt.Sprint(id.Job)
	}
	text := fmt.Sprintf("waits for its turn, %d ahead", ahead)
	if limit > 0 && waited > limit && known {
		// Its nodes would be taken down for not having booted.
		text = fmt.Sprintf("it waited longer than %v, half of ResumeTimeout, for its turn; it is requeued and keeps its place, %d ahead", limit, ahead)
		if err := c.o.Slurm.Requeue(ctx, job.Reference); err != nil {
			c.log.Warn("job that waits for its turn not requeued", "job", id.String(), "error", err)
		}
	}
	c.commentPosition(ctx, id, job, text)
	return &kb.RetryableError{Wait: turns.AskEvery, Err: fmt.Errorf("job %s waits for its turn, %d ahead: other jobs are being given their kernels, at most %d at a time (switch.at_once in broker.yaml); the hook retries in %v: %w",
		id, ahead, c.o.Switches, turns.AskEvery, kb.ErrExhausted)}
}

// commentPosition writes a job's position to its AdminComment and keeps the
// requests for profiling and --no-requeue that are there.
func (c *Controller) commentPosition(ctx context.Context, id kb.JobID, job kb.SlurmJob, text string) {
	c.mu.Lock()
	news := c.line.News(id, text)
	c.mu.Unlock()
	if !news {
		return
	}
	comment, err := c.o.Slurm.AdminComment(ctx, id.Job)
	if err == nil {
		job.AdminComment = comment
		err = c.o.Slurm.Comment(ctx, job.Reference, job.KeepRequest(text))
	}
	if err != nil {
		c.log.Warn("queue position not written to the job", "job", id.String(), "error", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line.Said(id, text)
}

// askLocked has a job ask for its turn.
func (c *Controller) askLocked(id kb.JobID) (ahead int, waited time.Duration) {
	under := 0
	for _, a := range c.records.allocs {
		if a.Switching() {
			under++
		}
	}
	return c.line.Ask(id, under, time.Now())
}
