// SPDX-License-Identifier: Apache-2.0

package etcdserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrInUse means that another process runs on the directory.
var ErrInUse = errors.New("in use by another broker")

// lock is a lock file. The kernel releases it when its owner dies, so a leftover file blocks nothing. The pid in it is
// for administrators.
type lock struct{ file *os.File }

func lockDir(dir string) (*lock, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w (process %s)", ErrInUse, owner(file))
		}
		return nil, errors.Join(err, file.Close())
	}
	l := &lock{file}
	if err := l.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), file.Close())
	}
	return l, nil
}

func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	return err
}

// release keeps the file: after a removal two processes could lock two files of the same name.
func (l *lock) release() error { return l.file.Close() }

func owner(file *os.File) string {
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}
