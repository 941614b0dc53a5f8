// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestTake(t *testing.T) {
	dir := t.TempDir()
	content := "what somebody brings"
	source := write(t, "bzImage", []byte(content))
	link := filepath.Join(dir, "link")
	if err := os.Symlink(source, link); err != nil {
		t.Fatal(err)
	}
	for i, from := range []string{source, link} {
		to := filepath.Join(dir, string(rune('a'+i)))
		if err := Take(from, to, int64(len(content))); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(to)
		info, statErr := os.Stat(to)
		if err != nil || statErr != nil || string(text) != content || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q, %v, %v, %v", from, text, info, err, statErr)
		}
	}
	if err := Take(source, filepath.Join(dir, "a"), 100); !errors.Is(err, os.ErrExist) {
		t.Errorf("over what is there: %v", err)
	}
	if err := Take(filepath.Join(dir, "none"), filepath.Join(dir, "x"), 100); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, words := range map[string]string{
		source: "more than 19 bytes", write(t, "e", nil): "0 bytes", fifo: "no regular file", dir: "no regular file",
		"/dev/zero": "no regular file", "/proc/self/status": "more than 19 bytes", // whose size is said to be 0
	} {
		if err := Take(from, filepath.Join(t.TempDir(), "to"), 19); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v lacks %q", from, err, words)
		}
	}
}
