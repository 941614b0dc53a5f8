// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// Values of --where and --publish.
const (
	whereLocal   = "local"
	whereSlurm   = "slurm"
	publishAuto  = "auto"
	publishNever = "never"
)

type buildFlags struct {
	request   kernelbuild.Request
	work      workFlags
	publish   string
	fromRuns  []string
	fromPerf  []string
	signature signature
}

// workFlags say where the steps of a request are done, and with what.
type workFlags struct {
	where, partition string
	slurm            kernelbuild.Slurm
}

func (w *workFlags) add(c *cobra.Command, r *kernelbuild.Request) {
	f, o := c.Flags(), &r.Options
	f.StringVar(&o.Catalog, "catalog", "", "`folder` with kernels/, fragments/, workloads/ and keep/ (default ./catalog if only the caller and root can write it, else the installed one)")
	f.StringVar(&w.where, "where", whereLocal, "local or slurm: `where` the steps are done")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "`number` of compilers at a time")
	f.IntVar(&r.Parallel, "parallel", 1, "`number` of steps at a time, with --where local")
	f.StringVar(&w.partition, "partition", "", "Slurm `partition`")
	f.StringArrayVar(&w.slurm.Arguments, "sbatch", nil, "further `argument` for sbatch; may be given again")
	f.StringVar(&w.slurm.Worker, "worker", "", "kernel-factory `program` as the nodes see it (default: beside kernelctl, else by PATH)")
	f.StringVar(&o.Programs, "programs", "", "`folder` of the workloads' programs")
	f.StringVar(&o.Plugin, "plugin", "", "the emulator's plugin `file`, kbcount.so")
	_ = c.RegisterFlagCompletionFunc("where", cobra.FixedCompletions([]string{whereLocal, whereSlurm}, cobra.ShellCompDirectiveNoFileComp))
}

func (w *workFlags) validate(r *kernelbuild.Request) error {
	switch {
	case w.where != whereLocal && w.where != whereSlurm:
		return usageError{fmt.Errorf("--where %q is neither %s nor %s", w.where, whereLocal, whereSlurm)}
	case r.Options.Jobs < 1 || r.Parallel < 1:
		return usageError{errors.New("--jobs and --parallel: at least 1")}
	case w.where == whereLocal && (w.partition != "" || len(w.slurm.Arguments) > 0):
		return usageError{errors.New("--partition and --sbatch are for --where slurm")}
	}
	if err := kb.ValidateProfileName(r.Options.Name); err != nil {
		return usageError{err}
	}
	return nil
}

// complete fills in what the flags and the configuration say of a valid request.
func (w *workFlags) complete(a *app, r *kernelbuild.Request) (err error) {
	if r.Options.Cache, err = a.cacheDir(); err != nil {
		return err
	}
	r.Site, r.Options.Builder = a.site, "kernelctl "+a.Version
	r.Observe, r.Say = (&graph.Printer{Out: a.Stderr, Terminal: a.Terminal}).Observe, a.say
	if w.where == whereSlurm {
		r.Slurm = &w.slurm
		if w.partition != "" {
			r.Slurm.Arguments = append([]string{"--partition", w.partition}, r.Slurm.Arguments...)
		}
	}
	return nil
}

