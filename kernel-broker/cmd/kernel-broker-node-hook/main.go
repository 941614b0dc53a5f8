// SPDX-License-Identifier: Apache-2.0

// Command kernel-broker-node-hook is slurmd's Epilog: when a job with a kernel profile ends, it asks the node's agent
// whether the node is kept for another job. It waits 3 seconds at most and always exits 0, because Slurm drains a node
// whose epilog fails; without an answer the node returns to stock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

var version = "devel"

const (
	timeout   = 3 * time.Second
	exitUsage = 2
	stock     = "stock"
)

const usage = `Usage: kernel-broker-node-hook [--socket PATH] [--node-state PATH]

Slurm's Epilog on nodes under Kernel Broker: reads SLURM_JOB_ID and asks the
agent whether the node is kept for another job. Says on standard error what
came of it. Exit codes: 0 always, but 2 for wrong usage.

`

// paths of the agent's files.
type paths struct{ socket, state string }

func main() {
	var p paths
	show := false
	flags := flag.NewFlagSet("kernel-broker-node-hook", flag.ContinueOnError)
	flags.StringVar(&p.socket, "socket", "/run/kernel-broker/agent.sock", "the agent's socket")
	flags.StringVar(&p.state, "node-state", "/run/kernel-broker/node.state", "the agent's proof for the gate")
	flags.BoolVar(&show, "version", false, "print the version")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil || flags.NArg() > 0:
		os.Exit(exitUsage)
	case show:
		fmt.Println(version)
		return
	}
	if err := epilog(p, os.Getenv("SLURM_JOB_ID"), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "kernel-broker-node-hook:", err)
	}
}

func epilog(p paths, id string, log io.Writer) error {
	job, err := strconv.ParseUint(id, 10, 32)
	if err != nil || job == 0 {
		return fmt.Errorf("SLURM_JOB_ID %q is no job id", id)
	}
	// A file that cannot be read is not a reason to stay silent.
	if state, present, err := nodestate.Read(p.state); err == nil && present && state.Profile == stock {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	answer, err := local.Ask(ctx, p.socket, local.Request{Op: local.JobEnding, Job: uint32(job)})
	if err != nil {
		return fmt.Errorf("job %d: %w", job, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("job %d: %s", job, answer.Error)
	}
	fate := "goes back to stock"
	if answer.Kept {
		fate = "is kept for the next job"
	}
	_, err = fmt.Fprintf(log, "kernel-broker-node-hook: job %d ended, the node %s\n", job, fate)
	return err
}
