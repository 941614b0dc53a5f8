// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// jobRow is a line of the list of jobs.
type jobRow struct {
	Path, Job, User, Kernel, Phase, Reason string
	Nodes                                  int
	Begun                                  time.Time
	// Waited is the time until the job had its kernel; negative if it never had.
	Waited time.Duration
}

func (s *Server) jobs(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.jobs.ListJobs, &api.ListJobsRequest{Limit: mostJobs, Waiting: true, Brief: true})
	if err != nil {
		return page{}, err
	}
	var rows []jobRow
	for _, j := range response.GetJobs() {
		begun, waited := waitOf(j)
		name := convert.JobName(j)
		if j.GetRestartCount() > 0 {
			name += fmt.Sprintf(", run %d", j.GetRestartCount()+1)
		}
		rows = append(rows, jobRow{jobPath(j), name, j.GetUser(), jobKernel(j), jobPhase(j), j.GetReason(), len(j.GetNodes()), begun, waited})
	}
	return page{Title: "Jobs", Here: "/jobs", Template: "jobs", Data: rows}, nil
}

// waitOf a job: when its switch began, and how long it took.
func waitOf(j *api.Job) (begun time.Time, waited time.Duration) {
	for i, e := range j.GetTimeline() {
		if i == 0 {
			begun = e.GetAt().AsTime()
		}
		if e.GetNode() == "" && e.GetEvent() == "ready" {
			return begun, e.GetAt().AsTime().Sub(begun)
		}
	}
	return begun, -1
}

// jobView is the page of one job.
type jobView struct {
	Name, User, Kernel, Phase, Reason, HandedTo string
	KernelPath                                  string
	Restart                                     int
	Nodes                                       int
	Begun                                       time.Time
	Waited                                      time.Duration
	// Waits are what the job waits for, in words.
	Waits   []string
	Spans   []span
	Between []stepRow
	Steps   []stepRow
	Proofs  []proofRow
}

// stepRow is an event with the time since the job's begin.
type stepRow struct {
	After time.Duration
	step
}

// proofRow is what a node proved to run.
type proofRow struct{ Node, When, Kernel, Release, BuildID string }

// mostRows of a job's steps and proofs are on the page.
const mostRows = 1000

func jobOf(j *api.Job) jobView {
	v := jobView{Name: convert.JobName(j), User: j.GetUser(), Kernel: jobKernel(j), Phase: jobPhase(j), Reason: j.GetReason(), HandedTo: j.GetHandedTo(),
		Restart: int(j.GetRestartCount()), Nodes: len(j.GetNodes())}
	if plainPath(j.GetProfile()) {
		v.KernelPath = "/kernels/" + j.GetProfile()
	}
	v.Begun, v.Waited = waitOf(j)
	spans, between := spansOf(j)
	v.Spans = spans
	for _, e := range between {
		v.Between = append(v.Between, stepRow{e.At.Sub(v.Begun), e})
	}
	for _, e := range j.GetTimeline() {
		at := e.GetAt().AsTime()
		v.Steps = append(v.Steps, stepRow{at.Sub(v.Begun), step{at, e.GetNode(), e.GetEvent(), e.GetDetail()}})
	}
	v.Steps = v.Steps[max(0, len(v.Steps)-mostRows):]
	for _, when := range []struct {
		word   string
		proofs []*api.NodeProof
	}{{"before", j.GetBefore()}, {"during", j.GetDuring()}, {"after", j.GetAfter()}} {
		for _, p := range when.proofs[:min(len(when.proofs), mostRows)] {
			v.Proofs = append(v.Proofs, proofRow{p.GetNode(), when.word, kernelRef(p.GetProfile(), p.GetVersion()), p.GetRelease(), short(p.GetBuildId())})
		}
	}
	return v
}

// short is a build id as people compare it.
func short(id string) string { return id[:min(len(id), 12)] }

// jobNamed reads a job's number and run from the address.
func jobNamed(r *http.Request) (*api.GetJobRequest, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is no number of a job: %w", r.PathValue("id"), kb.ErrNotFound)
	}
	request := &api.GetJobRequest{JobId: uint32(id)}
	if text := r.FormValue("restart"); text != "" {
		restart, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no number of a run: %w", text, kb.ErrNotFound)
		}
		request.RestartCount = new(uint32(restart))
	}
	return request, nil
}

func (s *Server) lookJob(ctx context.Context, request *api.GetJobRequest) (jobView, error) {
	response, err := call(ctx, s.calls.jobs.GetJob, request)
	if err != nil {
		return jobView{}, err
	}
	v := jobOf(response.GetJob())
	if waits(response.GetJob()) {
		// It is slurmctld that knows; a job that it has forgotten waits for nothing.
		if why, err := call(ctx, s.calls.jobs.GetJobWait, &api.GetJobWaitRequest{JobId: request.GetJobId()}); err == nil {
			v.Waits = why.GetWaits()
		}
	}
	return v, nil
}

// waits reports whether a job does not run yet.
func waits(j *api.Job) bool {
	switch j.GetPhase() {
	case api.AllocationPhase_ALLOCATION_PHASE_WAITING, api.AllocationPhase_ALLOCATION_PHASE_ACCEPTED, api.AllocationPhase_ALLOCATION_PHASE_SWITCHING,
		api.AllocationPhase_ALLOCATION_PHASE_REQUEUED, api.AllocationPhase_ALLOCATION_PHASE_HELD:
		return true
	}
	return false
}

func (s *Server) job(r *http.Request) (page, error) {
	request, err := jobNamed(r)
	if err != nil {
		return page{}, err
	}
	v, err := s.lookJob(r.Context(), request)
	if err != nil {
		return page{}, err
	}
	live := fmt.Sprintf("/live/jobs/%d", request.GetJobId())
	if r.URL.RawQuery != "" && request.RestartCount != nil {
		live += fmt.Sprintf("?restart=%d", request.GetRestartCount())
	}
	return page{Title: "Job " + v.Name, Here: "/jobs", Template: "job", Data: v, Live: live}, nil
}