func (a *app) kernelBuildCommand() *cobra.Command {
	b := buildFlags{}
	o := &b.request.Options
	c := a.command("build NAME", "Build a kernel, measure it, and publish it if it wins", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		o.Name = args[0]
		return a.kernelBuild(ctx, b)
	})
	b.work.add(c, &b.request)
	f := c.Flags()
	f.StringVar(&b.publish, "publish", publishAuto, "auto or never: `whether` to publish a kernel that wins")
	f.StringVar(&b.request.Until, "until", "", "stop after this `step`")
	f.StringArrayVar(&o.Nodes, "nodes", nil, "`file` of what kernel-broker-agent hardware printed on nodes, for slimming; may be given again")
	f.StringVar(&o.Aliases, "aliases", "", "modules.alias `file` of the nodes' own kernel: drivers of devices that have none at work")
	f.StringArrayVar(&b.fromRuns, "from-run", nil, "`number` of a profiling run that the kernel is made from: slimming keeps what its job used, its counters are the profile; several with commas, or given again")
	f.StringArrayVar(&b.fromPerf, "from-perf", nil, "`file` of branches that nodes recorded (perf record -b), or a profile made of such (kernel.afdo), which the kernel is optimised by; FILE=WEIGHT has it count so many times; may be given again")
	f.BoolVar(&o.Train, "train", false, "run the workload for slimming and profile, although the catalog has training data of earlier runs")
	f.StringVar(&o.SaveTraining, "save-training", "", "write what the runs recorded, and what this build measured, to this `file` (training/NAME.tar.zst of the catalog); without --train the runs are those of the catalog's training data")
	f.BoolVar(&b.request.Instrumented, "instrumented", false, "build the kernel that counts, register it as the profile NAME-instrumented, and stop")
	a.siteFlag(c)
	b.signature.flags(c)
	a.cacheFlag(c, true)
	c.AddCommand(a.buildStatusCommand(), a.buildLogCommand())
	_ = c.RegisterFlagCompletionFunc("publish", cobra.FixedCompletions([]string{publishAuto, publishNever}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// siteFlag adds --site, for commands that make kernels jobs' own.
func (a *app) siteFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.site, "site", site.DefaultPath, "`file` of what the site asks of kernels")
}

// cacheFlag adds --cache, for what a command has below it too.
func (a *app) cacheFlag(c *cobra.Command, below bool) {
	f := c.Flags()
	if below {
		f = c.PersistentFlags()
	}
	f.StringVar(&a.cache, "cache", "", "`folder` of what builds keep (default $KB_CACHE, or kernel-broker in the user's cache)")
}

