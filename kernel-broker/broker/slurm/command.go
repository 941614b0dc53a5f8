// SPDX-License-Identifier: Apache-2.0

// Package slurm polls slurmctld and makes the product's changes there, through Slurm's own commands. It decides nothing.
//
// It uses commands instead of the C library: their output is stable from 22.05 on, whereas the library must match
// slurmctld to the micro version. It only parses fields that users cannot write. Accounts and comments, which may hold
// any text, have separate queries with fixed-length records.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

// Client runs Slurm's commands. Safe for concurrent use.
type Client struct {
	scontrol, squeue, scancel string
	env                       []string
	limit                     time.Duration
	most                      int // output limit of a command in bytes
	now                       func() time.Time
	timeouts                  cache.Cache[struct{}, time.Duration]
}

// Options of a client.
type Options struct {
	// BinDir holds scontrol, squeue and scancel.
	BinDir string
	// Conf is the path of slurm.conf; empty for Slurm's default.
	Conf string
	// Limit bounds every command.
	Limit time.Duration
	// Now is the clock of polls; nil means time.Now.
	Now func() time.Time
}

// New returns a client.
func New(o Options) *Client {
	env := append(os.Environ(), "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
	if o.Conf != "" {
		env = append(env, "SLURM_CONF="+o.Conf)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{
		now:      o.Now,
		scontrol: o.BinDir + "/scontrol", squeue: o.BinDir + "/squeue", scancel: o.BinDir + "/scancel",
		env: env, limit: o.Limit, most: maxOutput,
	}
}

// maxOutput limits the output of a command. 10,000 nodes take some 10 MB, as many pending jobs 2 MB, and 11 MB with
// their comments.
const maxOutput = 256 << 20

// printed collects a command's output and ends a command that exceeds the limit.
type printed struct {
	text strings.Builder
	most int
	full bool
	end  func()
}

func (p *printed) Write(data []byte) (int, error) {
	if len(data) > p.most-p.text.Len() {
		p.full = true
		p.end()
		return 0, errors.New("output limit exceeded")
	}
	return p.text.Write(data)
}

// run executes one command and returns its output. Slurm's commands report some refusals on stderr with exit 0, so
// stderr is returned too.
func (c *Client) run(ctx context.Context, program string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // G204: Slurm's own commands, no shell; names are checked by the domain
	cmd.Env = c.env
	cmd.WaitDelay = time.Second
	out, errs := &printed{most: c.most, end: cancel}, &printed{most: c.most, end: cancel}
	cmd.Stdout, cmd.Stderr = out, errs
	err = cmd.Run()
	stderr = strings.TrimSpace(errs.text.String())
	if err == nil {
		return out.text.String(), stderr, nil
	}
	what := args[0]
	if len(args) > 1 {
		what += " " + args[1]
	}
	if out.full || errs.full {
		return "", "", fmt.Errorf("slurm command %q printed more than the limit of %d bytes (run it by hand to see its output): %w",
			filepath.Base(program)+" "+what, c.most, kb.ErrUnavailable)
	}
	if ctx.Err() != nil {
		return "", stderr, fmt.Errorf("slurm command %q took more than %v: %w", what, c.limit, kb.ErrUnavailable)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.text.String(), stderr, &CommandError{What: what, Exit: exit.ExitCode(), Text: firstLine(stderr + out.text.String())}
	}
	return "", stderr, fmt.Errorf("slurm command %q: %w: %w", what, kb.ErrUnavailable, err)
}

// CommandError is a refusal by slurmctld.
type CommandError struct {
	What string
	Exit int
	Text string
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("slurm command %q: exit %d: %s", e.What, e.Exit, e.Text)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// change runs a scontrol command that has no output.
func (c *Client) change(ctx context.Context, args ...string) error {
	return c.command(ctx, c.scontrol, args...)
}

// command runs a program that has no output. Text on stderr is a refusal, whatever the exit code.
func (c *Client) command(ctx context.Context, program string, args ...string) error {
	_, stderr, err := c.run(ctx, program, args...)
	if err != nil {
		return err
	}
	if stderr != "" {
		return &CommandError{What: strings.Join(args[:min(2, len(args))], " "), Text: firstLine(stderr)}
	}
	return nil
}
