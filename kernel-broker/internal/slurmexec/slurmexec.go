// SPDX-License-Identifier: Apache-2.0

// Package slurmexec runs Slurm's commands: of this cluster in a federation, with bounded time and output, and with errors
// that name the command and what it printed.
package slurmexec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Runner runs commands. The zero value runs them in this process's environment, without a time limit.
type Runner struct {
	// Environ of the commands; nil: this process's.
	Environ []string
	// Conf is the path of slurm.conf; empty: Slurm's default.
	Conf string
	// Limit bounds each command; 0: only its context does.
	Limit time.Duration
	// Input is what the command reads.
	Input []byte
	// MaxOutput bounds what a command prints, in bytes; 0: 64 MiB.
	MaxOutput int
}

// ExitError is a command that slurmctld refused.
type ExitError struct {
	// Command is the program and its first arguments.
	Command string
	Exit    int
	// Text is what it printed, on one line.
	Text string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", e.Command, e.Exit, e.Text)
}

// Refused is the error of a command that printed this.
func Refused(exit int, text, program string, arguments ...string) *ExitError {
	text = strings.Join(strings.Fields(text), " ")
	return &ExitError{Command: name(program, arguments), Exit: exit, Text: text[:min(len(text), maxText)]}
}

// maxText bounds the text of an error.
const maxText = 1000

// name is what errors call a command.
func name(program string, arguments []string) string {
	return strings.Join(append([]string{filepath.Base(program)}, arguments[:min(len(arguments), 2)]...), " ")
}

// printed collects a command's output and ends a command that exceeds the limit.
type printed struct {
	text strings.Builder
	most int
	size int
	full bool
	end  func()
	// line gets the output instead, and the text only has what an error may quote.
	line    func([]byte)
	partial []byte
}

func (p *printed) Write(data []byte) (int, error) {
	if len(data) > p.most-p.size {
		p.full = true
		p.end()
		return 0, errors.New("output limit exceeded")
	}
	p.size += len(data)
	if p.line == nil {
		return p.text.Write(data)
	}
	p.text.Write(data[:min(len(data), max(0, maxText-p.text.Len()))])
	for rest := data; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			p.partial = append(p.partial, rest...)
			break
		}
		if len(p.partial) > 0 {
			p.partial = append(p.partial, rest[:end]...)
			p.line(p.partial)
			p.partial = p.partial[:0]
		} else {
			p.line(rest[:end])
		}
		rest = rest[end:]
	}
	return len(data), nil
}

// buffers are used again by commands that follow each other.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom implements io.ReaderFrom, by which a command's output is copied.
func (p *printed) ReadFrom(from io.Reader) (size int64, err error) {
	buffer := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{p}, struct{ io.Reader }{from}, buffer[:])
}

// ended hands over a last line without a break.
func (p *printed) ended() {
	if len(p.partial) > 0 {
		p.line(p.partial)
	}
}

// Run executes one command, without a shell, and returns what it printed. Slurm's commands report some refusals on stderr
// with exit 0, so stderr is returned too. An *ExitError has the exit code; all other errors are kb.ErrUnavailable.
func (r Runner) Run(ctx context.Context, program string, arguments ...string) (stdout, stderr string, err error) {
	return r.run(ctx, nil, program, arguments)
}

// Lines is Run for a command that prints much: line gets each line with its break, and must not keep it. With an error it got
// some of them.
func (r Runner) Lines(ctx context.Context, line func([]byte), program string, arguments ...string) error {
	_, _, err := r.run(ctx, line, program, arguments)
	return err
}

func (r Runner) run(ctx context.Context, line func([]byte), program string, arguments []string) (stdout, stderr string, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.Limit > 0 {
		var end context.CancelFunc
		within, end = context.WithTimeout(within, r.Limit)
		defer end()
	}
	r.MaxOutput = cmp.Or(r.MaxOutput, 64<<20)
	out, errs := &printed{most: r.MaxOutput, end: cancel, line: line}, &printed{most: r.MaxOutput, end: cancel}
	cmd := r.command(within, program, arguments)
	if cmd.Stdout, cmd.Stderr = out, errs; len(r.Input) > 0 {
		cmd.Stdin = bytes.NewReader(r.Input)
	}
	err = cmd.Run()
	stdout, stderr = out.text.String(), strings.TrimSpace(errs.text.String())
	var exit *exec.ExitError
	switch command := name(program, arguments); {
	case err == nil:
		out.ended()
		return stdout, stderr, nil
	case out.full || errs.full:
		return "", "", fmt.Errorf("%s printed more than the limit of %d bytes (run it by hand to see its output): %w", command, r.MaxOutput, kb.ErrUnavailable)
	case ctx.Err() != nil:
		return "", stderr, fmt.Errorf("%s: %w: %w", command, kb.ErrUnavailable, ctx.Err())
	case within.Err() != nil:
		return "", stderr, fmt.Errorf("%s took more than %v: %w", command, r.Limit, kb.ErrUnavailable)
	case errors.As(err, &exit):
		return stdout, stderr, Refused(exit.ExitCode(), stderr+" "+stdout, program, arguments...)
	default:
		return "", stderr, fmt.Errorf("%s: %w: %w", command, kb.ErrUnavailable, err)
	}
}

func (r Runner) command(ctx context.Context, program string, arguments []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, arguments...) //nolint:gosec // G204: Slurm's own commands, no shell; callers check names
	if cmd.Env = slices.Clone(r.Environ); cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// In a federation with fed_display, squeue and scontrol show all clusters' jobs and nodes to who does not ask for
	// its own cluster's. Another cluster's node may have the name of one of ours.
	cmd.Env = append(cmd.Env, "SQUEUE_LOCAL=1", "SCONTROL_LOCAL=1")
	if r.Conf != "" {
		cmd.Env = append(cmd.Env, "SLURM_CONF="+r.Conf)
	}
	// A group of its own ends as one when time is up, and not by an interrupt of the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return err
	}
	cmd.WaitDelay = time.Second
	return cmd
}