func (a *app) cacheDir() (string, error) {
	if a.cache != "" {
		return filepath.Abs(a.cache)
	}
	if dir := a.Getenv("KB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	return build.DefaultCacheDir()
}

func (b *buildFlags) validate() error {
	r := &b.request
	switch {
	case b.publish != publishAuto && b.publish != publishNever:
		return usageError{fmt.Errorf("--publish %q is neither %s nor %s", b.publish, publishAuto, publishNever)}
	case b.publish == publishNever && len(b.signature.keys) > 0:
		return usageError{errors.New("--sign-key is for a kernel that is published")}
	case r.Instrumented && (r.Until != "" || b.publish == publishNever):
		return usageError{errors.New("--instrumented registers the kernel that counts, and so goes neither with --until nor --publish never")}
	case r.Options.SaveTraining != "" && (r.Instrumented || r.Until != ""):
		return usageError{errors.New("--save-training writes at the end of a whole build, and so goes neither with --instrumented nor --until")}
	}
	err := b.work.validate(r)
	if err != nil {
		return err
	}
	if r.Options.Samples, err = samples(b.fromPerf); err != nil {
		return err
	}
	r.Runs, err = runIDs(b.fromRuns)
	return err
}

// mostWeight of a file of samples against another.
const mostWeight = 1000

// samples reads FILE and FILE=WEIGHT. A file whose name is the whole text goes
// first, since names may have a "=" too.
func samples(files []string) ([]pipeline.Samples, error) {
	var all []pipeline.Samples
	for _, text := range files {
		one := pipeline.Samples{Path: text, Weight: 1}
		if i := strings.LastIndexByte(text, '='); i >= 0 && !exists(text) {
			weight, err := strconv.Atoi(text[i+1:])
			if err != nil || weight < 1 || weight > mostWeight {
				return nil, usageError{fmt.Errorf("--from-perf %q: the weight is a number from 1 to %d", text, mostWeight)}
			}
			one = pipeline.Samples{Path: text[:i], Weight: weight}
		}
		if _, err := os.Stat(one.Path); err != nil {
			return nil, usageError{fmt.Errorf("--from-perf: %w", err)}
		}
		all = append(all, one)
	}
	return all, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// runIDs reads lists of numbers, without repeats.
func runIDs(lists []string) ([]uint64, error) {
	var ids []uint64
	for _, text := range lists {
		for one := range strings.SplitSeq(text, ",") {
			id, err := runID(one)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

func (a *app) kernelBuild(ctx context.Context, b buildFlags) error {
	if err := b.validate(); err != nil {
		return err
	}
	r := b.request
	if err := b.work.complete(a, &r); err != nil {
		return err
	}
	if err := b.signature.open(ctx, a); err != nil {
		return err
	}
	r.Publish = b.publish == publishAuto && !r.Instrumented
	result, err := kernelbuild.Build(ctx, r, buildBroker{app: a, signature: &b.signature})
	if result.Cost != nil {
		a.say("%s: %s", r.Options.Name, formatCost(*result.Cost))
	}
	if result.Training != "" {
		a.say("training data in %s; in the recipe: training: %s", r.Options.SaveTraining, result.Training)
	}
	if result.Candidate != nil {
		err = errors.Join(err, a.showCandidate(*result.Candidate))
	}
	if err == nil && r.Instrumented {
		return a.showRef(result.Instrumented)
	}
	return err
}

// showCandidate prints what became of a kernel; one that does not do what it has
// to makes the command fail.
func (a *app) showCandidate(c pipeline.Candidate) error {
	if err := a.showValue(c, func(p *page) { candidatePage(p, c) }); err != nil {
		return err
	}
	if c.Outcome == pipeline.Failed {
		return fmt.Errorf("kernel %q: nothing is published: %s", c.Name, c.Reason)
	}
	return nil
}

func candidatePage(p *page, c pipeline.Candidate) {
	p.row("Kernel:", c.Name)
	p.row("Candidate:", c.ID)
	p.row("Verdict:", outcomeWord(c))
	p.row("Reason:", c.Reason)
	if c.Measured != nil {
		measuredRows(p, c.Measured)
	}
	p.row("Published:", c.Published)
	p.row("Release:", c.Release)
	p.row("Build id:", c.BuildID)
	p.row("Image:", p.shortDigest(c.ImageDigest)+" "+rounded.Size(uint64(c.ImageSize)))
	p.row("Made:", clock(c.Made))
	p.row("Folder:", c.Kernel)
	if c.Report != "" {
		p.row("Report:", c.Page())
	}
	if c.Console != "" {
		p.line("\nThe guest's last words:")
		for line := range strings.Lines(c.Console) {
			p.line("  %s", strings.TrimRight(line, "\n"))
		}
	}
}

func outcomeWord(c pipeline.Candidate) string {
	if c.Outcome == "" {
		return "not measured"
	}
	return strings.ToLower(string(c.Outcome))
}

func (a *app) kernelCandidatesCommand() *cobra.Command {
	c := a.command("candidates [NAME]", "List the kernels built here with their verdicts", cobra.MaximumNArgs(1),
		func(_ context.Context, args []string) error { return a.candidates(append(args, "")[0]) })
	a.cacheFlag(c, false)
	return c
}

func (a *app) candidates(name string) error {
	cache, err := a.cacheDir()
	if err != nil {
		return err
	}
	list, err := pipeline.CandidatesIn(cache).List(name)
	if err != nil {
		return err
	}
	return a.showValue(map[string]any{"candidates": list}, a.orNone(len(list), "no candidates", func(p *page) {
		p.head("KERNEL", "CANDIDATE", "VERDICT", "GAIN", "PUBLISHED", zoned("MADE", newest(list, func(c pipeline.Candidate) time.Time { return c.Made })), "SIZE", below+"REASON")
		for _, c := range list {
			gain := ""
			if c.Measured != nil {
				gain, _ = gainCells(c.Measured)
			}
			p.row(c.Name, c.ID, outcomeWord(c), gain, c.Published, minute(c.Made), rounded.Size(uint64(c.ImageSize)), c.Reason)
		}
	}))
}

// showValue prints a value that is not a message of the API.
func (a *app) showValue(value any, table func(*page)) error {
	if a.isTable() {
		return a.page(table)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return a.showJSON(text)
}
