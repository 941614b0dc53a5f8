// SPDX-License-Identifier: Apache-2.0

// Command kb-emulated brings up an emulated cluster, gives a user's shell on it
// or runs a command, and brings it down afterwards.
//
//	kb-emulated [--user alice] [--nodes 3] [COMMAND...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

func main() {
	exit, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kb-emulated:", err)
		exit = 1
	}
	os.Exit(exit)
}

func run() (exit int, err error) {
	o, err := emulated.Defaults()
	if err != nil {
		return 1, err
	}
	user := flag.String("user", "alice", "who runs it: alice, bob or root")
	flag.IntVar(&o.Nodes, "nodes", o.Nodes, "how many nodes")
	flag.StringVar(&o.Slurm, "slurm", o.Slurm, "version of Slurm: "+strings.Join(slurmroot.Versions, ", "))
	flag.Parse()
	o.Dir = filepath.Join(o.Product, "emulated", o.Slurm, "shell")
	o.Progress = os.Stderr
	// An interrupt is the shell's own.
	signal.Ignore(os.Interrupt)
	ctx := context.Background()
	c, err := emulated.Up(ctx, o)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, c.Down(ctx, false)) }()
	argv := flag.Args()
	if len(argv) == 0 {
		argv = []string{"/bin/bash", "-i"}
	}
	return c.Run(ctx, *user, lab.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: true}, argv...)
}
