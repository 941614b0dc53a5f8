// SPDX-License-Identifier: Apache-2.0

// Command kblab brings up, uses and takes down a Slurm cluster of virtual
// machines on this host. See the package lab for how it works.
//
// Exit codes: 0 done, 1 it did not work, 2 wrong usage; "exec" and "node exec"
// end with the command's own, and an interrupt with 130.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// exitCode is an error that only carries a command's exit status.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// usageError marks what deserves exit code 2.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	var code exitCode
	var usage usageError
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(os.Stderr, "kblab: %v\n", err)
		os.Exit(128 + int(syscall.SIGINT))
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "kblab: %v\nTry \"kblab --help\".\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "kblab: %v\n", err)
		os.Exit(1)
	}
}

// app holds what all commands share.
type app struct{ dir string }

func newRoot() *cobra.Command {
	a := &app{}
	root := &cobra.Command{
		Use:   "kblab",
		Short: "A Slurm cluster of virtual machines on this host",
		Long: `kblab brings up a Slurm cluster of virtual machines on this host: a front-end
(slurmctld, munge, the broker and users' shells in private namespaces) and nodes
n1, n2, ... under QEMU. Nothing on the host itself changes, and "kblab down"
leaves nothing behind. Users: alice and bob.`,
		Example: `  kblab up --nodes 2
  kblab exec -- srun -N2 uname -r
  kblab shell
  kblab down`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q", args[0])}
			}
			return nil
		},
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.dir, "dir", "",
		"the lab's folder (default: $KBLAB_DIR, else build/lab/default in the repository)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(a.upCommand(), a.downCommand(), a.statusCommand(), a.shellCommand(), a.execCommand(),
		a.consoleCommand(), a.resetCommand(), a.powerCommand(), a.nodeCommand(), a.bmcCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// exactly is cobra's check of the number of arguments as a usage error.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

func atLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := cobra.MinimumNArgs(n)(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
