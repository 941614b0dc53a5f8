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
	everybody, nobody := f.c.Queue(nil), f.c.Queue(new(uint32(4711)))
	if len(everybody) != 4 || everybody[0].ID != 7 || len(nobody) != 0 {
		t.Errorf("the queue: %+v, of another: %+v", everybody, nobody)
	}
	plainly, err := f.c.Explain(11)
	if err != nil || plainly.Job.Reference != "11" || len(plainly.Waits) != 1 || plainly.Waits[0] != "Slurm, whose reason is Priority" {
		t.Errorf("a plain job: %+v, %v", plainly, err)
	}
	if _, err := f.c.Explain(12); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("no job: %v", err)
	}
	for job, words := range map[uint32]string{10: "not for a kernel", 11: "never asked", 12: "never asked"} {
		if _, err := f.c.Waiting(t.Context(), job); !errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), words) {
			t.Errorf("job %d: %v", job, err)
		}
	}
}

// A plain job that waits for another job's return is told so.
func TestWhyAJobWaits(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.stop()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.c.view.Nodes = map[string]kb.SlurmNode{"n1": {Name: "n1", Partitions: []string{"batch"}}, "n2": {Name: "n2", Partitions: []string{"batch"}}}
	f.c.view.Queue = []kb.SlurmJob{{ID: 11, Reference: "11", State: "PENDING", Reason: "Resources", Partition: "batch"}}
	id := kb.JobID{Job: 7}
	f.c.records.allocs[id] = &kb.Allocation{ID: id, Phase: kb.PhaseReturning, Since: noon, Nodes: []string{"n1", "n2"}}
	for name, ref := range map[string]kb.Ref{"n1": {Profile: "mitgcm", Version: 1}, "n2": {Profile: kb.StockProfile, Version: 1}} {
		f.c.records.nodes[name] = &kb.Node{Name: name, Owner: id, Running: kb.Proof{Ref: ref}}
	}
	got, err := f.c.Explain(11)
	if err != nil || len(got.Nodes) != 1 || got.Nodes[0].Name != "n1" || !got.Nodes[0].Since.Equal(noon) || len(got.Waits) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	f.c.records.allocs[id].HandedTo = "12"
	if got, err := f.c.Explain(11); err != nil || len(got.Nodes) > 0 {
		t.Errorf("nodes that another job takes over are none that it may get: %+v, %v", got, err)
	}
}
