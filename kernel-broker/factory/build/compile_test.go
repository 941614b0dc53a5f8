// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
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

// A full disk is no object's fault: without its profile it would not compile either.
func TestFullDiskExcludesNoObject(t *testing.T) {
	p := &profiledBuild{at: site{obj: filepath.Join(t.TempDir(), "objects")}}
	write(t, filepath.Join(profileFolder(p.at.obj), pgo.Mangled("fs/namei")), "")
	const said = "make[2]: *** [scripts/Makefile.build:250: fs/namei.o] Error 1\n"
	for cause, excluded := range map[error]bool{errors.New("exit status 2"): true, syscall.ENOSPC: false, syscall.EDQUOT: false} {
		err := p.blame(said, &BuildError{Target: "bzImage", Err: errors.Join(errors.New("exit status 2"), cause)})
		var failed *failedObjects
		if errors.As(err, &failed) != excluded {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
