// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Result is the result of a command.
type Result = lab.Result

// Exec runs a command on the front-end as a user, in the user's home and with a fresh environment. A command that ran
// and failed is no error: see Exit.
func (c *Cluster) Exec(ctx context.Context, user string, argv ...string) (Result, error) {
	var out, errs bytes.Buffer
	exit, err := c.Run(ctx, user, lab.Streams{Out: &out, Err: &errs}, argv...)
	return Result{Stdout: out.String(), Stderr: errs.String(), Exit: exit}, err
}

// Run is Exec with the caller's streams.
func (c *Cluster) Run(ctx context.Context, user string, s lab.Streams, argv ...string) (int, error) {
	args, err := c.asCommand(user, argv)
	if err != nil {
		return 0, err
	}
	return run(ctx, s, args)
}

// must runs a command of the harness's own and turns a failure into an error.
func (c *Cluster) must(ctx context.Context, user string, argv ...string) error {
	r, err := c.Exec(ctx, user, argv...)
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("command %q as %s: exit %d: %s", strings.Join(argv, " "), user, r.Exit, strings.TrimSpace(r.Stderr+r.Stdout))
	}
	return err
}

func run(ctx context.Context, s lab.Streams, args []string) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.WaitDelay = 2 * time.Second
	if !s.Terminal {
		// Its own process group, so that a cancel reaches all of it; SIGINT, so that srun cancels its job.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("command %q: %w", args[len(args)-1], ctx.Err())
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // a child of it kept the pipe
		return 0, nil
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, fmt.Errorf("command %q: %w", args[0], err)
}

// wait polls a condition.
func (c *Cluster) wait(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %v", lab.ErrTimeout, limit))
	defer cancel()
	for {
		began := time.Now()
		ok, err := done()
		if ok && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-time.After(pollPause(time.Since(began))):
		}
	}
}

// pollEvery is the pause between two looks at a condition. Each starts a program or two, for several clusters side by side:
// where that takes long the processors are busy, and more of it makes everything later.
const (
	pollEvery    = 50 * time.Millisecond
	longestPause = 200 * time.Millisecond
)

// pollPause follows a look that took so long.
func pollPause(took time.Duration) time.Duration { return min(max(pollEvery, 2*took), longestPause) }

func (c *Cluster) progress(format string, args ...any) {
	var w io.Writer = io.Discard
	if c.options.Progress != nil {
		w = c.options.Progress
	}
	// A closed terminal is no reason to stop half-way.
	_, _ = fmt.Fprintf(w, "emulated: "+format+"\n", args...)
}
