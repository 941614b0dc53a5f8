package replace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestFileReplacesAndLeavesNothingBeside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	path := filepath.Join(dir, "f")
	for _, content := range []string{"first, the longer one", "second"} {
		if err := File(path, []byte(content), 0o644); err != nil {
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

func TestFileFailureKeepsTheOldOneAndCleansUp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := File(path, []byte("new"), 0o644); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

// Of many who make one file at once one succeeds, and what is there is his.
func TestNewIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var winner atomic.Value
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			content := fmt.Sprintf("by %d", i)
			switch err := New(path, []byte(content), 0o600); {
			case err == nil && !winner.CompareAndSwap(nil, content):
				t.Errorf("made by %v and %q", winner.Load(), content)
			case err != nil && !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := os.ReadFile(path); err != nil || string(got) != winner.Load() {
		t.Errorf("made by %v, and there is %q, %v", winner.Load(), got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
