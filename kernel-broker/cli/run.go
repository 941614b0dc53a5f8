// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/pprof"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
)

func (a *app) runCommand() *cobra.Command {
	var limit uint32
	list := a.command("list", "List the runs, newest first", cobra.NoArgs, func(ctx context.Context, _ []string) error { return a.runList(ctx, limit) })
	list.Flags().Uint32Var(&limit, "limit", 100, "most runs to list, up to 1000")
	show := a.command("show RUN", "Show the progress of a run by node, and kernels built from it", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return a.runShow(ctx, args[0]) })
	cancel := a.command("cancel RUN", "Cancel a request that has no job yet", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return a.runCancel(ctx, args[0]) })
	return noun("run", "Profiling runs of jobs", list, show, a.runReportCommand(), a.runDiffCommand(),
		a.runWatchCommand(), a.runRequestCommand(), a.careful(cancel, a.cancelPreview))
}

func runID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, usageError{fmt.Errorf("%q is not a run: write its number, see kernelctl run list", text)}
	}
	return id, nil
}

func (a *app) runList(ctx context.Context, limit uint32) error {
	response, err := call(ctx, a, api.NewRunServiceClient, api.RunServiceClient.ListRuns, &api.ListRunsRequest{Limit: limit})
	if err != nil {
		return err
	}
	return a.show(response, a.orNone(len(response.GetRuns()), "no profiling runs: sbatch --kernel-profiling makes one", func(p *page) {
		p.head("RUN", "STATE", "JOB", "USER", "KERNEL", wide+"COLLECTORS", "NODES", zoned("BEGAN", newest(response.GetRuns(), func(r *api.Run) time.Time { return r.GetBegan().AsTime() })), below+"REASON")
		for _, r := range response.GetRuns() {
			p.row(r.GetId(), runState(r), runJob(r), r.GetUser(), runKernel(r), strings.Join(r.GetCollectors(), ","), runNodes(r), minute(r.GetBegan().AsTime()), r.GetReason())
		}
	}))
}

func runState(r *api.Run) string { return convert.Word(r.GetState()) }

// runJob is the profiled job, or a description of the next one.
func runJob(r *api.Run) string {
	switch {
	case r.GetReference() != "":
		return r.GetReference()
	case r.GetProfile() != "":
		return "next of profile " + r.GetProfile()
	}
	return "next of " + r.GetApplication()
}

func runKernel(r *api.Run) string { return kernelRef(r.GetKernelProfile(), r.GetKernelVersion()) }

func runNodes(r *api.Run) string {
	if len(r.GetNodes()) == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", delivered(r), len(r.GetNodes()))
}

// delivered is the number of nodes with a result.
func delivered(r *api.Run) (n int) {
	for _, node := range r.GetNodes() {
		if node.GetState() == api.RunNodeState_RUN_NODE_STATE_DELIVERED {
			n++
		}
	}
	return n
}

// runNamed gets a run by the number that a user wrote.
func (a *app) runNamed(ctx context.Context, text string) (*api.Run, error) {
	id, err := runID(text)
	if err != nil {
		return nil, err
	}
	return a.getRun(ctx, id)
}

func (a *app) getRun(ctx context.Context, id uint64) (*api.Run, error) {
	response, err := call(ctx, a, api.NewRunServiceClient, api.RunServiceClient.GetRun, &api.GetRunRequest{Id: id})
	return response.GetRun(), err
}

func (a *app) runShow(ctx context.Context, text string) error {
	r, err := a.runNamed(ctx, text)
	if err != nil {
		return err
	}
	var found []string
	if hasResults(r) && a.isTable() {
		report, err := a.report(ctx, r)
		if err != nil {
			// What one node delivered hides nothing of the run.
			found = []string{"The results cannot be read: " + err.Error()}
		} else {
			found = []string{report.Decision.Headline, fmt.Sprintf("kernelctl run report %d shows the figures.", r.GetId())}
		}
	}
	return a.show(r, func(p *page) { runPage(p, r, found) })
}

func runPage(p *page, r *api.Run, found []string) {
	p.row("Run:", r.GetId())
	p.row("State:", runState(r))
	p.field("Reason:", r.GetReason())
	p.row("Job:", runJob(r))
	p.row("User:", r.GetUser())
	p.row("Kernel:", runKernel(r))
	p.row("Collectors:", strings.Join(r.GetCollectors(), " "))
	p.row("Requested by:", fmt.Sprintf("%s, %s", r.GetRequestedBy(), clock(r.GetRequested().AsTime())))
	p.row("Began:", clock(r.GetBegan().AsTime()))
	p.row("Ended:", clock(r.GetEnded().AsTime()))
	if len(r.GetNodes()) > 0 {
		p.line("")
		p.head("NODE", "STATE", "FILES", "SIZE", "NOT WHOLE", below+"REASON")
		for _, n := range r.GetNodes() {
			size := uint64(0)
			for _, f := range n.GetFiles() {
				size += f.GetSize()
			}
			p.row(n.GetName(), convert.Word(n.GetState()), len(n.GetFiles()), rounded.Size(size), n.GetPartial(), n.GetReason())
		}
	}
	if len(found) > 0 {
		p.line("")
	}
	for _, text := range found {
		p.sentence("%s", text)
	}
}

