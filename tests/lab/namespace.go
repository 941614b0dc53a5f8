// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	_ "embed"
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
)

//go:embed files/holder.sh
var holderScript string

// startHolder makes the namespaces and waits until the front-end is laid out.
func (l *Lab) startHolder(ctx context.Context) error {
	if err := write(l.layout.path("run/holder.sh"), holderScript, 0o755); err != nil {
		return err
	}
	log, err := os.Create(l.layout.holderLog())
	if err != nil {
		return fmt.Errorf("holder's log: %w", err)
	}
	defer log.Close()
	args := append(unshareArgs(l.state.Mode), "/bin/sh", l.layout.path("run/holder.sh"), l.layout.dir,
		strconv.Itoa(l.state.Options.Nodes), fmt.Sprintf("%s/%d", frontAddress, prefixLength), string(l.state.Mode),
		brokerUser(l.state.Options, l.state.Mode), l.state.System.Dir, "free")
	// Not CommandContext: the holder outlives the call.
	cmd := exec.Command("unshare", args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if l.state.Options.Owned {
		end, err := l.ownPipe()
		if err != nil {
			return err
		}
		defer end.Close()
		cmd.ExtraFiles = []*os.File{end}
		cmd.Args[len(cmd.Args)-1] = "owned"
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = waitFor(ctx, 30*time.Second, 5*time.Millisecond, "the lab's namespaces", func() (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("holder ended (%v): %s", err, tail(l.layout.holderLog(), 5))
		default:
		}
		_, err := os.Stat(l.layout.ready())
		return err == nil, nil
	})
	if err == nil {
		err = l.recordHolder()
	}
	if err != nil {
		// It ends the holder too. An error means that it has ended already.
		_ = cmd.Process.Kill()
		return fmt.Errorf("namespaces: %w (log %s)", err, l.layout.holderLog())
	}
	return nil
}

// ownPipe returns the end that the holder watches. Only this process has the other end, so that the kernel closes it
// when this process ends.
func (l *Lab) ownPipe() (*os.File, error) {
	watched, tie, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	l.tie = tie
	return watched, nil
}

func unshareArgs(m Mode) []string {
	args := []string{"--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"}
	switch m {
	case ModeSubuid:
		args = append(args, "--user", "--map-root-user", "--map-auto")
	case ModeSingle:
		args = append(args, "--user", "--map-current-user", "--keep-caps")
	}
	return args
}

// recordHolder records the holder's identity, so that a reused pid is never taken for it.
func (l *Lab) recordHolder() error {
	text, err := os.ReadFile(l.layout.holderPid())
	if err != nil {
		return fmt.Errorf("holder's pid: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("holder's pid: %w", err)
	}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return fmt.Errorf("holder's namespace: %w", err)
	}
	l.state.HolderPID, l.state.PidNamespace = pid, ns
	return l.save()
}

// recoverHolder finds the holder of an "up" that was killed before it could
// note it.
func (l *Lab) recoverHolder() error {
	text, err := os.ReadFile(l.layout.holderPid())
	if l.state.HolderPID != 0 || err != nil {
		return nil // noted, or never started
	}
	command, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(text)), "cmdline"))
	if err != nil || !strings.Contains(string(command), l.layout.path("run/holder.sh")) {
		return nil // ended, or the pid was reused
	}
	return l.recordHolder()
}

// alive reports whether the lab's namespaces still exist.
func (s state) alive() bool {
	if s.HolderPID == 0 {
		return false
	}
	// The name of a namespace is unique while it lives, and a pid that was
	// used again is in another one.
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", s.HolderPID))
	return err == nil && ns == s.PidNamespace
}

// Processes lists the pids, as the host sees them, of all processes that live
// in the lab's process id namespace.
func (l *Lab) Processes() ([]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, link := range links {
		ns, err := os.Readlink(link)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH) {
			continue // ended meanwhile, or not ours
		}
		if err != nil {
			return nil, fmt.Errorf("process list: %w", err)
		}
		if ns != l.state.PidNamespace {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			return nil, fmt.Errorf("process list: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// enter is the command prefix that runs something in the lab as its root.
func (s state) enter() []string {
	args := []string{"nsenter", "--target", strconv.Itoa(s.HolderPID)}
	switch s.Mode {
	case ModeSubuid:
		args = append(args, "--user", "--setuid", "0", "--setgid", "0")
	case ModeSingle:
		args = append(args, "--user", "--preserve-credentials")
	}
	return append(args, "--mount", "--uts", "--ipc", "--net", "--pid", "--")
}

// UnshareArgs are unshare's arguments for the namespaces of a cluster.
func UnshareArgs(m Mode) []string { return unshareArgs(m) }

// EnterArgs is the command prefix that runs something, as root, in the
// namespaces of a cluster that a process holds.
func EnterArgs(m Mode, holder int) []string { return state{Mode: m, HolderPID: holder}.enter() }

// DetectMode finds the best mode that the caller may use.
func DetectMode() (Mode, error) { return detectMode() }
