// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Result is the result of a command on the front-end or a node.
type Result struct {
	Stdout, Stderr string
	// Exit is the exit status, or 128 and the signal.
	Exit int
}

// Streams are a command's own stdin, stdout and stderr instead of a Result's.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal keeps the command in the caller's process group, so that it
	// owns the terminal and its interrupts.
	Terminal bool
}

// Exec runs a command on the front-end as a user, in the user's home and with a fresh environment. A command that ran
// and failed is no error: see Exit.
func (l *Lab) Exec(ctx context.Context, user string, argv ...string) (Result, error) {
	var out, errs bytes.Buffer
	exit, err := l.Run(ctx, user, Streams{Out: &out, Err: &errs}, argv...)
	return Result{Stdout: out.String(), Stderr: errs.String(), Exit: exit}, err
}

// Run is Exec with the caller's streams.
func (l *Lab) Run(ctx context.Context, user string, s Streams, argv ...string) (int, error) {
	if len(argv) == 0 {
		return 0, errors.New("no command")
	}
	if !l.state.alive() {
		return 0, fmt.Errorf("lab %q: %w", l.layout.dir, ErrDown)
	}
	args, err := l.userCommand(user, argv)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.WaitDelay = 2 * time.Second
	if !s.Terminal {
		// Its own process group, so that a cancel reaches all of it; SIGINT, so that srun cancels its job.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		if !s.Terminal && cmd.Process != nil {
			endGroup(cmd.Process.Pid)
		}
		return 0, fmt.Errorf("command %q of %s: %w", argv[0], user, ctx.Err())
	}
	return exitStatus(argv[0], err)
}

// endGroup waits until a cancelled command's processes have ended, and makes
// them after a while.
func endGroup(group int) {
	for range 100 {
		if syscall.Kill(-group, 0) != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	// It may have ended by itself.
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

func exitStatus(name string, err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	case errors.Is(err, exec.ErrWaitDelay):
		return 0, nil // it succeeded, and a child kept the pipe
	}
	return 0, fmt.Errorf("command %q: %w", name, err)
}

// userCommand is the whole argument list to run argv as the user.
func (l *Lab) userCommand(user string, argv []string) ([]string, error) {
	a, err := findAccount(l.state.Accounts, user)
	if err != nil {
		return nil, err
	}
	args := l.state.enter()
	id := strconv.Itoa(a.ID)
	switch {
	case l.state.Mode != ModeSingle:
		args = append(args, "setpriv", "--reuid", id, "--regid", id, "--init-groups", "--reset-env")
	case a.ID != os.Geteuid():
		return nil, fmt.Errorf("user %q: without root and without /etc/subuid a lab has one user, alice", user)
	default:
		args = append(args, "env", "-i", "HOME="+a.Home, "USER="+a.Name, "LOGNAME="+a.Name,
			"SHELL="+a.Shell, "TERM="+os.Getenv("TERM"))
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	if !a.person() {
		path = "/usr/local/sbin:/usr/sbin:/sbin:" + path
	}
	args = append(args, "/bin/sh", "-c", `cd "$HOME" 2>/dev/null || cd /; PATH=$0; export PATH; exec "$@"`, path)
	return append(args, argv...), nil
}

// must runs a command of the lab's own as root (or the only user) and turns a
// failure into an error.
func (l *Lab) must(ctx context.Context, user string, argv ...string) (string, error) {
	r, err := l.Exec(ctx, user, argv...)
	if err != nil {
		return "", err
	}
	if r.Exit != 0 {
		return "", fmt.Errorf("command %q as %s: exit %d: %s", strings.Join(argv, " "), user, r.Exit,
			strings.TrimSpace(r.Stderr+r.Stdout))
	}
	return r.Stdout, nil
}

// root is the user with all rights on the front-end.
func (l *Lab) root() string { return service(l.state.Mode, "root") }
