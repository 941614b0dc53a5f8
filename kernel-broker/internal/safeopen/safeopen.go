// SPDX-License-Identifier: Apache-2.0

// Package safeopen opens files named on a command line or in a configuration. It opens regular files only: a pipe or a
// device would wait for a writer or never end.
package safeopen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Open opens a file for reading and returns its FileInfo: checks must use that, not the name.
func Open(path string) (*os.File, os.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: %w", path, kb.ErrInvalid)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// Read reads a file of at most the given size. allowed, if not nil, may reject it.
func Read(path string, most int64, allowed func(os.FileInfo) error) ([]byte, error) {
	file, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	if allowed != nil {
		if err := allowed(info); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes: %w", path, most, kb.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}
