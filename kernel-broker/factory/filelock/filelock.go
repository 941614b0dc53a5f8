// SPDX-License-Identifier: Apache-2.0

// Package filelock is one holder at a time of a thing that several processes
// share, with a file in their common folder as the lock.
//
// The kernel drops a lock when the last process that has its file open is gone,
// however it went, so nothing is ever left locked by a crash. A lock's file
// stays when the lock is dropped: removing it would let two processes hold two
// locks of one name.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pause between two tries to get a lock that another holds.
const pause = 100 * time.Millisecond

// ErrHeld is what Try says of a lock that another holds.
var ErrHeld = errors.New("held by another process")

type Lock struct {
	file *os.File
}

// Acquire waits for the lock; waiting may be nil and is called once when there
// is something to wait for.
func Acquire(ctx context.Context, path string, waiting func()) (*Lock, error) {
	for waited := false; ; waited = true {
		lock, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return lock, err
		}
		if !waited && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Try takes the lock or returns ErrHeld.
func Try(path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return &Lock{file: file}, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrHeld
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
}

// File of the lock. A program that inherits it keeps the lock until it ends,
// also when the process that took it is killed.
func (l *Lock) File() *os.File { return l.file }

// Release drops the lock.
func (l *Lock) Release() { _ = l.file.Close() } // closing is what drops it
