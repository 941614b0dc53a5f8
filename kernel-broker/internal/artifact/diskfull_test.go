// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// smallDisk is set in the process that has a disk of 1 MiB there.
const smallDisk = "ARTIFACT_TEST_SMALL_DISK"

func TestMain(m *testing.M) {
	if root := os.Getenv(smallDisk); root != "" {
		if err := syscall.Mount("small", root, "tmpfs", 0, "size=1m"); err != nil {
			fmt.Fprintln(os.Stderr, "mount:", err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// TestDiskFull runs this test binary again in a mount namespace of its own,
// where the disk is small. It needs the right to make user namespaces.
func TestDiskFull(t *testing.T) {
	if root := os.Getenv(smallDisk); root != "" {
		onSmallDisk(t, root)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
	cmd.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || bytes.HasPrefix(out, []byte("mount:")) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must allow user namespaces: %v %s", err, out)
		}
		t.Skipf("a small file system needs a user namespace: %v %s", err, out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestDiskFull")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func onSmallDisk(t *testing.T, root string) {
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	put := func(size int) error {
		content := random(size)
		return d.Receive(t.Context(), digest.Of(content), uint64(size), bytes.NewReader(content))
	}
	if err := put(300 << 10); err != nil {
		t.Fatal(err)
	}
	if err := put(2 << 20); !errors.Is(err, kb.ErrExhausted) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Receive = %v, want ErrExhausted", err)
	}
	if have := files(t, root); len(have) != 1 {
		t.Errorf("files %v, want one", have)
	}
	if err := put(500 << 10); err != nil { // the room is free again
		t.Fatal(err)
	}
}
