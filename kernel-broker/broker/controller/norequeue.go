// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
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
	if last.UID != job.UID || last.ID.Restart > id.Restart || last.ID == id && !c.maybeAgain(last.Since) {
		return kb.Allocation{}, nil // of another job
	}
	return *last, nil
}

// forgotten is how long after it ended slurmctld may start the same run of a job once more, since it was killed and forgot
// it. Slurm gives ids again, in the end: an older record with the id is another job's.
const forgotten = 24 * time.Hour

// goOn puts what happened to a run before slurmctld started it once more in front of what happens to it now. The record with
// its id may be none, or another job's.
func (c *Controller) goOn(a, have *kb.Allocation) {
	if have != nil && have.UID == a.UID && c.maybeAgain(have.Since) {
		a.Timeline, a.LeftOut = append(slices.Clone(have.Timeline), a.Timeline...), have.LeftOut
	}
}

// maybeAgain reports whether a run that begins now may be the one on record, of which the last was noted then.
func (c *Controller) maybeAgain(since time.Time) bool { return c.clock.Now().Sub(since) < forgotten }
