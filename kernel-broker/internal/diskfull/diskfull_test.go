// SPDX-License-Identifier: Apache-2.0

package diskfull

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestIn(t *testing.T) {
	for text, want := range map[string]error{
		"":                        nil,
		"no space":                nil,
		"No space left on devic":  nil,
		"No space left on device": syscall.ENOSPC,
		"cc1: fatal error: NO SPACE LEFT ON DEVICE\n":               syscall.ENOSPC,
		"nnnno space left on device":                                syscall.ENOSPC,
		"write: disk quota exceeded":                                syscall.EDQUOT,
		"error: d: Disk quota exceeded: over quota":                 syscall.EDQUOT,
		"  CC      drivers/base/devres.o":                           nil,
		"ld: final link failed: " + "No space left on device" + ".": syscall.ENOSPC,
	} {
		if got := In(text); !errors.Is(got, want) || (want == nil) != (got == nil) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestIs(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("write: %w", syscall.ENOSPC):                    true,
		&fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}: true,
		errors.New("no space left on device"):                      false,
		syscall.EIO:                                                false,
	} {
		if Is(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
