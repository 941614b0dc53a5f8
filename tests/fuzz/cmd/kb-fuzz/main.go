// Command kb-fuzz runs every fuzz target of the repository and keeps the corpus.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/fuzz"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	o := fuzz.Options{Root: ".", Log: os.Stderr}
	var words, out string
	list := false
	cmd := &cobra.Command{
		Use:   "kb-fuzz",
		Short: "Run every fuzz target and keep its corpus",
		Long: `kb-fuzz runs the fuzz targets of the repository in turn, each for the time given,
from the corpus in tests/fuzz-corpus on, and keeps there what they found: the
smallest inputs of each target. It prints a table and writes the same as JSON.

An input that fails is below its package's testdata/fuzz: mend what it shows, and
commit it with that.

Exit codes: 0 nothing was found, 1 something was, or did not work.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			targets, err := fuzz.Find(o.Root, []string{"kernel-broker", "tests"}, words)
			if err != nil {
				return err
			}
			if len(targets) == 0 {
				return fmt.Errorf("no target's name contains %q", words)
			}
			if list {
				for _, t := range targets {
					fmt.Fprintln(cmd.OutOrStdout(), t)
				}
				return nil
			}
			return run(cmd.Context(), cmd, o, targets, out)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Time, "time", 10*time.Minute, "for each target")
	f.StringVar(&words, "only", "", "targets whose package and name contain this")
	f.BoolVar(&list, "list", false, "list them and end")
	f.StringVar(&o.Corpus, "corpus", "tests/fuzz-corpus", "folder of the archives")
	f.StringVar(&o.Work, "work", "build/fuzz", "folder for what is made on the way")
	f.StringVar(&o.Go, "go", "go", "go command")
	f.StringVar(&out, "json", "build/fuzz/results.json", "file for the results")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cmd *cobra.Command, o fuzz.Options, targets []fuzz.Target, out string) error {
	for _, path := range []*string{&o.Root, &o.Corpus, &o.Work} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return err
	}
	report := fuzz.Report{Began: time.Now().UTC(), Time: o.Time.String()}
	var broken error
	report.Results, broken = fuzz.Run(ctx, o, targets)
	failed := report.Table(cmd.OutOrStdout())
	if err := report.Write(out); err != nil {
		return errors.Join(broken, err)
	}
	if broken == nil && failed > 0 {
		return fmt.Errorf("%d of %d targets found something", failed, len(report.Results))
	}
	return broken
}
