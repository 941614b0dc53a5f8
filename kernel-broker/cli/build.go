// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
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

// buildRequest is what kernel build was given.
type buildRequest struct {
	options        pipeline.Options
	where, publish string
	until          string
	parallel       int
	partition      string
	sbatch         []string
	worker         string
	fromRuns       []string
	instrumented   bool
	signature      signature
}

const buildLong = `Makes the kernel of catalog/kernels/NAME.yaml and finds out whether it is better
than the one that jobs get today: configures, slims by a run, compiles with
counters, takes a profile of the application, compiles with it, boots the
result, measures it with data that it has not seen, and judges. Only what the
recipe asks for is done, and nothing that was done before: a build that was
killed goes on where it was, and two builds at once share their work.

A kernel that beats the current one by more than the spread, and passes the
workload's checks, is registered as a new version of profile NAME and becomes
its default, with a signature where --sign-key is given: nodes with a trust list
boot no other. Any other kernel stays a candidate, with a report that says why. One
that does not boot, or on which the workload fails, is a candidate that failed,
with the guest's last words, and the exit code is 1.

A kernel keeps the mitigations of the distribution's own kernel, or it is refused;
the file of --site can leave them to recipes.

With --from-run jobs have a say beside the workload. Of a run with the collectors
syscalls or callgraph, on any kernel, slimming leaves in what the job was seen to
use: functions and system calls, which are known by name, and the types of file
systems that io found. The counters of a run with pgo are the profile, in place of
the workload's, of all its nodes together; they have to come from the instrumented
kernel of this very build, slimmed by the same runs, and any other's are refused.
What is measured is the workload all the same, so that the verdict compares like
with like.

With --instrumented that kernel is built and registered as the profile
NAME-instrumented, which jobs boot that ask for pgo. Nobody else gets it. So from
runs to a kernel:

  kernelctl kernel build NAME --instrumented --from-run 3
  sbatch --kernel-profile=NAME --kernel-profiling=pgo job.sh    (run 7, say)
  kernelctl kernel build NAME --from-run 3,7

With --where slurm each step is a job. The cache folder must then be one that
all nodes of the partition see at the same path, and so must the catalog be.`

func (a *app) kernelBuildCommand() *cobra.Command {
	r := buildRequest{}
	c := &cobra.Command{
		Use: "build NAME", Short: "Build a kernel, measure it, and publish it if it wins", Long: buildLong,
		Example: "  kernelctl kernel build mitgcm\n  kernelctl kernel build mitgcm --where slurm --partition build --publish never",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			r.options.Name = args[0]
			return a.kernelBuild(ctx, r)
		}),
	}
	f := c.Flags()
	f.StringVar(&r.options.Catalog, "catalog", "", "`folder` with kernels/, fragments/, workloads/ and keep/ (default ./catalog, else the installed one)")
	f.StringVar(&r.where, "where", whereLocal, "local or slurm: `where` the steps are done")
	f.IntVar(&r.options.Jobs, "jobs", runtime.NumCPU(), "`number` of compilers at a time")
	f.IntVar(&r.parallel, "parallel", 1, "`number` of steps at a time, with --where local")
	f.StringVar(&r.publish, "publish", publishAuto, "auto or never: `what` becomes of a kernel that wins")
	f.StringVar(&r.until, "until", "", "stop after this `step`")
	f.StringVar(&r.partition, "partition", "", "Slurm `partition`")
	f.StringArrayVar(&r.sbatch, "sbatch", nil, "further `argument` for sbatch; may be given again")
	f.StringVar(&r.worker, "worker", "", "kernel-factory `program` as the nodes see it (default: beside kernelctl, else by PATH)")
	f.StringVar(&r.options.Programs, "programs", "", "`folder` of the workloads' programs")
	f.StringVar(&r.options.Plugin, "plugin", "", "the emulator's plugin `file`, kbcount.so")
	f.StringArrayVar(&r.options.Nodes, "nodes", nil, "`file` of what kernel-broker-agent hardware printed on nodes, for slimming; may be given again")
	f.StringVar(&r.options.Aliases, "aliases", "", "modules.alias `file` of the nodes' own kernel: drivers of devices that have none at work")
	f.StringArrayVar(&r.fromRuns, "from-run", nil, "`number` of a profiling run that the kernel is made from: slimming keeps what its job used, its counters are the profile; several with commas, or given again")
	f.BoolVar(&r.instrumented, "instrumented", false, "build the kernel that counts, register it as the profile NAME-instrumented, and stop")
	a.siteFlag(c)
	r.signature.flags(c)
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

