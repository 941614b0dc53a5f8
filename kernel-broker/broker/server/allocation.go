// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/explain"
)

// Allocations is what AllocationService serves.
type Allocations interface {
	Ensure(ctx context.Context, r controller.Request) (<-chan controller.JobProgress, error)
	Release(id kb.JobID)
	NoteReboot(ctx context.Context, nodes []string, hasProgram bool) ([]string, error)
	Job(ctx context.Context, job uint32, restart *uint32) (*kb.Allocation, error)
	Waiting(ctx context.Context, job uint32) (kb.SlurmJob, error)
	Explain(job uint32) (explain.Answer, error)
	Jobs(ctx context.Context, limit int, of *uint32) ([]*kb.Allocation, error)
	Queue(of *uint32) []kb.SlurmJob
}

// NewAllocationService serves allocations.
func NewAllocationService(a Allocations) api.AllocationServiceServer {
	return &allocationService{allocations: a}
}

type allocationService struct {
	api.UnimplementedAllocationServiceServer
	allocations Allocations
}

// EnsureKernel implements api.AllocationServiceServer.
func (s *allocationService) EnsureKernel(r *api.EnsureKernelRequest, stream api.AllocationService_EnsureKernelServer) error {
	ref, err := kb.ParseRef(r.GetProfile())
	if err != nil {
		return err
	}
	progress, err := s.allocations.Ensure(stream.Context(), controller.Request{
		ID: kb.JobID{Job: r.GetJobId(), Restart: r.GetRestartCount()}, Ref: ref, Nodes: slices.Clone(r.GetNodes()),
	})
	if err != nil {
		return err
	}
	for p := range progress {
		response := &api.EnsureKernelResponse{Phase: convert.PhaseToProto(p.Phase), Message: p.Message,
			NodesReady: uint32(p.Ready), NodesTotal: uint32(p.Total)}
		if err := stream.Send(response); err != nil {
			return err
		}
		switch p.Phase {
		case kb.PhaseReady, kb.PhaseFailed:
			return nil
		case kb.PhaseReturning, kb.PhaseDone:
			return fmt.Errorf("job %d left before its kernel was ready: %w", r.GetJobId(), kb.ErrFailedPrecondition)
		}
	}
	return stream.Context().Err()
}

// ReleaseJob implements api.AllocationServiceServer.
func (s *allocationService) ReleaseJob(_ context.Context, r *api.ReleaseJobRequest) (*api.ReleaseJobResponse, error) {
	s.allocations.Release(kb.JobID{Job: r.GetJobId(), Restart: r.GetRestartCount()})
	return &api.ReleaseJobResponse{}, nil
}

// NoteReboot implements api.AllocationServiceServer.
func (s *allocationService) NoteReboot(ctx context.Context, r *api.NoteRebootRequest) (*api.NoteRebootResponse, error) {
	others, err := s.allocations.NoteReboot(ctx, r.GetNodes(), r.GetHasProgram())
	return &api.NoteRebootResponse{WithoutAgent: others}, err
}

// GetJob implements api.AllocationServiceServer.
func (s *allocationService) GetJob(ctx context.Context, r *api.GetJobRequest) (*api.GetJobResponse, error) {
	job, err := s.job(ctx, r)
	if err := visibilityOf(ctx).hidden(ctx, fmt.Sprintf("job %d", r.GetJobId()), job.GetUid(), err); err != nil {
		return nil, err
	}
	return &api.GetJobResponse{Job: job}, nil
}

// job is an allocation or, where there is none, a job that waits for one.
func (s *allocationService) job(ctx context.Context, r *api.GetJobRequest) (*api.Job, error) {
	a, err := s.allocations.Job(ctx, r.GetJobId(), r.RestartCount)
	if err == nil {
		return jobToProto(a, visibilityOf(ctx).whose(ctx)), nil
	}
	if r.RestartCount != nil || !errors.Is(err, kb.ErrNotFound) {
		return nil, err
	}
	waiting, err := s.allocations.Waiting(ctx, r.GetJobId())
	if err != nil {
		return nil, err
	}
	return waitingToProto(waiting)
}

// jobToProto leaves out what a job's record says of the next jobs on its nodes, unless the caller sees everybody's.
func jobToProto(a *kb.Allocation, whose *uint32) *api.Job {
	out := convert.JobToProto(a)
	if whose == nil {
		return out
	}
	out.HandedTo = ""
	for i, e := range a.Timeline {
		if e.NamesOthers() {
			out.Timeline[i].Detail = ""
		}
	}
	return out
}

