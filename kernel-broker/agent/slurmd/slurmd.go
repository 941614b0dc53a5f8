// SPDX-License-Identifier: Apache-2.0

// Package slurmd starts and stops the Slurm daemon of this node and remembers its actions across restarts of the agent,
// not across boots. Stopping ends only the daemon: its step daemons are separate processes and continue the running
// jobs.
package slurmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

const (
	name      = "slurmd"
	pollEvery = 20 * time.Millisecond
	killWait  = 5 * time.Second
	// failedTimeout bounds the service manager's answer: the agent's loop waits for it.
	failedTimeout = time.Second
)

// Slurmd allows concurrent queries; Start and Stop must not run at the same time.
type Slurmd struct {
	// StartCommand starts it; PlainCommand, if any, where no boot is claimed.
	StartCommand, PlainCommand []string
	// StopCommand replaces the signal to the daemon; empty for the signal.
	StopCommand []string
	// FailedCommand succeeds if the daemon ended by itself and nobody stopped it.
	// Empty where no service manager knows: then each end is one by itself.
	FailedCommand []string
	PIDFile       string
	MarkFile      string
	StartTimeout  time.Duration
	StopTimeout   time.Duration
	BootID        string
}

// Observe returns whether slurmd runs and which actions were taken in this boot. An error is of the latter alone.
func (s *Slurmd) Observe() (decide.Slurmd, error) {
	mark, start, err := s.readMark()
	_, running := s.process()
	died := !running && mark == decide.Started && s.failed()
	return decide.Slurmd{Running: running, Mark: mark, Died: died, Start: start}, err
}

func (s *Slurmd) failed() bool {
	if len(s.FailedCommand) == 0 {
		return true
	}
	return s.run(context.Background(), s.FailedCommand, failedTimeout) == nil
}

// process finds the daemon by its pid file. The pid may have been reused, so the name must match too, and a zombie does
// not count. A daemon that ends has no pid file any more and is found by the note of its stop.
func (s *Slurmd) process() (int, bool) {
	raw, err := os.ReadFile(s.PIDFile)
	if err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && runs(pid) {
			return pid, true
		}
	}
	return s.ending()
}

// endingFile holds boot id and pid of the daemon that is being stopped: an agent that was killed meanwhile leaves the wait
// for its end to the next one.
func (s *Slurmd) endingFile() string { return filepath.Join(filepath.Dir(s.MarkFile), "slurmd.ending") }

func (s *Slurmd) ending() (int, bool) {
	raw, err := os.ReadFile(s.endingFile())
	if err != nil {
		return 0, false
	}
	boot, number, _ := strings.Cut(strings.TrimSpace(string(raw)), " ")
	pid, err := strconv.Atoi(number)
	return pid, err == nil && boot == s.BootID && runs(pid)
}

