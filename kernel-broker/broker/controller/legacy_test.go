// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Records of 51042c9f, whose fields became kb.SlurmSide.
func TestNodesFrom51042c9f(t *testing.T) {
	at := time.Date(2026, 11, 28, 6, 12, 16, 0, time.UTC)
	ours, job := kb.OwnerBroker, kb.SlurmBoot{Phase: kb.BootPoweringUp, Owner: kb.OwnerJob}
	for name, c := range map[string]struct {
		record string
		want   kb.SlurmSide
	}{
		"idle":                   {``, kb.SlurmSide{}},
		"boots for a job":        {`,"waiting":true,"armed":true,"known_boot":"b"`, kb.SlurmSide{Awaited: job, Requested: kb.SlurmBoot{Phase: kb.BootRequested, Owner: ours}, Registered: "b"}},
		"asked a moment ago":     {`,"armed":true,"armed_at":"2026-11-28T06:12:16Z"`, kb.SlurmSide{Requested: kb.SlurmBoot{Phase: kb.BootAsked, Owner: ours, Since: at}}},
		"returns":                {`,"waiting":true,"armed":true,"armed_issued":true`, kb.SlurmSide{Awaited: kb.SlurmBoot{Phase: kb.BootIssued, Owner: ours}}},
		"answered early":         {`,"armed":true,"armed_issued":true,"answered_early":true`, kb.SlurmSide{Awaited: kb.SlurmBoot{Phase: kb.BootForgotten, Owner: ours}}},
		"an administrator boots": {`,"drained":true,"drain_passes":true`, kb.SlurmSide{Requested: kb.SlurmBoot{Phase: kb.BootRequested, Owner: kb.OwnerAdministrator}}},
		"taken back":             {`,"taken_back":{"reason":"bad DIMM","by":"root@1","boot_id":""}`, kb.SlurmSide{Service: kb.Service{Author: kb.AuthorWithdrawn, Reason: "bad DIMM", By: "root@1"}}},
		"the gate":               {`,"gate_drain":"root@1"`, kb.SlurmSide{Service: kb.Service{State: kb.ServiceDrained, Author: kb.AuthorGate, Reason: kb.ReasonProlog, By: "root@1"}}},
		"the kernel":             {`,"kernel_drain":"slurm@1"`, kb.SlurmSide{Service: kb.Service{State: kb.ServiceDrained, Author: kb.AuthorKernel, By: "slurm@1"}}},
		"out of service":         {`,"said":{"reason":"bad DIMM","boot_id":"b"},"off":"c"`, kb.SlurmSide{Restore: &kb.OutOfService{Reason: "bad DIMM", BootID: "b"}, PoweredOffBoot: "c"}},
		"waits since":            {`,"waiting":true,"slurmd_not_before":"2026-11-28T06:12:16Z"`, kb.SlurmSide{Awaited: kb.SlurmBoot{Phase: kb.BootPoweringUp, Owner: kb.OwnerJob, Since: at}}},
		"of this version":        {`,"slurm":{"registered":"c"},"known_boot":"b"`, kb.SlurmSide{Registered: "c"}},
	} {
		n, err := nodeKind.Decode(store.Record{Key: nodeKey("n1"), Value: []byte(`{"name":"n1"` + c.record + `}`)})
		if err != nil || !reflect.DeepEqual(n.Slurm, c.want) {
			t.Errorf("%s: %+v, %v", name, n.Slurm, err)
		}
	}
}

// What stood beside Slurm's side, and now stands in a failure, in what the agent is told, and in the job's record.
func TestRestOfRecordsFrom51042c9f(t *testing.T) {
	n, err := nodeKind.Decode(store.Record{Key: nodeKey("n1"), Value: []byte(`{"name":"n1","failure":{"kind":"node"},"drained":true,"slurmd_held":true,"timeline":{"job":7},"left":{"job":7},"left_at":"2026-11-28T06:12:16Z"}`)})
	if err != nil || !n.Failure.Drained || n.Told.Slurmd != kb.SlurmdHeld || n.LastJob() != (kb.JobID{Job: 7}) {
		t.Errorf("%+v, %v", n, err)
	}
	id := kb.JobID{Job: 7}
	a, err := jobKind.Decode(store.Record{Key: jobKey(id), Value: []byte(`{"id":{"job":7},"lost":{"n1":"it rebooted"}}`)})
	if err != nil || !a.HasLost("n1") || a.HasLost("n2") {
		t.Errorf("%+v, %v", a, err)
	}
}