// waiting returns jobs in Slurm's queue that asked for a kernel, as far as their comments were read.
func (s *allocationService) waiting(of *uint32, limit int) []*api.Job {
	var list []*api.Job
	for _, j := range s.allocations.Queue(of) {
		if len(list) == limit {
			break
		}
		if j.AdminComment != "" && !j.Submitted() {
			continue // it asked Slurm for a boot, and nobody for a kernel
		}
		if job, err := waitingToProto(j); err == nil { // another is only to be profiled
			list = append(list, job)
		}
	}
	return list
}

// waitingToProto says of a job that waits what it asked for, and for what it
// waits.
func waitingToProto(j kb.SlurmJob) (*api.Job, error) {
	ref, asked := j.Requested()
	if list, profiled := j.Profiling(); !asked && profiled {
		return nil, fmt.Errorf("job %s asked for no kernel, but to be profiled (%s; kernelctl run list): %w", j.Reference, list, kb.ErrNotFound)
	}
	reason := "it waits in Slurm: " + j.Reason
	switch {
	case j.State != "PENDING":
		reason = "it has its nodes, and its prolog has not asked for the kernel yet"
	case j.HeldByUser():
		reason = "it is held (" + j.Reason + "): scontrol release " + j.Reference
	case j.HeldByAdministrator():
		reason = "it is held by an administrator, who may release it (JobHeldAdmin)"
	}
	if !asked && j.Comment() != "" {
		reason += "; " + j.Comment()
	}
	return &api.Job{JobId: j.ID, RestartCount: j.Restart, Reference: j.Reference, User: j.User, Uid: j.UID, Nodes: j.Nodes,
		Profile: ref.Profile, Version: ref.Version, Phase: api.AllocationPhase_ALLOCATION_PHASE_WAITING, Reason: reason}, nil
}

// GetJobWait implements api.AllocationServiceServer.
func (s *allocationService) GetJobWait(ctx context.Context, r *api.GetJobWaitRequest) (*api.GetJobWaitResponse, error) {
	answer, err := s.allocations.Explain(r.GetJobId())
	if err := visibilityOf(ctx).hidden(ctx, fmt.Sprintf("job %d", r.GetJobId()), answer.Job.UID, err); err != nil {
		return nil, err
	}
	response := &api.GetJobWaitResponse{Reference: answer.Job.Reference, State: answer.Job.State, Reason: answer.Job.Reason, Waits: answer.Waits}
	for _, n := range answer.Nodes {
		response.Nodes = append(response.Nodes, &api.WaitingNode{Name: n.Name, Since: convert.TimeToProto(n.Since)})
	}
	return response, nil
}

// ListJobs implements api.AllocationServiceServer.
func (s *allocationService) ListJobs(ctx context.Context, r *api.ListJobsRequest) (*api.ListJobsResponse, error) {
	whose := visibilityOf(ctx).whose(ctx)
	response := &api.ListJobsResponse{}
	if whose != nil && r.Uid != nil && *whose != *r.Uid {
		return response, nil // others' jobs are as if there were none
	}
	of, limit := whose, int(cmp.Or(r.GetLimit(), defaultListed))
	if r.Uid != nil {
		of = r.Uid
	}
	if r.GetWaiting() {
		response.Jobs = s.waiting(of, limit)
	}
	limit -= len(response.GetJobs())
	if limit == 0 {
		return response, nil
	}
	list, err := s.allocations.Jobs(ctx, limit, of)
	if err != nil {
		return nil, err
	}
	// A job that was refused waits in Slurm, held, and has a record, which says more.
	response.Jobs = slices.DeleteFunc(response.Jobs, func(j *api.Job) bool {
		return slices.ContainsFunc(list, func(a *kb.Allocation) bool { return a.ID == kb.JobID{Job: j.GetJobId(), Restart: j.GetRestartCount()} })
	})
	for _, a := range list {
		job := jobToProto(a, whose)
		if r.GetBrief() {
			shorten(job)
		}
		response.Jobs = append(response.Jobs, job)
	}
	return response, nil
}

// shorten leaves of a job what tells its phase, for lists that are asked for often. That of 4,000 nodes has half a
// megabyte of events.
func shorten(j *api.Job) {
	last := len(j.GetTimeline()) - 1
	kept := j.GetTimeline()[:0]
	for i, e := range j.GetTimeline() {
		if e.GetNode() == "" || i == last {
			kept = append(kept, e)
		}
	}
	j.Timeline, j.Before, j.During, j.After = kept, nil, nil, nil
}
