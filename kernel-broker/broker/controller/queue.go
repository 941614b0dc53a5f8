// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// queuePosition is a job's position among those that wait until fewer switches are
// under way. A job keeps it when it is requeued. The queue is in memory only: after a
// restart of the broker the jobs that ask form it again.
type queuePosition struct {
	first time.Time // start of the wait
	asked time.Time // the hook's last request
	id    kb.JobID  // the run that waits since begun
	begun time.Time
}

const (
	// queueRetry is the time between two requests of a hook.
	queueRetry = 5 * time.Second
	// positionKept is how long a job keeps its position without a request: Slurm
	// starts a requeued job after two minutes.
	positionKept = 5 * time.Minute
	// askedLately is the age of the last request up to which a job counts for those
	// behind it.
	askedLately = 3 * queueRetry
)

// requireSlot refuses a job while the site's number of switches is under way
// (switch.at_once): its prolog asks again.
func (c *Controller) requireSlot(ctx context.Context, id kb.JobID) error {
	c.mu.Lock()
	ahead, waited := c.aheadLocked(id)
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
	return &kb.RetryableError{Wait: queueRetry, Err: fmt.Errorf("job %s waits for its turn, %d ahead: other jobs are being given their kernels, at most %d at a time (switch.at_once in broker.yaml); the hook retries in %v: %w",
		id, ahead, c.o.Switches, queueRetry, kb.ErrExhausted)}
}

// commentPosition writes a job's position to its AdminComment and keeps the
// requests for profiling and --no-requeue that are there.
func (c *Controller) commentPosition(ctx context.Context, id kb.JobID, job kb.SlurmJob, text string) {
	c.mu.Lock()
	said := c.positions[id] == text
	c.mu.Unlock()
	if said {
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
	c.positions[id] = text
}

// aheadLocked returns how many jobs are before a job, and how long this run of it
// has waited. It returns -1 for a job that may switch now.
func (c *Controller) aheadLocked(id kb.JobID) (ahead int, waited time.Duration) {
	if c.o.Switches == 0 {
		return -1, 0
	}
	now := time.Now()
	for job, t := range c.waiting {
		if now.Sub(t.asked) > positionKept {
			delete(c.waiting, job)
			delete(c.positions, t.id)
		}
	}
	own := c.waiting[id.Job]
	if own == nil {
		own = &queuePosition{first: now}
		c.waiting[id.Job] = own
	}
	if own.id != id {
		delete(c.positions, own.id)
		own.id, own.begun = id, now
	}
	own.asked = now
	under := 0
	for _, a := range c.records.allocs {
		if a.Switching() {
			under++
		}
	}
	for job, t := range c.waiting {
		before := t.first.Before(own.first) || t.first.Equal(own.first) && job < id.Job
		if before && now.Sub(t.asked) < askedLately {
			ahead++
		}
	}
	if under+ahead < c.o.Switches {
		return -1, 0
	}
	return ahead, now.Sub(own.begun)
}

// queuedLocked returns the runs of jobs that wait for a switch.
func (c *Controller) queuedLocked() map[kb.JobID]bool {
	waiting := map[kb.JobID]bool{}
	for _, t := range c.waiting {
		if time.Since(t.asked) < askedLately {
			waiting[t.id] = true
		}
	}
	return waiting
}
