// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"strings"
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

// queue has a job of two users that waits, and one that was refused and has a record.
type queue struct{ server.Allocations }

func (queue) Queue(of *uint32) (jobs []kb.SlurmJob) {
	for _, j := range []kb.SlurmJob{
		{ID: 21, Reference: "21", State: "PENDING", Reason: "Priority", UID: plainUser, AdminComment: "kernel-broker: mitgcm@3 requested"},
		{ID: 22, Reference: "22", State: "PENDING", Reason: "Priority", UID: other},
		{ID: 23, Reference: "23", State: "PENDING", Reason: "JobHeldUser", UID: plainUser, AdminComment: "kernel-broker: not for you"},
		{ID: 24, Reference: "24", State: "PENDING", Reason: "Priority", UID: plainUser, AdminComment: "the site's own"},
	} {
		if of == nil || *of == j.UID {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (queue) Jobs(_ context.Context, limit int, of *uint32) (list []*kb.Allocation, _ error) {
	for _, a := range []*kb.Allocation{
		{ID: kb.JobID{Job: 23}, UID: plainUser, Phase: kb.PhaseFailed},
		{ID: kb.JobID{Job: 20}, UID: other, Phase: kb.PhaseReady},
	} {
		if len(list) < limit && (of == nil || *of == a.UID) {
			list = append(list, a)
		}
	}
	return list, nil
}

func TestListWithJobsThatWait(t *testing.T) {
	f := serve(t, nil, func(s *server.Server) {
		api.RegisterAllocationServiceServer(s, server.NewAllocationService(queue{}))
	})
	client := api.NewAllocationServiceClient(f.as(t, plainUser))
	for _, c := range []struct {
		request *api.ListJobsRequest
		want    string
	}{
		{&api.ListJobsRequest{}, "23 20"},
		{&api.ListJobsRequest{Waiting: true}, "21 22 23 20"},
		{&api.ListJobsRequest{Waiting: true, Uid: new(uint32(plainUser))}, "21 23"},
		{&api.ListJobsRequest{Uid: new(uint32(other))}, "20"},
		{&api.ListJobsRequest{Waiting: true, Limit: 1}, "21"},
	} {
		response, err := client.ListJobs(t.Context(), c.request)
		var ids []string
		for _, j := range response.GetJobs() {
			ids = append(ids, fmt.Sprint(j.GetJobId()))
		}
		if got := strings.Join(ids, " "); err != nil || got != c.want {
			t.Errorf("%v: jobs %s, want %s, %v", c.request, got, c.want, err)
		}
	}
}
