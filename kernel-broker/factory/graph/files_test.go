// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func chmod(path string, mode os.FileMode) error { return os.Chmod(path, mode) }
func mkdir(path string) error                   { return os.Mkdir(path, 0o755) }
func symlink(target, path string) error         { return os.Symlink(target, path) }
func chtimes(path string) error                 { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) }
func mkfifo(path string) error                  { return syscall.Mkfifo(path, 0o600) }

// notifyContext ends with the signal that scancel sends.
func notifyContext() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM)
}