// runs reports whether the process is a slurmd.
func runs(pid int) bool {
	if pid <= 1 {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	comm, state, ok := parseStat(string(stat))
	return ok && comm == name && state != 'Z' && state != 'X'
}

// parseStat reads a process's name and state from its stat file. The name may contain blanks and parentheses.
func parseStat(stat string) (comm string, state byte, ok bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open || end+2 >= len(stat) {
		return "", 0, false
	}
	return stat[open+1 : end], stat[end+2], true
}

// Start starts the daemon, waits for its process, and records the start number as done. With claim the daemon reports
// that the node has booted.
func (s *Slurmd) Start(ctx context.Context, start uint64, claim bool) error {
	command := s.StartCommand
	if !claim && len(s.PlainCommand) > 0 {
		command = s.PlainCommand
	}
	if err := s.DropClaim(); err != nil {
		return err
	}
	if claim {
		if err := atomicfile.Write(claimFile(s.MarkFile), nil, 0o644); err != nil {
			return err
		}
		defer func() { _ = s.DropClaim() }() // already removed if the unit consumed it
	}
	if err := s.run(ctx, command, s.StartTimeout); err != nil {
		return err
	}
	running := func() bool { _, is := s.process(); return is }
	if !wait(ctx, s.StartTimeout, running) {
		return fmt.Errorf("%s: no process in %q %v after its start: %w", name, s.PIDFile, s.StartTimeout, kb.ErrUnavailable)
	}
	return s.writeMark(decide.Started, start)
}

// Stop ends the daemon and waits for its end: it removes its pid file first, and saves what it knows of jobs last. A stop
// command that takes too long is ErrUnavailable: trying again may help.
func (s *Slurmd) Stop(ctx context.Context) error {
	_, start, err := s.readMark()
	if err != nil && !errors.Is(err, kb.ErrInvalid) {
		return err
	}
	// First, so that a restarted agent starts the daemon again if needed.
	if err := s.writeMark(decide.Stopped, start); err != nil {
		return err
	}
	pid, running := s.process()
	if running {
		if err := atomicfile.Write(s.endingFile(), fmt.Appendf(nil, "%s %d\n", s.BootID, pid), 0o644); err != nil {
			return err
		}
	}
	if err := s.end(ctx, pid); err != nil {
		return err
	}
	if err := os.Remove(s.endingFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// end has the process end, and waits for that.
func (s *Slurmd) end(ctx context.Context, pid int) error {
	if len(s.StopCommand) > 0 {
		if err := s.run(ctx, s.StopCommand, s.StopTimeout); err != nil {
			return err
		}
	} else if err := s.signal(pid, syscall.SIGTERM); err != nil {
		return err
	}
	ended := func() bool {
		_, running := s.process()
		return !running && !runs(pid)
	}
	if wait(ctx, s.StopTimeout, ended) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		// The agent ends, which is no reason to kill what saves its jobs.
		return fmt.Errorf("%s: not waited for its end: %w", name, err)
	}
	if now, running := s.process(); running {
		pid = now
	}
	if err := s.signal(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if !wait(ctx, killWait, ended) {
		return fmt.Errorf("%s: still there after SIGKILL: %w", name, kb.ErrFailedPrecondition)
	}
	return nil
}

// signal is for a slurmd alone: a pid may have been reused.
func (s *Slurmd) signal(pid int, sig syscall.Signal) error {
	if !runs(pid) {
		return nil
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: process %d: %w", name, pid, err)
	}
	return nil
}

// wait polls, since the daemon is no child of the agent.
func wait(ctx context.Context, bound time.Duration, done func() bool) bool {
	for end := time.Now().Add(bound); ; {
		if done() {
			return true
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return false
		}
		time.Sleep(pollEvery)
	}
}

// run redirects the command's output to a file: a daemon left behind would hold a pipe open for ever.
func (s *Slurmd) run(ctx context.Context, argv []string, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	output, err := os.CreateTemp("", "kernel-broker-slurmd-")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer output.Close()
	if err := os.Remove(output.Name()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // G204: the configured command, no shell
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("not done within %v: %w", bound, kb.ErrUnavailable)
		}
		said := make([]byte, 2048)
		n, _ := output.ReadAt(said, 0) // only details for the error
		return fmt.Errorf("%s: %q: %w: %s", name, argv, err, bytes.Join(bytes.Fields(said[:n]), []byte(" ")))
	}
	return nil
}

// The mark file holds boot id, mark and start number.

func (s *Slurmd) readMark() (decide.Mark, uint64, error) {
	raw, err := os.ReadFile(s.MarkFile)
	if errors.Is(err, fs.ErrNotExist) {
		return decide.Untouched, 0, nil
	}
	if err != nil {
		return decide.Untouched, 0, err
	}
	fields := strings.Fields(string(raw))
	if len(fields) != 3 || fields[0] != s.BootID {
		return decide.Untouched, 0, nil
	}
	start, err := strconv.ParseUint(fields[2], 10, 64)
	for _, mark := range []decide.Mark{decide.Started, decide.Stopped} {
		if err == nil && fields[1] == mark.String() {
			return mark, start, nil
		}
	}
	return decide.Untouched, 0, fmt.Errorf("file %q: %q: %w", s.MarkFile, raw, kb.ErrInvalid)
}

func (s *Slurmd) writeMark(mark decide.Mark, start uint64) error {
	return atomicfile.Write(s.MarkFile, fmt.Appendf(nil, "%s %s %d\n", s.BootID, mark, start), 0o644)
}
