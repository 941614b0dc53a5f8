// Package replace writes small files whole: a reader sees the old content (or
// no file) or the new one, never a part, also when the writer dies in between. What
// was written when a function returns is there after a power cut.
package replace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File puts content at path, by writing beside it and renaming over it. The
// folder is made when it is missing.
func File(path string, content []byte, mode os.FileMode) error {
	return put(path, content, mode, os.Rename, SyncDir)
}

// New puts content at path where nothing is yet; of several who do so at once
// one succeeds, and the others get an error that is fs.ErrExist.
func New(path string, content []byte, mode os.FileMode) error {
	return put(path, content, mode, func(temporary, path string) error {
		if err := os.Link(temporary, path); err != nil {
			return err
		}
		return os.Remove(temporary)
	}, SyncDir)
}

// SyncDir makes the names in a folder last: what was made, renamed or removed in
// it is so after a power cut too. A file system without a way to say that to it
// is left as it is.
func SyncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}

// put writes a file beside the path and has it moved there. When it returns, the
// file is at its place for good.
func put(path string, content []byte, mode os.FileMode, move func(temporary, path string) error, sync func(dir string) error) error {
	dir := filepath.Dir(path)
	changed := changing(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+".")
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	err = fill(temporary, content, mode)
	if err == nil {
		err = move(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("file %q: %w", path, errors.Join(err, os.Remove(temporary.Name())))
	}
	for _, folder := range changed {
		if err := sync(folder); err != nil {
			return fmt.Errorf("file %q is written, but may be gone after a power cut: %w", path, err)
		}
	}
	return nil
}

// changing lists the folders that get a new name when a file is put into dir:
// dir itself, and above each folder that is missing the one that it is made in.
func changing(dir string) []string {
	folders := []string{dir}
	for {
		parent := filepath.Dir(dir)
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return folders
		}
		folders, dir = append(folders, parent), parent
	}
}

// fill syncs before the rename, so that a crash cannot leave an empty file
// under the final name.
func fill(f *os.File, content []byte, mode os.FileMode) error {
	_, err := f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
