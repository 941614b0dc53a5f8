// SPDX-License-Identifier: Apache-2.0

package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	pipe, file, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		most int64
		want error
	}{
		{file, 5, nil},
		{link, 5, nil},
		{file, 4, kb.ErrInvalid},
		{pipe, 5, kb.ErrInvalid},
		{dir, 5, kb.ErrInvalid},
		{"/dev/zero", 5, kb.ErrInvalid},
		{filepath.Join(dir, "none"), 5, fs.ErrNotExist},
	} {
		text, err := Read(c.path, c.most, nil)
		if !errors.Is(err, c.want) || err == nil && string(text) != "12345" || err != nil && text != nil {
			t.Errorf("%s, at most %d: %q, %v", c.path, c.most, text, err)
		}
	}
}

func TestReadRejectedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	private := func(info os.FileInfo) error {
		if info.Mode().Perm()&0o077 != 0 {
			return kb.ErrFailedPrecondition
		}
		return nil
	}
	if _, err := Read(file, 5, private); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("0640: %v", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file, 5, private); err != nil {
		t.Errorf("0600: %v", err)
	}
}
