// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A job that may not use its profile is held with the reason before anything
// boots, whoever its hook says that it is; and it is judged as slurmctld knows
// it.
func TestEnsureUnauthorized(t *testing.T) {
	f := newFixture(t)
	var asked []kb.SlurmJob
	f.start()
	f.c.o.Authorize = func(_ context.Context, job kb.SlurmJob, ref kb.Ref) error {
		asked = append(asked, job)
		return fmt.Errorf("%w: not for you", kb.ErrDenied)
	}
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.Is(err, kb.ErrDenied) {
		t.Errorf("Ensure: %v", err)
	}
	if f.slurm.seen("hold 7") != 1 || f.slurm.seen("comment 7 kernel-broker: permission denied: not for you") != 1 || f.slurm.seen("arm") != 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	if len(asked) != 1 || asked[0].ID != 7 || asked[0].State != "CONFIGURING" || len(asked[0].Nodes) != 1 {
		t.Errorf("asked about %+v", asked)
	}
	if a, err := f.c.Job(t.Context(), 7, nil); err != nil || a.Phase != kb.PhaseFailed || !a.Closed || len(a.Kernel.ImageDigest) != 0 {
		t.Errorf("the record: %+v, %v", a, err)
	}
}

// While nobody can say, the job is neither held nor switched.
func TestEnsureWhileAuthorizationFails(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.c.o.Authorize = func(context.Context, kb.SlurmJob, kb.Ref) error { return kb.ErrUnavailable }
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("Ensure: %v", err)
	}
	if f.slurm.seen("hold 7") != 0 || f.slurm.seen("arm") != 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
}
