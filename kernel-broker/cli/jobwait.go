// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// What job wait waits for.
const (
	forReady = "ready"
	forDone  = "done"
)

func (a *app) jobWaitCommand() *cobra.Command {
	var target string
	var limit time.Duration
	c := a.command("wait ID[_TASK|+OFFSET]", "Wait until a job has its kernel, or until its nodes are free", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return a.jobWait(ctx, args[0], target, limit) })
	c.Flags().StringVar(&target, "for", forReady, "`what` to wait for: ready (all nodes run the kernel) or done (the job has ended and its nodes are free)")
	c.Flags().DurationVar(&limit, "timeout", 0, "longest `time` to wait, such as 90s or 2h (default: no limit)")
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{forReady, forDone}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) jobWait(ctx context.Context, name, target string, limit time.Duration) error {
	if target != forReady && target != forDone {
		return usageError{fmt.Errorf("--for %q is not one of %s, %s", target, forReady, forDone)}
	}
	if limit < 0 {
		return usageError{fmt.Errorf("--timeout %v: write a time above 0, such as 90s", limit)}
	}
	id, err := a.find(ctx, name)
	if err != nil {
		return err
	}
	job, err := a.job(ctx, &api.GetJobRequest{JobId: id})
	if err != nil {
		return err
	}
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	for told := false; ; {
		if met, err := reached(job, target); met || err != nil {
			if err != nil {
				return err
			}
			return a.show(job, func(p *page) { p.sentence("job %s is %s%s", convert.JobName(job), jobPhase(job), after(job)) })
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return fmt.Errorf("job %s is still %s after %s: it is not %s yet (kernelctl job why %s)", convert.JobName(job), jobPhase(job), rounded.Time(limit), target, name)
		case <-time.After(watchPause):
		}
		next, err := a.job(ctx, &api.GetJobRequest{JobId: id})
		switch {
		case err == nil:
			job, told = next, false
		case status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded:
			return err
		case !told:
			// The broker may be restarted meanwhile; the job waits, too.
			_, why := a.explain(err)
			a.say("%s; still waiting", why)
			told = true
		}
	}
}

// reached reports whether a job is where it is waited for; an error says that it never gets there.
func reached(j *api.Job, target string) (bool, error) {
	had := slices.ContainsFunc(j.GetTimeline(), func(e *api.TimelineEvent) bool {
		return e.GetNode() == "" && kb.Phase(e.GetEvent()) == kb.PhaseReady
	})
	switch j.GetPhase() {
	case api.AllocationPhase_ALLOCATION_PHASE_FAILED, api.AllocationPhase_ALLOCATION_PHASE_HELD:
		return false, fmt.Errorf("job %s is %s: %s: %w", convert.JobName(j), jobPhase(j), j.GetReason(), kb.ErrFailedPrecondition)
	case api.AllocationPhase_ALLOCATION_PHASE_DONE:
		if target == forReady && !had {
			return false, fmt.Errorf("job %s ended before it had its kernel: %w", convert.JobName(j), kb.ErrFailedPrecondition)
		}
		return true, nil
	case api.AllocationPhase_ALLOCATION_PHASE_READY, api.AllocationPhase_ALLOCATION_PHASE_RETURNING:
		if target == forReady && !had && j.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_RETURNING {
			return false, fmt.Errorf("job %s ended before it had its kernel: %w", convert.JobName(j), kb.ErrFailedPrecondition)
		}
		return target == forReady, nil
	}
	return false, nil
}

// after says how long a job waited for its kernel.
func after(j *api.Job) string {
	if took := untilReady(j); took != "" {
		return ", its kernel was ready after " + took
	}
	return ""
}
