// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A check waits for no pipe, and reads no device that never ends.
func TestVerifyWhatIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	dir := write(t, 3)
	for _, path := range []string{pipe, filepath.Join(dir, nameOf(900))} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{pipe, dir, "/dev/zero"} {
		if _, err := Verify(Check{Path: path}); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
