// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is set in the process that has a disk of 1 MiB there.
const smallDisk = "GRAPH_TEST_SMALL_DISK"

func mountSmall(root string) {
	if err := syscall.Mount("small", root, "tmpfs", 0, "size=1m"); err != nil {
		fmt.Fprintln(os.Stderr, "mount:", err)
		os.Exit(1)
	}
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
	w := &world{t: t, store: Store{Dir: root}}
	large := w.step("large", "x", "a")
	large.Run = func(_ context.Context, work *Work) error {
		return write(filepath.Join(work.Dir, "text"), strings.Repeat("x", 2<<20))
	}
	program := w.step("program", "x", "a")
	program.Run = func(ctx context.Context, work *Work) error {
		cmd := exec.CommandContext(ctx, "sh", "-c", "head -c 2097152 /dev/zero >text")
		cmd.Dir, cmd.Stdout, cmd.Stderr = work.Dir, work.Log, work.Log
		return cmd.Run()
	}
	talkative := w.step("talkative", "x", "a")
	talkative.Run = func(_ context.Context, work *Work) error {
		work.Say("%s", strings.Repeat("word ", 500000))
		return nil
	}
	for _, step := range []Step{large, program, talkative} {
		_, _, err := w.run(w.graph(w.step("a", "a"), step))
		var failed *StepError
		if !errors.As(err, &failed) || failed.Full != w.store.spot(step.Name, failed.Key).dir {
			t.Fatalf("%s: %v", step.Name, err)
		}
		want := fmt.Sprintf("step %q: no space left for %s: ", step.Name, failed.Full)
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v\nwant %s", err, want)
		}
		if left, err := filepath.Glob(filepath.Join(failed.Full, partialPrefix+"*")); err != nil || left != nil {
			t.Errorf("%s left %v, %v", step.Name, left, err)
		}
		if err := os.Remove(failed.Log); err != nil { // an administrator makes room
			t.Fatal(err)
		}
	}
	whole(t, w.store)
	if _, worked, err := w.run(w.graph(w.step("a", "a"), w.step("large", "smaller", "a"))); err != nil || worked != "large" {
		t.Errorf("with room: worked on %q, %v", worked, err)
	}
}

type guestError struct{}

func (guestError) Error() string          { return "mount: no space left on device" }
func (guestError) OfAnotherMachine() bool { return true }

// What a virtual machine says of its disks says nothing of ours.
func TestFullDiskOfAGuest(t *testing.T) {
	for err, want := range map[error]bool{
		guestError{}:                              false,
		fmt.Errorf("boot: %w", guestError{}):      false,
		errors.New("cc: No space left on device"): true,
		errors.Join(guestError{}, unix.ENOSPC):    true,
	} {
		if got := full(err, "the log's end: No space left on device", t.TempDir()); got != want {
			t.Errorf("%v: full is %t", err, got)
		}
	}
}
