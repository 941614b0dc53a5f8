// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// restoreLimit bounds how long a job waits for its --no-requeue: after it the
// job begins, and the broker goes on restoring.
const restoreLimit = 10 * time.Second

// restoresLocked reports whether a job whose nodes are ready is yet to get its
// --no-requeue back. A node failure after its script has begun would run it twice.
func (c *Controller) restoresLocked(a *kb.Allocation) bool {
	if a.Phase != kb.PhaseReady || !a.NoRequeue || c.clock.Now().Sub(a.Since) > restoreLimit {
		return false
	}
	job, ok := c.view.Jobs[a.ID.Job]
	return ok && job.Restart == a.ID.Restart && job.Holds() && job.Requeue
}

// lastRun is the newest run of a job that is on record, this one or one before; an empty one if there is none. What its
// user said of it then may have been overwritten since.
func (c *Controller) lastRun(ctx context.Context, id kb.JobID, job kb.SlurmJob) (kb.Allocation, error) {
	last, err := c.records.job(ctx, id.Job, nil)
	if errors.Is(err, kb.ErrNotFound) {
		return kb.Allocation{}, nil
	}
	if err != nil {
		return kb.Allocation{}, err
	}
	if last.UID != job.UID || last.ID.Restart > id.Restart {
		return kb.Allocation{}, nil // Slurm uses ids again, in the end
	}
	return *last, nil
}
