package replace

import (
	"os"
	"path/filepath"
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