func (a *app) runCancel(ctx context.Context, text string) error {
	id, err := runID(text)
	if err != nil {
		return err
	}
	response, err := call(ctx, a, api.NewRunServiceClient, api.RunServiceClient.CancelRun, &api.CancelRunRequest{Id: id})
	if err != nil {
		return err
	}
	return a.show(response.GetRun(), func(p *page) { p.line("run %d is cancelled", id) })
}

func (a *app) runRequestCommand() *cobra.Command {
	request := &api.RequestRunRequest{}
	var collectors string
	c := a.command("request [APPLICATION]", "Request a run of an application's next job", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			request.Application = args[0]
		}
		if collectors != "" {
			request.Collectors = strings.Split(collectors, ",")
		}
		return a.runRequest(ctx, request)
	})
	c.Flags().StringVar(&request.Profile, "profile", "", "`name` of a profile, instead of an application")
	c.Flags().StringVar(&collectors, "collectors", "", "`list` of io, syscalls, callgraph, noise, callcounts (default io,syscalls,noise)")
	return c
}

func (a *app) runRequest(ctx context.Context, request *api.RequestRunRequest) error {
	if (request.GetApplication() == "") == (request.GetProfile() == "") {
		return usageError{fmt.Errorf("name an application, or a profile with --profile: %w", kb.ErrInvalid)}
	}
	request.RequestId = requestID()
	response, err := call(ctx, a, api.NewRunServiceClient, api.RunServiceClient.RequestRun, request)
	if err != nil {
		return err
	}
	r := response.GetRun()
	return a.show(r, func(p *page) {
		p.line("run %d waits for the %s, with %s", r.GetId(), runJob(r), strings.Join(r.GetCollectors(), ","))
	})
}

// hasResults reports whether the caller may read a result.
func hasResults(r *api.Run) bool {
	return slices.ContainsFunc(r.GetNodes(), func(n *api.RunNode) bool { return len(n.GetFiles()) > 0 })
}

// report of a run, built from the results of its nodes.
func (a *app) report(ctx context.Context, r *api.Run) (runreport.Report, error) {
	result, err := a.result(ctx, r)
	if err != nil {
		return runreport.Report{}, err
	}
	site, err := a.siteProfiles(ctx)
	if err != nil {
		return runreport.Report{}, err
	}
	return runreport.New(runreport.Run{
		ID: r.GetId(), State: runState(r), Reason: r.GetReason(), Job: runJob(r), User: r.GetUser(), Kernel: runKernel(r),
		Collectors: r.GetCollectors(), RequestedBy: r.GetRequestedBy(), Began: convert.TimeFromProto(r.GetBegan()), Ended: convert.TimeFromProto(r.GetEnded()),
	}, result, time.Now(), site...), nil
}

// siteProfiles are those that a job can request now, but stock.
func (a *app) siteProfiles(ctx context.Context) ([]advice.SiteProfile, error) {
	profiles, err := a.profiles(ctx)
	if err != nil {
		return nil, err
	}
	var site []advice.SiteProfile
	for _, p := range profiles {
		v := convert.FindVersion(p, p.GetDefaultVersion())
		if p.GetName() == kb.StockProfile || v == nil || convert.VersionState(v) != convert.VersionAvailable {
			continue
		}
		one := advice.SiteProfile{Name: p.GetName()}
		if gain := v.GetMeasured().GetToStock(); gain.GetKernel() != nil && !gain.GetMayBeChance() && !gain.GetUnequal() {
			saves := -gain.GetKernel().GetPercent() / 100
			one.Saves = &saves
		}
		site = append(site, one)
	}
	return site, nil
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
	if delivered(r) == 0 {
		return ""
	}
	return " for you: they are for user " + r.GetUser() + " and for administrators"
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
		if err != nil {
			return nil, err
		}
		// A node speaks for itself alone.
		for _, name := range parsed.NodeNames() {
			if name != n.GetName() {
				return nil, fmt.Errorf("its result is of node %q: %w", name, kb.ErrInvalid)
			}
		}
		return &parsed, nil
	}
	return nil, nil
}

// reportFiles are the outputs of run report.
type reportFiles struct{ html, dot, pprof, folded string }

