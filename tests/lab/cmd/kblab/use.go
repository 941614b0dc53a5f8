// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

func (a *app) shellCommand() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use:   "shell",
		Short: "A shell on the front-end",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.run(c, user, true, []string{"/bin/bash"})
		},
	}
	c.Flags().StringVar(&user, "user", "alice", "alice, bob or root")
	return c
}

func (a *app) execCommand() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use:     "exec [--user NAME] -- COMMAND [ARGUMENT...]",
		Short:   "Run a command on the front-end",
		Example: "  kblab exec --user bob -- srun -N2 hostname",
		Args:    atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.run(c, user, false, args)
		},
	}
	c.Flags().StringVar(&user, "user", "alice", "alice, bob or root")
	c.Flags().SetInterspersed(false)
	return c
}

func (a *app) run(c *cobra.Command, user string, terminal bool, args []string) error {
	l, err := a.open()
	if err != nil {
		return err
	}
	ctx := c.Context()
	if terminal {
		// Interrupts are for what runs in the shell.
		ctx = context.WithoutCancel(ctx)
	}
	code, err := l.Run(ctx, user, lab.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: terminal,
	}, args...)
	if err == nil && code != 0 {
		err = exitCode(code)
	}
	return err
}

func (a *app) node(name string) (lab.Node, error) {
	l, err := a.open()
	if err != nil {
		return lab.Node{}, err
	}
	n, err := l.NodeNamed(name)
	if err != nil {
		return n, usageError{err}
	}
	return n, nil
}

func (a *app) consoleCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "console NODE",
		Short: "Print what a node's serial console said",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.node(args[0])
			if err != nil {
				return err
			}
			if follow {
				return n.Follow(c.Context(), os.Stdout)
			}
			text, err := os.ReadFile(n.Console())
			if err != nil {
				return fmt.Errorf("node %q: %w", n.Name(), err)
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as it grows")
	return c
}

func (a *app) resetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset NODE",
		Short: "Press a node's reset button",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.node(args[0])
			if err != nil {
				return err
			}
			return n.Reset(c.Context())
		},
	}
}

func (a *app) powerCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "power NODE on|off|pause|resume",
		Short:     "Switch a node's power, or stop its processors for a while",
		Args:      exactly(2),
		ValidArgs: []string{"on", "off", "pause", "resume"},
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.node(args[0])
			if err != nil {
				return err
			}
			act := map[string]func(context.Context) error{
				"on": n.PowerOn, "off": n.PowerOff, "pause": n.Pause, "resume": n.Resume,
			}[args[1]]
			if act == nil {
				return usageError{fmt.Errorf("power %q: want on, off, pause or resume", args[1])}
			}
			return act(c.Context())
		},
	}
}

func (a *app) nodeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "node NODE -- COMMAND [ARGUMENT...]",
		Short:   "Run a command as root on a node, also without slurmd",
		Example: "  kblab node n1 -- dmesg",
		Args:    atLeast(2),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.node(args[0])
			if err != nil {
				return err
			}
			command := args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return usageError{errors.New("no command")}
			}
			r, err := n.Exec(c.Context(), command...)
			if err != nil {
				return err
			}
			fmt.Fprint(c.OutOrStdout(), r.Stdout)
			fmt.Fprint(c.ErrOrStderr(), r.Stderr)
			if r.Exit != 0 {
				return exitCode(r.Exit)
			}
			return nil
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

func (a *app) bmcCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "bmc reset|off NODE",
		Short:  "On the front-end: what a management controller's tool does",
		Hidden: true,
		Args:   exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			return lab.BMC(c.Context(), args[0], args[1])
		},
	}
}
