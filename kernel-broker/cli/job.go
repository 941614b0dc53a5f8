// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// mostJobs limits the search for a job by its name.
const mostJobs = 1000

func (a *app) jobCommand() *cobra.Command {
	var restart int64
	var watch, all bool
	show := a.command("show ID[_TASK|+OFFSET]", "Show a job's way to its kernel and back", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return a.jobShow(ctx, args[0], restart, watch, all)
	})
	show.Flags().Int64Var(&restart, "restart", -1, "`run` of a requeued job, from 0 (default: the newest)")
	show.Flags().BoolVar(&watch, "watch", false, "first print the steps as they happen, until the job has its kernel or, if it has it already, until its nodes are free")
	show.Flags().BoolVar(&all, "all", false, "show each node's steps and boots, not only those of the slowest five")
	return noun("job", "Jobs that requested a kernel", a.jobListCommand(), show, a.jobWaitCommand(), a.jobWhyCommand())
}

func (a *app) jobs(ctx context.Context, request *api.ListJobsRequest) ([]*api.Job, error) {
	response, err := call(ctx, a, api.NewAllocationServiceClient, api.AllocationServiceClient.ListJobs, request)
	return response.GetJobs(), err
}

func jobPhase(j *api.Job) string { return convert.Word(j.GetPhase()) }

func begin(j *api.Job) time.Time {
	if len(j.GetTimeline()) == 0 {
		return time.Time{}
	}
	return j.GetTimeline()[0].GetAt().AsTime()
}

// find turns a job's name in Slurm into the broker's.
func (a *app) find(ctx context.Context, name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil && id > 0 {
		return uint32(id), nil
	}
	base := strings.FieldsFunc(name, func(c rune) bool { return c == '_' || c == '+' })
	bad := len(base) != 2
	for _, part := range base {
		_, err := strconv.ParseUint(part, 10, 32)
		bad = bad || err != nil
	}
	if bad {
		return 0, usageError{fmt.Errorf("%q is not a job: write ID, ID_TASK or ID+OFFSET", name)}
	}
	jobs, err := a.jobs(ctx, &api.ListJobsRequest{Limit: mostJobs})
	if err != nil {
		return 0, err
	}
	var near []string
	for _, j := range jobs {
		if j.GetReference() == name {
			return j.GetJobId(), nil
		}
		if r := j.GetReference(); (strings.HasPrefix(r, base[0]+"_") || strings.HasPrefix(r, base[0]+"+")) && !slices.Contains(near, r) {
			near = append(near, r)
		}
	}
	if id, err := strconv.ParseUint(base[0], 10, 32); err == nil && len(near) == 0 {
		// Pending tasks of an array have no id of their own yet.
		if j, err := a.job(ctx, &api.GetJobRequest{JobId: uint32(id)}); err == nil && isWaiting(j) {
			return uint32(id), nil
		}
	}
	hint := ""
	if len(near) > 0 {
		slices.Sort(near)
		hint = " (known: " + strings.Join(near[:min(len(near), 8)], ", ") + ")"
	}
	return 0, fmt.Errorf("the broker has no record of job %s%s: %w", name, hint, kb.ErrNotFound)
}

func (a *app) jobShow(ctx context.Context, name string, restart int64, watch, all bool) error {
	request := &api.GetJobRequest{}
	if restart > math.MaxUint32 {
		return usageError{fmt.Errorf("--restart: no job was restarted %d times", restart)}
	}
	if restart >= 0 {
		request.RestartCount = new(uint32(restart))
	}
	var err error
	if request.JobId, err = a.find(ctx, name); err != nil {
		return err
	}
	job, err := a.job(ctx, request)
	if err != nil {
		return err
	}
	if watch {
		if job, err = a.watch(ctx, request, job); err != nil {
			return err
		}
	}
	return a.show(job, func(p *page) { jobPage(p, job, all) })
}

func (a *app) job(ctx context.Context, request *api.GetJobRequest) (*api.Job, error) {
	response, err := call(ctx, a, api.NewAllocationServiceClient, api.AllocationServiceClient.GetJob, request)
	return response.GetJob(), err
}

// watchPause is the polling interval. A switch takes seconds.
const watchPause = 500 * time.Millisecond

// watch prints the steps as they happen and returns the job's final state.
func (a *app) watch(ctx context.Context, request *api.GetJobRequest, job *api.Job) (*api.Job, error) {
	starting := isStarting(job)
	var last time.Time
	printed := map[string]bool{}
	for {
		for _, e := range job.GetTimeline() {
			at := e.GetAt().AsTime()
			key := at.String() + e.GetNode() + e.GetEvent() + e.GetDetail()
			if at.Before(last) || printed[key] {
				continue
			}
			printed[key] = true
			last = at
			a.say("%s", strings.TrimSpace(fmt.Sprintf("%s  %-8s  %-10s  %s",
				at.Local().Format("15:04:05.00 MST"), cmp.Or(e.GetNode(), "-"), e.GetEvent(), e.GetDetail())))
		}
		if starting != isStarting(job) || isOver(job) {
			return job, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(watchPause):
		}
		next, err := a.job(ctx, request)
		if err != nil {
			return nil, err
		}
		job = next
	}
}

func isWaiting(j *api.Job) bool {
	return j.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_WAITING
}

func isStarting(j *api.Job) bool {
	return isWaiting(j) || j.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_ACCEPTED || j.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_SWITCHING
}

func isOver(j *api.Job) bool {
	switch j.GetPhase() {
	case api.AllocationPhase_ALLOCATION_PHASE_DONE, api.AllocationPhase_ALLOCATION_PHASE_FAILED,
		api.AllocationPhase_ALLOCATION_PHASE_REQUEUED, api.AllocationPhase_ALLOCATION_PHASE_HELD:
		return true
	}
	return false
}

// unlessZero is an empty cell for no number.
func unlessZero[N comparable](n N, text string) string {
	if n == *new(N) {
		return ""
	}
	return text
}

func numberOrNone(n uint32) string { return unlessZero(n, fmt.Sprint(n)) }
