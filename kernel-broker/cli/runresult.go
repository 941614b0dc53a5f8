// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
)

// hasResults reports whether the caller may read a result.
func hasResults(r *api.Run) bool {
	for _, n := range r.GetNodes() {
		if len(n.GetFiles()) > 0 {
			return true
		}
	}
	return false
}

// report of a run, built from the results of its nodes.
func (a *app) report(ctx context.Context, r *api.Run) (runreport.Report, error) {
	result, err := a.result(ctx, r)
	if err != nil {
		return runreport.Report{}, err
	}
	return runreport.New(runreport.Run{
		ID: r.GetId(), State: runState(r), Reason: r.GetReason(), Job: runJob(r), User: r.GetUser(), Kernel: runKernel(r),
		Collectors: r.GetCollectors(), RequestedBy: r.GetRequestedBy(), Began: convert.TimeFromProto(r.GetBegan()), Ended: convert.TimeFromProto(r.GetEnded()),
	}, result, time.Now()), nil
}

// result of all nodes of a run. A node without a result makes it incomplete.
func (a *app) result(ctx context.Context, r *api.Run) (profiling.Result, error) {
	if !hasResults(r) {
		return profiling.Result{}, fmt.Errorf("run %d is %s and has no results%s: %w", r.GetId(), runState(r), noFilesReason(r), kb.ErrFailedPrecondition)
	}
	var results []profiling.Result
	var missing []profiling.Partial
	for _, n := range r.GetNodes() {
		one, err := a.resultOf(ctx, n)
		if err != nil {
			return profiling.Result{}, fmt.Errorf("run %d: node %q: %w", r.GetId(), n.GetName(), err)
		}
		if one == nil {
			missing = append(missing, profiling.Partial{Node: n.GetName(), Why: convert.Word(n.GetState()) + " " + n.GetReason()})
			continue
		}
		results = append(results, *one)
	}
	whole, err := profiling.Merge(results...)
	whole.Partial = append(whole.Partial, missing...)
	return whole, err
}

// noFilesReason explains why a caller sees no files of a run that has some.
func noFilesReason(r *api.Run) string {
	for _, n := range r.GetNodes() {
		if n.GetState() == api.RunNodeState_RUN_NODE_STATE_DELIVERED {
			return " for you: they are for user " + r.GetUser() + " and for administrators"
		}
	}
	return ""
}

// resultOf one node; nil if it has none.
func (a *app) resultOf(ctx context.Context, n *api.RunNode) (*profiling.Result, error) {
	for _, f := range n.GetFiles() {
		if f.GetName() != kb.ResultFile {
			continue
		}
		content, err := a.content(ctx, f.GetDigest(), f.GetSize())
		if err != nil {
			return nil, err
		}
		parsed, err := profiling.ParseResult(content)
		return &parsed, err
	}
	return nil, nil
}
