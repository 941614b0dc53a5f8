// SPDX-License-Identifier: Apache-2.0

// Command kernel-broker-agent runs on every node: it boots the kernels that the broker requests, proves which kernel
// runs, and starts slurmd only then.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
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
		fmt.Fprintln(os.Stderr, "kernel-broker-agent:", err)
		var usage usageError
		if errors.As(err, &usage) {
			os.Exit(exitUsage)
		}
		os.Exit(exitRuntime)
	}
}

// noArguments is cobra.NoArgs as a usage error.
func noArguments(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

func command() *cobra.Command {
	var path string
	check := false
	cmd := &cobra.Command{
		Use:   "kernel-broker-agent [--config FILE]",
		Short: "Bring this node to the kernel that the broker wants",
		Long: `kernel-broker-agent runs on every node. It dials the broker, fetches kernels by
digest, boots them with kexec, proves the running kernel, and lets slurmd run only
after the broker has verified it.

It needs root, and nothing else may start slurmd. SIGTERM ends the agent and
leaves slurmd and the node unchanged.

Exit codes: 0 after SIGTERM or SIGINT, 1 for an error at run time, 2 for wrong
usage or a bad configuration.`,
		Version: version, SilenceErrors: true, SilenceUsage: true, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Read(path)
			if err != nil {
				return usageError{err}
			}
			if check {
				return nil
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			if err := agent.KeepToSystemCPUs(c.Proc); err != nil {
				log.Warn("the agent, and a slurmd that it starts, use the application's CPUs too", "error", err)
			}
			return run(cmd.Context(), c, log)
		},
	}
	cmd.PersistentFlags().StringVar(&path, "config", config.DefaultPath, "configuration file")
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and exit")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(statusCommand(&path), waitCommand(&path), hardwareCommand(), checkTrustCommand())
	return cmd
}

func checkTrustCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check-trust FILE", Short: "Check a trust list and exit",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := signing.ReadTrust(args[0], nil); err != nil {
				return usageError{err}
			}
			return nil
		},
	}
}