func (r buildRequest) validate() error {
	switch {
	case r.where != whereLocal && r.where != whereSlurm:
		return usageError{fmt.Errorf("--where %q is neither %s nor %s", r.where, whereLocal, whereSlurm)}
	case r.publish != publishAuto && r.publish != publishNever:
		return usageError{fmt.Errorf("--publish %q is neither %s nor %s", r.publish, publishAuto, publishNever)}
	case r.publish == publishNever && len(r.signature.keys) > 0:
		return usageError{errors.New("--sign-key is for a kernel that is published")}
	case r.instrumented && (r.until != "" || r.publish == publishNever):
		return usageError{errInstrumented}
	case r.options.Jobs < 1 || r.parallel < 1:
		return usageError{errors.New("--jobs and --parallel: at least 1")}
	case r.where == whereLocal && (r.partition != "" || len(r.sbatch) > 0):
		return usageError{errors.New("--partition and --sbatch are for --where slurm")}
	}
	if err := kb.ValidateProfileName(r.options.Name); err != nil {
		return usageError{err}
	}
	return nil
}

func (a *app) kernelBuild(ctx context.Context, r buildRequest) error {
	if err := r.validate(); err != nil {
		return err
	}
	policy, err := site.Load(a.site)
	if err != nil {
		return err
	}
	r.options.UnequalMitigations = policy.Mitigations == site.Any
	if r.options.Cache, err = a.cacheDir(); err != nil {
		return err
	}
	if err := r.signature.open(ctx, a); err != nil {
		return err
	}
	if err := r.options.Complete(); err != nil {
		return err
	}
	if err := a.fromRuns(ctx, &r); err != nil {
		return err
	}
	// The broker is asked first: hours later is no time to learn that it is away.
	if err := a.current(ctx, &r); err != nil {
		return err
	}
	r.options.Command, r.options.Builder = r.command(), "kernelctl "+a.Version
	p, err := pipeline.Open(ctx, r.options)
	if err != nil {
		return err
	}
	if r.instrumented {
		if err := instrumented(p.Recipe); err != nil {
			return err
		}
		r.until = p.InstrumentedStep()
	} else if r.publish == publishAuto {
		p.Publisher = publisher{app: a, signature: r.signature}
	}
	runner, err := a.runner(r)
	if err != nil {
		return err
	}
	var until []string
	if r.until != "" {
		until = []string{r.until}
	}
	candidate, err := p.Build(ctx, runner, until...)
	if status, err := p.Store.Status(r.options.Name, ""); err == nil { // else there is only less to tell
		a.say("%s: %s", r.options.Name, formatCost(status.Cost))
	}
	if r.instrumented && err == nil {
		return a.publishInstrumented(ctx, p, r)
	}
	if candidate == nil {
		return err
	}
	return errors.Join(err, a.showCandidate(*candidate))
}

// current finds what a build is compared with and what goes on to its kernel, and
// whether the result could be published.
func (a *app) current(ctx context.Context, r *buildRequest) error {
	if r.instrumented {
		_, err := a.profileIfAny(ctx, r.options.Name+kb.InstrumentedSuffix)
		return err
	}
	if r.publish != publishAuto {
		return nil
	}
	var err error
	if r.options.Current, err = a.currentKernel(ctx, r.options.Name, r.options.Cache); err != nil {
		return fmt.Errorf("%w (--publish never builds without a broker)", err)
	}
	profile, err := a.profileIfAny(ctx, r.options.Name)
	if err != nil {
		return err
	}
	_, err = argumentsOf(profile, &r.signature)
	return err
}

// command by which a report can be had again.
func (r buildRequest) command() string {
	command := "kernelctl kernel build " + r.options.Name
	if len(r.options.Traces) > 0 {
		command += " --from-run " + strings.Join(r.fromRuns, ",")
	}
	return command
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

// runner does the steps here or in jobs.
func (a *app) runner(r buildRequest) (*graph.Runner, error) {
	printer := &graph.Printer{Out: a.Stderr, Terminal: a.Terminal}
	runner := &graph.Runner{Store: pipeline.StoreIn(r.options.Cache), Parallel: r.parallel, Observe: printer.Observe}
	if r.where == whereLocal {
		return runner, nil
	}
	plan, err := r.options.Save()
	if err != nil {
		return nil, err
	}
	worker := r.worker
	if worker == "" {
		worker = findTool("kernel-factory")
	}
	arguments := r.sbatch
	if r.partition != "" {
		arguments = append([]string{"--partition", r.partition}, arguments...)
	}
	runner.Executor = &graph.Slurm{Worker: []string{worker, "step", "--plan", plan}, Arguments: arguments}
	return runner, nil
}

// findTool finds a program of ours: in the folder of this one, else by PATH.
func findTool(name string) string {
	executable, err := os.Executable()
	if err != nil {
		return name
	}
	path := filepath.Join(filepath.Dir(executable), name)
	if _, err := os.Stat(path); err != nil {
		return name
	}
	return path
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
