// SPDX-License-Identifier: Apache-2.0

package callcounts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// traceable is the kernel's list of functions that can be traced.
func traceable() ([]byte, error) {
	const list = "available_filter_functions"
	text, err := os.ReadFile("/sys/kernel/tracing/" + list)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	// Nobody has mounted the tracer's file system: this mount is for this process and has no place.
	context, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	root, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	defer unix.Close(root)
	number, err := unix.Openat(root, list, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: list, Err: err}
	}
	file := os.NewFile(uintptr(number), list)
	defer file.Close()
	return io.ReadAll(file)
}
