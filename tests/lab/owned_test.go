// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestOwnedLabEndsWithItsCaller kills a process that brought a lab up.
func TestOwnedLabEndsWithItsCaller(t *testing.T) {
	if dir := os.Getenv("KBLAB_TEST_OWNER_OF"); dir != "" {
		beOwner(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "lab")
	owner := exec.Command(os.Args[0], "-test.run=^TestOwnedLabEndsWithItsCaller$")
	owner.Env = append(os.Environ(), "KBLAB_TEST_OWNER_OF="+dir)
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var l *Lab
	err := Wait(t.Context(), 5*time.Minute, "the lab of another process", func() (bool, error) {
		var err error
		l, err = Open(dir)
		if err != nil {
			return false, nil
		}
		_, err = os.Stat(l.layout.path("run/owner-is-done"))
		return err == nil, nil
	})
	if err := errors.Join(err, owner.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	if err := owner.Wait(); err == nil {
		t.Error("the owner ended by itself")
	}
	err = Wait(t.Context(), time.Minute, "the end of the lab", func() (bool, error) {
		pids, err := l.Processes()
		return len(pids) == 0, err
	})
	if err := errors.Join(err, l.Down(t.Context(), false)); err != nil {
		t.Error(err)
	}
}

// beOwner is what the killed process does.
func beOwner(t *testing.T, dir string) {
	l, err := Up(t.Context(), Options{Dir: dir, Kernel: testKernel(t), Nodes: 1, WithoutProduct: true, NoWait: true, Owned: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := write(l.layout.path("run/owner-is-done"), "", 0o644); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // until it is killed
}
