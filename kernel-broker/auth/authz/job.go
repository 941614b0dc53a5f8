// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// waitsEvery is how often the log says that jobs wait: each asks every few seconds.
const waitsEvery = time.Minute

// AuthorizeJob decides whether a job, as slurmctld knows it, may use a profile,
// whatever its hook said. The error is ErrDenied for one that may not, and
// ErrUnavailable while nobody can say.
func (a *Authorizer) AuthorizeJob(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error {
	err := a.authorizeJob(ctx, job, Use, ref)
	if err != nil && !errors.Is(err, kb.ErrDenied) {
		a.waits.Do(func() {
			a.o.Log.Warn("job waits, it is neither held nor given its kernel", "job", job.Reference, "user", job.User, "uid", job.UID, "error", err)
		})
	}
	return err
}

// AuthorizeProfiling decides likewise whether the job may be profiled on a profile's kernel.
func (a *Authorizer) AuthorizeProfiling(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error {
	return a.authorizeJob(ctx, job, Profile, ref)
}

func (a *Authorizer) authorizeJob(ctx context.Context, job kb.SlurmJob, action Action, ref kb.Ref) error {
	known := Job{Partition: job.Partition}
	if a.State().Policy.NeedsAccounts() {
		account, err := a.o.JobAccount(ctx, job.ID)
		if err != nil {
			return err
		}
		known.Account = account
	}
	caller := Caller{UID: job.UID, Name: nameIn(job), By: "slurmctld", From: "job " + job.Reference}
	d, err := a.Authorize(ctx, caller, action, ref.String(), &known)
	if err != nil {
		return err
	}
	d.Via = "job " + job.Reference + " restart " + strconv.FormatUint(uint64(job.Restart), 10)
	if _, err := a.Note(d, true); err != nil {
		return err
	}
	if !d.Allowed {
		return fmt.Errorf("%w: %s", kb.ErrDenied, d.Reason)
	}
	return nil
}

// nameIn is what Slurm calls a job's user; empty where that is a number.
func nameIn(job kb.SlurmJob) string {
	if job.User == strconv.FormatUint(uint64(job.UID), 10) {
		return ""
	}
	return job.User
}
