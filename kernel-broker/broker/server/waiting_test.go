// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// pending has no allocation, and one job that waits.
type pending struct {
	server.Allocations
	job kb.SlurmJob
}

func (pending) Job(_ context.Context, job uint32, _ *uint32) (*kb.Allocation, error) {
	return nil, fmt.Errorf("job %d never asked for a kernel: %w", job, kb.ErrNotFound)
}

func (p pending) Waiting(_ context.Context, job uint32) (kb.SlurmJob, error) {
	if job != p.job.ID {
		return kb.SlurmJob{}, fmt.Errorf("job %d never asked for a kernel: %w", job, kb.ErrNotFound)
	}
	return p.job, nil
}

func TestJobsThatWait(t *testing.T) {
	const requested = "kernel-broker: mitgcm@3 requested"
	for name, c := range map[string]struct {
		state, reason, comment string
		want                   string // profile and reason, or
		refused                string
	}{
		"for nodes": {"PENDING", "Priority", requested, "mitgcm@3: it waits in Slurm: Priority", ""},
		"held":      {"PENDING", "JobHeldUser", requested, "mitgcm@3: it is held (JobHeldUser): scontrol release 12_4", ""},
		"requeued and held": {"PENDING", "job requeued in held state", "kernel-broker: the hook cannot",
			"@0: it is held (job requeued in held state): scontrol release 12_4; kernel-broker: the hook cannot", ""},
		"held by another": {"PENDING", "JobHeldAdmin", requested, "mitgcm@3: it is held by an administrator, who may release it (JobHeldAdmin)", ""},
		"refused before there was anything to record": {"PENDING", "JobHeldUser", "kernel-broker: permission denied: not for you",
			"@0: it is held (JobHeldUser): scontrol release 12_4; kernel-broker: permission denied: not for you", ""},
		"with its nodes":      {"CONFIGURING", "None", requested, "mitgcm@3: it has its nodes, and its prolog has not asked for the kernel yet", ""},
		"for a profiling run": {"PENDING", "Priority", "kernel-broker: stock requested; profiling=io", "", "asked for no kernel, but to be profiled (io; kernelctl run list)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, nil, func(s *server.Server) {
				api.RegisterAllocationServiceServer(s, server.NewAllocationService(pending{job: kb.SlurmJob{
					ID: 12, Reference: "12_4", State: c.state, Reason: c.reason, AdminComment: c.comment, UID: plainUser, Reboot: true}}))
			})
			client := api.NewAllocationServiceClient(f.as(t, plainUser))
			got, err := client.GetJob(t.Context(), &api.GetJobRequest{JobId: 12})
			if c.refused != "" {
				want(t, name, err, codes.NotFound, c.refused)
				return
			}
			j := got.GetJob()
			if text := fmt.Sprintf("%s@%d: %s", j.GetProfile(), j.GetVersion(), j.GetReason()); err != nil || text != c.want || j.GetPhase() != api.AllocationPhase_ALLOCATION_PHASE_WAITING {
				t.Errorf("%v %q, %v", j.GetPhase(), text, err)
			}
			_, err = client.GetJob(t.Context(), &api.GetJobRequest{JobId: 13})
			want(t, "another", err, codes.NotFound, "never asked")
			_, err = client.GetJob(t.Context(), &api.GetJobRequest{JobId: 12, RestartCount: new(uint32)})
			want(t, "one of its restarts", err, codes.NotFound, "never asked")
		})
	}
}