func (a *app) runReportCommand() *cobra.Command {
	var to reportFiles
	var slurms bool
	c := a.command("report RUN", "Show the findings of a run and the possible gain", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return a.runReport(ctx, args[0], to, slurms) })
	f := c.Flags()
	f.StringVar(&to.html, "html", "", "write the page to this `file`")
	f.StringVar(&to.dot, "dot", "", "write the call graph for Graphviz to this `file`")
	f.StringVar(&to.pprof, "pprof", "", "write the call graph for pprof to this `file`")
	f.StringVar(&to.folded, "folded", "", "write the call graph as folded stacks to this `file`")
	f.BoolVar(&slurms, "slurm", false, "also show calls of slurmstepd and the cgroup's files, which are in the job's cgroup and not the job's")
	return c
}

// leastDrawn is the share of the kernel's samples from which a function is in
// the graph for Graphviz.
const leastDrawn = 0.005

func (a *app) runReport(ctx context.Context, text string, to reportFiles, slurms bool) error {
	r, err := a.runNamed(ctx, text)
	if err != nil {
		return err
	}
	made, err := a.report(ctx, r)
	if err != nil {
		return err
	}
	if slurms {
		made = made.WithSlurms()
	}
	written, err := a.writeReport(made, to)
	if err != nil {
		return err
	}
	switch {
	case !a.isTable():
		var out bytes.Buffer
		if err := made.WriteJSON(&out); err != nil {
			return err
		}
		return a.showJSON(out.Bytes())
	case written > 0:
		a.say("%s", made.Decision.Headline)
		return nil
	}
	return made.WriteText(a.Stdout)
}

func (a *app) writeReport(made runreport.Report, to reportFiles) (written int, err error) {
	graph, counts := made.Result.CallGraph, made.Result.CallCounts
	draw := func(w io.Writer) error { return graph.WriteDOT(w, leastDrawn) }
	if graph == nil && counts != nil {
		draw = func(w io.Writer) error { return counts.WriteDOT(w, leastDrawn) }
	}
	for _, f := range []struct {
		path  string
		lacks bool
		write func(io.Writer) error
	}{
		{to.html, false, made.WriteHTML},
		{to.dot, graph == nil && counts == nil, draw},
		{to.pprof, graph == nil, func(w io.Writer) error { return pprof.Write(w, graph) }},
		{to.folded, graph == nil, func(w io.Writer) error { return graph.WriteFolded(w) }},
	} {
		if f.path == "" {
			continue
		}
		if f.lacks {
			return written, fmt.Errorf("run %d has no call graph (sbatch --kernel-profiling=callgraph collects one): %w", made.Run.ID, kb.ErrFailedPrecondition)
		}
		if err := writeTo(f.path, f.write); err != nil {
			return written, err
		}
		a.say("%s written", f.path)
		written++
	}
	return written, nil
}

// writeTo a file, whole or not at all.
func writeTo(path string, write func(io.Writer) error) error {
	var out bytes.Buffer
	if err := write(&out); err != nil {
		return err
	}
	return atomicfile.Write(path, out.Bytes(), os.FileMode(0o644))
}

func (a *app) runDiffCommand() *cobra.Command {
	var html string
	c := a.command("diff RUN[,RUN...] RUN[,RUN...]", "Compare two runs, or two sets of runs", cobra.ExactArgs(2),
		func(ctx context.Context, args []string) error { return a.runDiff(ctx, args[0], args[1], html) })
	c.Flags().StringVar(&html, "html", "", "write the page to this `file`")
	return c
}

func (a *app) runDiff(ctx context.Context, first, second, html string) error {
	left, err := a.side(ctx, first)
	if err != nil {
		return err
	}
	right, err := a.side(ctx, second)
	if err != nil {
		return err
	}
	c, err := compare.Compare(left, right)
	if err != nil {
		return err
	}
	doc := runreport.ComparisonDocument(c, time.Now())
	switch {
	case html != "":
		if err := writeTo(html, doc.WriteHTML); err != nil {
			return err
		}
		a.say("%s written", html)
		a.say("%s", c.Significance)
		return nil
	case !a.isTable():
		return a.showValue(c, nil)
	}
	return doc.WriteText(a.Stdout)
}

func (a *app) side(ctx context.Context, list string) (compare.Side, error) {
	s := compare.Side{Name: "run " + list}
	if strings.Contains(list, ",") {
		s.Name = "runs " + list
	}
	for text := range strings.SplitSeq(list, ",") {
		r, err := a.runNamed(ctx, text)
		if err != nil {
			return s, err
		}
		result, err := a.result(ctx, r)
		if err != nil {
			return s, err
		}
		jobs, _ := result.WithoutSlurm()
		s.Runs = append(s.Runs, jobs)
	}
	return s, nil
}
