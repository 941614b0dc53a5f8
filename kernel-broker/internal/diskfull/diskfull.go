// SPDX-License-Identifier: Apache-2.0

// Package diskfull tells what is free of a disk, and detects a full one from the messages of programs: compilers and make
// report it only as text.
package diskfull

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var causes = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}

// Is reports whether an error of a system call means a full disk.
func Is(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// In is the error that a text speaks of, nil if it is of no full disk.
func In(text string) error {
	text = strings.ToLower(text)
	for _, cause := range causes {
		if strings.Contains(text, cause.Error()) {
			return cause
		}
	}
	return nil
}

// Space is what is free on a folder's disk for those who are not root, and how large the disk is, in bytes.
func Space(dir string) (free, whole uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("disk of %q: %w", dir, err)
	}
	block := uint64(s.Bsize)
	return s.Bavail * block, s.Blocks * block, nil
}
