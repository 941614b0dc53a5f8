// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestWriteReplacesAndLeavesNoTemporaryFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	path := filepath.Join(dir, "f")
	for _, content := range []string{"first, the longer one", "second"} {
		if err := Write(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("got %q, %v, want %q", got, err, content)
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func TestWriteJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteJSON(path, map[string]int{"a": 1}, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "{\n  \"a\": 1\n}\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := WriteJSON(path, func() {}, 0o600); err == nil {
		t.Error("a function is written")
	}
}

func TestWriteFailureKeepsOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o644); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func TestFillFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("broken")
	err := Fill(filepath.Join(dir, "f"), 0o644, func(file *os.File) error {
		_, err := file.WriteString("half")
		return errors.Join(err, broken)
	})
	if entries, reading := os.ReadDir(dir); !errors.Is(err, broken) || reading != nil || len(entries) != 0 {
		t.Fatalf("%v; left behind: %v, %v", err, entries, reading)
	}
}

// Of many concurrent creators of a file one succeeds, and the file has its content.
func TestWriteNewOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var winner atomic.Value
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			content := fmt.Sprintf("by %d", i)
			switch err := WriteNew(path, []byte(content), 0o600); {
			case err == nil && !winner.CompareAndSwap(nil, content):
				t.Errorf("made by %v and %q", winner.Load(), content)
			case err != nil && !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := os.ReadFile(path); err != nil || string(got) != winner.Load() {
		t.Errorf("created by %v, content %q, %v", winner.Load(), got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// A name lasts when its folder was synced after the rename, and one in a folder
// that was made lasts when the folders above were.
func TestWriteSyncsTheFolders(t *testing.T) {
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		filepath.Join(top, "f"):               {top},
		filepath.Join(top, "a", "f"):          {filepath.Join(top, "a")},
		filepath.Join(top, "b", "f"):          {filepath.Join(top, "b"), top},
		filepath.Join(top, "a", "c/d/e", "f"): {filepath.Join(top, "a/c/d/e"), filepath.Join(top, "a/c/d"), filepath.Join(top, "a/c"), filepath.Join(top, "a")},
	} {
		var synced []string
		err := put(path, 0o644, writing([]byte("new")), os.Rename, func(dir string) error {
			if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
				t.Errorf("%s is synced before %s is there: %q, %v", dir, path, got, err)
			}
			synced = append(synced, dir)
			return nil
		})
		if err != nil || !slices.Equal(synced, want) {
			t.Errorf("%s: synced %q, %v, want %q", path, synced, err, want)
		}
	}
}

func TestSyncDir(t *testing.T) {
	if err := SyncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := SyncDir("/proc"); err != nil { // which has no disk
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A sync failure is reported and the content stays whole. A directory without read permission is writable but cannot be
// synced.
func TestUnsyncableFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // avoids the permissions of the parent directories
	if os.Geteuid() == 0 {
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		// For this thread alone, and without root's way around modes.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, _, err := syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0); err != 0 {
			t.Fatal(err)
		}
		defer func() { _, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0) }()
	}
	if err := os.Chmod(".", 0o300); err != nil {
		t.Fatal(err)
	}
	err := Write("f", []byte("new"), 0o644)
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("not reported: %v", err)
	}
	got, reading := os.ReadFile("f")
	if reading != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, reading)
	}
}

func TestSyncAll(t *testing.T) {
	if err := SyncAll(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := SyncAll(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
