// Command kb-fuzz runs every fuzz target of the repository and keeps the corpus.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/fuzz"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	o := fuzz.Options{Root: ".", Log: os.Stderr}
	var words []string
	var out string
	list, ofProcessor := false, false
	cmd := &cobra.Command{
		Use:   "kb-fuzz",
		Short: "Run every fuzz target and keep its corpus",
		Long: `kb-fuzz runs the fuzz targets of the repository in turn, each for the time given,
from the corpus in tests/fuzz-corpus on, and keeps there what they found: the
smallest inputs of each target. It prints a table and writes the same as JSON.

The time is what passes, while a target has the processor to itself or shares it
with the others of --at-once. With --of-processor it is a processor's: a run then
takes as long as that needs on a busy machine, and of several processors at once
no more counts than what passed. The table has both, and QUIET, the last of the
seconds, in which nothing new was found: a target that was quiet for long has
little to gain from more.

What each target has had with its code as it is adds up in
tests/fuzz-corpus/ledger.json, every five minutes. With --missing a target gets
only what it still lacks, so a long run can be ended (control-C) and gone on with
at any time. First come targets that never had their time, of these the ones that
read what strangers send; --only names others. --list prints the ledger.

An input that fails is below its package's testdata/fuzz, one of a target in C in
tests/fuzz/seeds: mend what it shows, and commit it with that.

Exit codes: 0 nothing was found, 1 something was, or did not work.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Clock = fuzz.Clock(ofProcessor)
			return run(cmd, o, words, list, out)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Time, "time", 10*time.Minute, "for each target")
	f.BoolVar(&ofProcessor, "of-processor", false, "the time is a processor's, not what passes")
	f.StringSliceVar(&words, "only", nil, "targets whose package and name contain this, or one of these, in their order")
	f.BoolVar(&o.Missing, "missing", false, "only what targets lack of that time with their code as it is")
	f.IntVar(&o.AtOnce, "at-once", 1, "targets side by side")
	f.IntVar(&o.Processors, "processors", 0, "processors for each target; 0 for all")
	f.BoolVar(&list, "list", false, "print what each target has had and end")
	f.StringVar(&o.Corpus, "corpus", "tests/fuzz-corpus", "folder of the archives and the ledger")
	f.StringVar(&o.Work, "work", "build/fuzz", "folder for what is made on the way")
	f.StringVar(&o.Go, "go", "go", "go command")
	f.StringVar(&out, "json", "build/fuzz/results.json", "file for the results")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-fuzz:", err)
		os.Exit(1)
	}
}

func run(cmd *cobra.Command, o fuzz.Options, words []string, list bool, out string) error {
	ctx := cmd.Context()
	for _, path := range []*string{&o.Root, &o.Corpus, &o.Work} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	all, err := fuzz.Find(o.Root, "kernel-broker", "slurm-plugin", "tests")
	if err != nil {
		return err
	}
	targets := fuzz.Choose(all, words)
	if len(targets) == 0 {
		return fmt.Errorf("no target's name contains %q", words)
	}
	codes, err := fuzz.Codes(ctx, o.Root, o.Go, targets)
	if err != nil {
		return err
	}
	ledger, err := o.Ledger()
	if err != nil {
		return err
	}
	if len(words) == 0 {
		targets = fuzz.Order(targets, ledger, codes, o.Time, o.Clock)
	}
	if !list {
		if err := fuzzAll(cmd, o, targets, codes, out); err != nil {
			return err
		}
	}
	if ledger, err = o.Ledger(); err != nil {
		return err
	}
	ledger.Table(cmd.OutOrStdout(), targets, codes, o.Time, o.Clock)
	return nil
}

func fuzzAll(cmd *cobra.Command, o fuzz.Options, targets []fuzz.Target, codes map[string]string, out string) error {
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return err
	}
	// A tree without git has no commit; what ran is known by its digest.
	commit, _ := exec.CommandContext(cmd.Context(), "git", "-C", o.Root, "rev-parse", "--short", "HEAD").Output()
	o.Commit = strings.TrimSpace(string(commit))
	report := fuzz.Report{Began: time.Now().UTC(), Time: o.Time.String(), AtOnce: o.AtOnce}
	var broken error
	report.Results, broken = fuzz.Run(cmd.Context(), o, targets, codes)
	failed := report.Table(cmd.OutOrStdout())
	fmt.Fprintln(cmd.OutOrStdout())
	if err := report.Write(out); err != nil {
		return errors.Join(broken, err)
	}
	if broken == nil && failed > 0 {
		return fmt.Errorf("%d of %d targets found something", failed, len(report.Results))
	}
	return broken
}
