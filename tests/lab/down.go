// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// kept are the folders that "down" leaves on request, and after a failed "up".
var kept = []string{".kblab", "logs", "consoles", "nodes"}

// Down ends everything in the lab and removes its folder; with keepLogs the logs and consoles stay. It also works if the
// holder was killed, and a second time.
func Down(ctx context.Context, dir string, keepLogs bool) error {
	l, err := load(dir)
	if errors.Is(err, ErrDown) {
		return removeRest(ctx, dir, keepLogs)
	}
	if err != nil {
		return err
	}
	return l.Down(ctx, keepLogs)
}

// removeRest removes the logs that an earlier "down" or a failed "up" left.
func removeRest(ctx context.Context, dir string, keepLogs bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("lab folder %q: %w", dir, err)
	}
	l := &Lab{layout: layout{dir}}
	if _, err := os.Stat(l.layout.mark()); err != nil || keepLogs {
		return nil // not a lab's folder
	}
	if l.state.Mode, err = detectMode(); err != nil {
		return err
	}
	return l.remove(ctx, false)
}

// Down is the function of that name for this lab.
func (l *Lab) Down(ctx context.Context, keepLogs bool) error {
	if l.state.alive() {
		// While it is open, no other namespace gets the same number.
		pin, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", l.state.HolderPID))
		if err == nil {
			defer func() { _ = pin.Close() }() // it was only held
		}
		// It is process 1 of its namespace: the kernel ends all others with it and removes their mounts.
		if err := syscall.Kill(l.state.HolderPID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("lab %q: holder: %w", l.layout.dir, err)
		}
	}
	if l.state.PidNamespace != "" {
		err := waitFor(ctx, time.Minute, 10*time.Millisecond, "the end of the lab's processes", func() (bool, error) {
			pids, err := l.Processes()
			return len(pids) == 0, err
		})
		if err != nil {
			return fmt.Errorf("lab %q: %w", l.layout.dir, err)
		}
	}
	if l.tie != nil {
		if err := l.tie.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("lab %q: %w", l.layout.dir, err)
		}
	}
	return l.remove(ctx, keepLogs)
}

func (l *Lab) remove(ctx context.Context, keepLogs bool) error {
	// The folder has files of the lab's users, which without root are ids of /etc/subuid: only their user namespace may
	// remove those.
	script := `cd "$1" || exit 0; shift; for f in * .[!.]*; do
for k; do [ "$f" = "$k" ] && continue 2; done; rm -rf -- "$f"; done
rm -rf nodes/*/share/cache nodes/*/share/etc`
	args := []string{"/bin/sh", "-c", script, "sh", l.layout.dir}
	if keepLogs {
		args = append(args, kept...)
	}
	if l.state.Mode == ModeSubuid {
		args = append([]string{"unshare", "--user", "--map-root-user", "--map-auto"}, args...)
	}
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("lab %q: folder: %w: %s", l.layout.dir, err, out)
	}
	if keepLogs {
		return nil
	}
	if err := os.Remove(l.layout.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lab %q: folder: %w", l.layout.dir, err)
	}
	return nil
}
