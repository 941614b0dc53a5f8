// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"io"
	"os/exec"
	"syscall"
	"testing"
)

// A full disk is named by the compiler, and make has much to say after that.
func TestFullDiskIsSeenFarAbove(t *testing.T) {
	for script, want := range map[string]error{
		"echo 'cc1: fatal error: a.s: No space left on device'; seq 100; exit 2": syscall.ENOSPC,
		"echo 'as: b.o: Disk quota exceeded'; seq 100; exit 2":                   syscall.EDQUOT,
	} {
		tail, err := pipeMake(exec.Command("sh", "-c", script), io.Discard, nil)
		if !errors.Is(err, want) || tail[:2] != "89" {
			t.Errorf("%s: %v, tail %q", script, err, tail)
		}
	}
	for script, fails := range map[string]bool{
		"seq 100; exit 2": true,
		// Who got over it has nothing to complain of.
		"echo 'No space left on device'; exit 0": false,
	} {
		_, err := pipeMake(exec.Command("sh", "-c", script), io.Discard, nil)
		if (err != nil) != fails || errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
