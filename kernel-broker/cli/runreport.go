// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/pprof"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
)

// reportFiles are the outputs of run report.
type reportFiles struct{ html, dot, pprof, folded string }

func (a *app) runReportCommand() *cobra.Command {
	var to reportFiles
	var slurms bool
	c := &cobra.Command{
		Use: "report RUN", Short: "Show the findings of a run and the possible gain",
		Args: cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.runReport(ctx, args[0], to, slurms) }),
	}
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
	id, err := runID(text)
	if err != nil {
		return err
	}
	r, err := a.getRun(ctx, id)
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
	case a.output != outputTable:
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
	graph := made.Result.CallGraph
	for _, f := range []struct {
		path  string
		graph bool
		write func(io.Writer) error
	}{
		{to.html, false, made.WriteHTML},
		{to.dot, true, func(w io.Writer) error { return graph.WriteDOT(w, leastDrawn) }},
		{to.pprof, true, func(w io.Writer) error { return pprof.Write(w, graph) }},
		{to.folded, true, func(w io.Writer) error { return graph.WriteFolded(w) }},
	} {
		if f.path == "" {
			continue
		}
		if f.graph && graph == nil {
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
	c := &cobra.Command{
		Use: "diff RUN[,RUN...] RUN[,RUN...]", Short: "Set two runs, or two sides of runs, beside each other",
		Args: cobra.ExactArgs(2),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.runDiff(ctx, args[0], args[1], html) }),
	}
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
	c, err := compare.Compare(left, right, verdict.DefaultRules())
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
	case a.output != outputTable:
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
		id, err := runID(text)
		if err != nil {
			return s, err
		}
		r, err := a.getRun(ctx, id)
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
