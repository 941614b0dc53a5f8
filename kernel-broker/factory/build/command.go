// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// command prepares a program in a process group of its own, so that stopping
// it stops what it started, and with a fixed environment: flags, languages and
// job servers of the caller must not change what is built.
func command(ctx context.Context, extra []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, findProgram(name), args...) //nolint:gosec // G204: no shell; the programs and what they are told are the factory's and the administrator's
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"LANG=C.UTF-8",
		"LC_ALL=C",
		"TZ=UTC",
	}, extra...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// findProgram also looks where Debian keeps depmod, which is not in the PATH of
// an ordinary user. A name that is nowhere is left for exec to complain of.
func findProgram(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}

// Output runs a program in a folder and returns what it printed; its complaints
// become part of the error.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := command(ctx, nil, name, args...)
	cmd.Dir = dir
	text, err := run(ctx, cmd)
	return strings.TrimRight(string(text), "\n"), err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	return Output(ctx, "", name, args...)
}

// run runs a prepared command and returns its output.
func run(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		complaint := strings.TrimSpace(stderr.String())
		if complaint != "" {
			complaint = ": " + complaint
		}
		return nil, fmt.Errorf("%s: %w%s", strings.Join(cmd.Args, " "), err, complaint)
	}
	return stdout.Bytes(), nil
}

// Progress prints how far the work is.
type Progress struct {
	Out    io.Writer
	Kernel string
}

// Say prints one line.
func (p Progress) Say(format string, args ...any) {
	if p.Out == nil {
		return
	}
	// A closed terminal is no reason to stop a build.
	_, _ = fmt.Fprintf(p.Out, "%s: %s\n", p.Kernel, fmt.Sprintf(format, args...))
}

// Waiting returns what to call when another process does the same work.
func (p Progress) Waiting(what string) func() {
	return func() { p.Say("another process is %s: waiting for it", what) }
}
