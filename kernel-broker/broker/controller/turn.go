// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// turn is a job's place in the line of those that wait until fewer switches are
// under way. A job keeps it when it is requeued. The line is in memory alone:
// after a restart of the broker it forms again out of those who ask.
type turn struct {
	first time.Time // since it waits
	asked time.Time // when its hook asked last
	id    kb.JobID  // the run that waits, since begun
	begun time.Time
}

const (
	// roomWait is when to ask again.
	roomWait = 5 * time.Second
	// turnKept is how long the place of a job that does not ask is kept: Slurm
	// lets a requeued one begin after two minutes.
	turnKept = 5 * time.Minute
	// turnHere is how lately a job has asked that others wait for.
	turnHere = 3 * roomWait
)

// room refuses a job while there are as many switches under way as there may
// be: its prolog waits for its turn. What slurmctld, the network and the power
// can bear at a time, a site knows.
func (c *Controller) room(ctx context.Context, id kb.JobID) error {
	c.mu.Lock()
	ahead, waited := c.aheadLocked(id)
	limit := c.view.ResumeTimeout / 2
	job, known := c.view.Jobs[id.Job]
	c.mu.Unlock()
	if ahead < 0 {
		return nil
	}
	if !known || job.Restart != id.Restart {
		job.Reference = fmt.Sprint(id.Job)
	}
	text := fmt.Sprintf("kernel-broker: waits for its turn, %d ahead", ahead)
	if limit > 0 && waited > limit && known {
		// Its nodes would be taken down for not having booted.
		text = fmt.Sprintf("kernel-broker: its turn did not come within %v, the half of ResumeTimeout; it is requeued and keeps its place, %d ahead", limit, ahead)
		if err := c.o.Slurm.Requeue(ctx, job.Reference); err != nil {
			c.log.Warn("job that waits for its turn not requeued", "job", id.String(), "error", err)
		}
	}
	c.sayTurn(ctx, id, job, text)
	return &kb.RetryableError{Wait: roomWait, Err: fmt.Errorf("job %s waits for its turn, %d ahead: other jobs are being given their kernels, at most %d at a time (switch.at_once in broker.yaml); it is asked for again in %v: %w",
		id, ahead, c.o.Switches, roomWait, kb.ErrExhausted)}
}

// sayTurn tells a job's user how far the line has come, and keeps what the job
// asked of the profiling.
func (c *Controller) sayTurn(ctx context.Context, id kb.JobID, job kb.SlurmJob, text string) {
	c.mu.Lock()
	said := c.said[id] == text
	c.mu.Unlock()
	if said {
		return
	}
	comment, err := c.o.Slurm.AdminComment(ctx, id.Job)
	if err == nil {
		job.AdminComment = comment
		said := kb.WithProfiling(text, c.collectorsFor(job))
		if job.SaidNoRequeue() {
			said = kb.WithNoRequeue(said)
		}
		err = c.o.Slurm.Comment(ctx, job.Reference, said)
	}
	if err != nil {
		c.log.Warn("job not told of its turn", "job", id.String(), "error", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[id] = text
}

// aheadLocked counts who comes before a job, and how long this run of it has
// waited; less than 0 when it is its turn, which takes it out of the line.
func (c *Controller) aheadLocked(id kb.JobID) (ahead int, waited time.Duration) {
	if c.o.Switches == 0 {
		return -1, 0
	}
	now := time.Now()
	for job, t := range c.line {
		if now.Sub(t.asked) > turnKept {
			delete(c.line, job)
			delete(c.said, t.id)
		}
	}
	own := c.line[id.Job]
	if own == nil {
		own = &turn{first: now}
		c.line[id.Job] = own
	}
	if own.id != id {
		delete(c.said, own.id)
		own.id, own.begun = id, now
	}
	own.asked = now
	under := 0
	for _, a := range c.records.allocs {
		if a.Switching() {
			under++
		}
	}
	for job, t := range c.line {
		before := t.first.Before(own.first) || t.first.Equal(own.first) && job < id.Job
		if before && now.Sub(t.asked) < turnHere {
			ahead++
		}
	}
	if under+ahead < c.o.Switches {
		return -1, 0
	}
	return ahead, now.Sub(own.begun)
}

// inLineLocked are the runs of jobs that wait for their turn.
func (c *Controller) inLineLocked() map[kb.JobID]bool {
	waiting := map[kb.JobID]bool{}
	for _, t := range c.line {
		if time.Since(t.asked) < turnHere {
			waiting[t.id] = true
		}
	}
	return waiting
}
