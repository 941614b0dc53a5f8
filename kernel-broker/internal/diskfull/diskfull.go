// SPDX-License-Identifier: Apache-2.0

// Package diskfull detects a full disk from the messages of programs. Compilers and make report it only as text.
package diskfull

import (
	"errors"
	"strings"
	"syscall"
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
