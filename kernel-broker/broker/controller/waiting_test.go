// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A job that waits has no record yet; what it asked for is in slurmctld.
func TestAJobThatWaitsIsFound(t *testing.T) {
	f := newFixture(t)
	asked := func(id, task uint32, reference, reason string) kb.SlurmJob {
		return kb.SlurmJob{ID: id, Task: task, Reference: reference, State: "PENDING", Reason: reason, Reboot: true, UID: 1000}
	}
	plain := asked(11, 0, "11", "Priority")
	plain.Reboot = false
	f.slurm.queue = []kb.SlurmJob{asked(7, 0, "7", "JobHeldUser"), asked(9, 1, "9_1", "Priority"), asked(9, 2, "9_2", "Priority"), asked(10, 0, "10", "Priority"), plain}
	f.slurm.comments["7"], f.slurm.comments["9"] = "kernel-broker: mitgcm requested", "kernel-broker: mitgcm@3 requested"
	f.start()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, at := f.c.queued(7); !at.IsZero() || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	got, err := f.c.Waiting(t.Context(), 7)
	if ref, asked := got.Requested(); err != nil || !asked || ref.Profile != "mitgcm" || got.Reason != "JobHeldUser" {
		t.Errorf("a held job: %+v, %v", got, err)
	}
	if got, err = f.c.Waiting(t.Context(), 9); err != nil || got.Reference != "9" {
		t.Errorf("an array: %+v, %v", got, err)
	}
	for job, words := range map[uint32]string{10: "not for a kernel", 11: "never asked", 12: "never asked"} {
		if _, err := f.c.Waiting(t.Context(), job); !errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), words) {
			t.Errorf("job %d: %v", job, err)
		}
	}
}
