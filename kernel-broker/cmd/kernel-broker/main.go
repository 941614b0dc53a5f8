// SPDX-License-Identifier: Apache-2.0

// Command kernel-broker is the broker: it keeps the catalog of kernels and has
// every job's nodes run the kernel that the job asked for.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

var version = "devel"

// Exit codes: 1 at run time, 2 for usage or a bad configuration.
const (
	exitRuntime = 1
	exitUsage   = 2
)

type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kernel-broker:", err)
		var usage usageError
		if errors.As(err, &usage) {
			os.Exit(exitUsage)
		}
		os.Exit(exitRuntime)
	}
}

// eachLine and allLines are the rates of log lines of one kind and of all. Ten thousand
// nodes that connect write some hundred. journald drops lines, of whatever kind, beyond
// ten thousand in half a minute.
var (
	eachLine = limit.Rate{PerSecond: 10, Burst: 300}
	allLines = limit.Rate{PerSecond: 50, Burst: 2000}
)

// Formats of the log.
const (
	logText = "text"
	logJSON = "json"
)

func newLog(to io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(to, options)
	if format == logJSON {
		handler = slog.NewJSONHandler(to, options)
	}
	return slog.New(limit.NewLines(handler, eachLine, allLines))
}

func command() *cobra.Command {
	var path string
	var endpoints []string
	check := false
	read := func() (config, error) {
		c, err := load(path)
		if err == nil && len(endpoints) > 0 {
			c.Etcd.Endpoints = endpoints
			err = c.Etcd.validate(c.Cluster)
		}
		if err != nil {
			return c, usageError{err}
		}
		return c, nil
	}
	cmd := &cobra.Command{
		Use:   "kernel-broker [--config FILE] [--etcd-endpoints URL,...]",
		Short: "Give each Slurm job the kernel made for its application",
		Long: `kernel-broker keeps the catalog of kernels and, when slurmctld allocates nodes
to a job that named a kernel profile, has their agents boot into its kernel by
kexec, proves that it runs, and brings the nodes back after the job.

It runs beside slurmctld. State is in etcd: one of its own in data_dir, or the
cluster that --etcd-endpoints or the configuration names.

Exit codes: 0 after SIGTERM or SIGINT, 1 for an error at run time, 2 for wrong
usage or a bad configuration.`,
		Version: version, SilenceErrors: true, SilenceUsage: true, Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := read()
			if err != nil {
				return err
			}
			var level slog.Level
			if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
				return usageError{fmt.Errorf("configuration %q: log_level: %w", path, err)}
			}
			if check {
				fmt.Fprintf(cmd.OutOrStdout(), "configuration %q is valid\n", path)
				return nil
			}
			return run(cmd.Context(), c, newLog(os.Stderr, c.LogFormat, level))
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.PersistentFlags().StringVar(&path, "config", "/etc/kernel-broker/broker.yaml", "configuration file")
	cmd.PersistentFlags().StringSliceVar(&endpoints, "etcd-endpoints", nil, "external etcd cluster to use instead of the embedded one")
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and exit")
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(storeCommand(read))
	return cmd
}
