// Package replace writes small files whole: a reader sees the old content (or
// no file) or the new one, never a part, also when the writer dies in between.
package replace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File puts content at path, by writing beside it and renaming over it. The
// folder is made when it is missing.
func File(path string, content []byte, mode os.FileMode) error {
	return put(path, content, mode, os.Rename)
}

// New puts content at path where nothing is yet; of several who do so at once
// one succeeds, and the others get an error that is fs.ErrExist.
func New(path string, content []byte, mode os.FileMode) error {
	return put(path, content, mode, func(temporary, path string) error {
		if err := os.Link(temporary, path); err != nil {
			return err
		}
		return os.Remove(temporary)
	})
}

// put writes a file beside the path and has it moved there.
func put(path string, content []byte, mode os.FileMode, move func(temporary, path string) error) error {
	dir := filepath.Dir(path)
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
	return nil
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
