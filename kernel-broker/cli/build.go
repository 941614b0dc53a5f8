// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
)

// Values of --where and --publish.
const (
	whereLocal   = "local"
	whereSlurm   = "slurm"
	publishAuto  = "auto"
	publishNever = "never"
)

// buildFlags are the flags of kernel build.
type buildFlags struct {
	request        kernelbuild.Request
	where, publish string
	partition      string
	slurm          kernelbuild.Slurm
	fromRuns       []string
	signature      signature
}

func (a *app) kernelBuildCommand() *cobra.Command {
	b := buildFlags{}
	o := &b.request.Options
	c := &cobra.Command{
		Use: "build NAME", Short: "Build a kernel, measure it, and publish it if it wins",
		Args: cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			o.Name = args[0]
			return a.kernelBuild(ctx, b)
		}),
	}
	f := c.Flags()
	f.StringVar(&o.Catalog, "catalog", "", "`folder` with kernels/, fragments/, workloads/ and keep/ (default ./catalog, else the installed one)")
	f.StringVar(&b.where, "where", whereLocal, "local or slurm: `where` the steps are done")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "`number` of compilers at a time")
	f.IntVar(&b.request.Parallel, "parallel", 1, "`number` of steps at a time, with --where local")
	f.StringVar(&b.publish, "publish", publishAuto, "auto or never: `what` becomes of a kernel that wins")
	f.StringVar(&b.request.Until, "until", "", "stop after this `step`")
	f.StringVar(&b.partition, "partition", "", "Slurm `partition`")
	f.StringArrayVar(&b.slurm.Arguments, "sbatch", nil, "further `argument` for sbatch; may be given again")
	f.StringVar(&b.slurm.Worker, "worker", "", "kernel-factory `program` as the nodes see it (default: beside kernelctl, else by PATH)")
	f.StringVar(&o.Programs, "programs", "", "`folder` of the workloads' programs")
	f.StringVar(&o.Plugin, "plugin", "", "the emulator's plugin `file`, kbcount.so")
	f.StringArrayVar(&o.Nodes, "nodes", nil, "`file` of what kernel-broker-agent hardware printed on nodes, for slimming; may be given again")
	f.StringVar(&o.Aliases, "aliases", "", "modules.alias `file` of the nodes' own kernel: drivers of devices that have none at work")
	f.StringArrayVar(&b.fromRuns, "from-run", nil, "`number` of a profiling run that the kernel is made from: slimming keeps what its job used, its counters are the profile; several with commas, or given again")
	f.BoolVar(&b.request.Instrumented, "instrumented", false, "build the kernel that counts, register it as the profile NAME-instrumented, and stop")
	a.siteFlag(c)
	b.signature.flags(c)
	a.cacheFlag(c, true)
	c.AddCommand(a.buildStatusCommand(), a.buildLogCommand())
	_ = c.RegisterFlagCompletionFunc("where", cobra.FixedCompletions([]string{whereLocal, whereSlurm}, cobra.ShellCompDirectiveNoFileComp))
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
	case b.where != whereLocal && b.where != whereSlurm:
		return usageError{fmt.Errorf("--where %q is neither %s nor %s", b.where, whereLocal, whereSlurm)}
	case b.publish != publishAuto && b.publish != publishNever:
		return usageError{fmt.Errorf("--publish %q is neither %s nor %s", b.publish, publishAuto, publishNever)}
	case b.publish == publishNever && len(b.signature.keys) > 0:
		return usageError{errors.New("--sign-key is for a kernel that is published")}
	case r.Instrumented && (r.Until != "" || b.publish == publishNever):
		return usageError{errors.New("--instrumented registers the kernel that counts, and so goes neither with --until nor --publish never")}
	case r.Options.Jobs < 1 || r.Parallel < 1:
		return usageError{errors.New("--jobs and --parallel: at least 1")}
	case b.where == whereLocal && (b.partition != "" || len(b.slurm.Arguments) > 0):
		return usageError{errors.New("--partition and --sbatch are for --where slurm")}
	}
	if err := kb.ValidateProfileName(r.Options.Name); err != nil {
		return usageError{err}
	}
	var err error
	r.Runs, err = runIDs(b.fromRuns)
	return err
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
	var err error
	if r.Options.Cache, err = a.cacheDir(); err != nil {
		return err
	}
	if err := b.signature.open(ctx, a); err != nil {
		return err
	}
	r.Site, r.Options.Builder = a.site, "kernelctl "+a.Version
	r.Publish = b.publish == publishAuto && !r.Instrumented
	if b.where == whereSlurm {
		r.Slurm = &b.slurm
		if b.partition != "" {
			r.Slurm.Arguments = append([]string{"--partition", b.partition}, r.Slurm.Arguments...)
		}
	}
	r.Observe, r.Say = (&graph.Printer{Out: a.Stderr, Terminal: a.Terminal}).Observe, a.say
	result, err := kernelbuild.Build(ctx, r, buildBroker{app: a, signature: &b.signature})
	if result.Cost != nil {
		a.say("%s: %s", r.Options.Name, formatCost(*result.Cost))
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
	p.row("Published:", c.Published)
	p.row("Release:", c.Release)
	p.row("Build id:", c.BuildID)
	p.row("Image:", c.ImageDigest+" "+bytesOf(uint64(c.ImageSize)))
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
