// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lock")
	first, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	waits := 0
	second, err := Acquire(t.Context(), path, func() {
		waits++
		time.AfterFunc(3*pause, first.Release)
	})
	if err != nil || waits != 1 {
		t.Fatalf("after the first: %v, told to wait %d times", err, waits)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pause)
	defer cancel()
	if _, err := Acquire(ctx, path, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting ends with its context: %v", err)
	}
	second.Release()
}

func TestHeld(t *testing.T) {
	dir := t.TempDir()
	if held, err := Held(filepath.Join(dir, "new", "lock")); held || err != nil {
		t.Errorf("where nothing is: %v, %v", held, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("who only asks made %v, %v", entries, err)
	}
	path := filepath.Join(dir, "lock")
	lock, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := Held(path); !held || err != nil {
		t.Errorf("while it is held: %v, %v", held, err)
	}
	lock.Release()
	if held, err := Held(path); held || err != nil {
		t.Errorf("after its release: %v, %v", held, err)
	}
	if _, err := Held(filepath.Join(path, "lock")); err == nil {
		t.Error("below a file no error")
	}
}

func TestWhereNoLockCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(t.Context(), filepath.Join(file, "lock"), nil); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("a lock below a file: %v", err)
	}
}

// TestDiesWithItsHolders kills the process that took the lock: what it started
// still holds it, and nobody does when that is gone too.
func TestDiesWithItsHolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	holder.Env = append(os.Environ(), "FILELOCK_HOLDER="+path)
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	keep, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("the holder's child holds it: %v", err)
	}
	if err := keep.Close(); err != nil { // which ends the child
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lock, err := Acquire(ctx, path, nil)
	if err != nil {
		t.Fatalf("nobody is left: %v", err)
	}
	lock.Release()
}

// TestHolder is the process that TestDiesWithItsHolders kills.
func TestHolder(t *testing.T) {
	path := os.Getenv("FILELOCK_HOLDER")
	if path == "" {
		t.Skip("only runs inside of TestDiesWithItsHolders")
	}
	lock, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat")
	child.Stdin = os.Stdin
	child.ExtraFiles = []*os.File{lock.File()}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("held\n"); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // the parent is killed here
}
