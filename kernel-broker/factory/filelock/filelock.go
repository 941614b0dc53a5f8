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
	"io/fs"
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
	if err := flock(file, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return &Lock{file: file}, nil
}

// Held reports whether somebody holds the lock. It makes nothing and needs only
// the right to read, and holds up for a moment who takes the lock just then.
func Held(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	err = flock(file, unix.LOCK_SH)
	_ = file.Close() // opened for reading only
	if errors.Is(err, ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", path, err)
	}
	return false, nil
}

func flock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// File of the lock. A program that inherits it keeps the lock until it ends,
// also when the process that took it is killed.
func (l *Lock) File() *os.File { return l.file }

// Release drops the lock.
func (l *Lock) Release() { _ = l.file.Close() } // closing is what drops it
