// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files atomically: a reader sees the old content (or no file) or the new one, even if the
// writer dies. Written files survive a power cut once the function has returned.
package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write puts content at path.
func Write(path string, content []byte, mode os.FileMode) error {
	return Fill(path, mode, writing(content))
}

// WriteJSON puts a value at path, indented for people.
func WriteJSON(path string, value any, mode os.FileMode) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	return Write(path, append(text, '\n'), mode)
}

// WriteNew writes content to a path that must not exist; of several concurrent calls one succeeds, and the others get
// fs.ErrExist.
func WriteNew(path string, content []byte, mode os.FileMode) error {
	return put(path, mode, writing(content), func(temporary, path string) error {
		if err := os.Link(temporary, path); err != nil {
			return err
		}
		return os.Remove(temporary)
	}, SyncDir)
}

// Fill writes path by fill through a temporary file in the same directory, which is renamed on success and removed
// otherwise. It creates a missing directory.
func Fill(path string, mode os.FileMode, fill func(*os.File) error) error {
	return put(path, mode, fill, os.Rename, SyncDir)
}

func writing(content []byte) func(*os.File) error {
	return func(file *os.File) error {
		_, err := file.Write(content)
		return err
	}
}

// SyncDir makes changes of a directory's names survive a power cut, where the file system supports that.
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

// SyncAll makes all that was written to a directory's file system survive a power cut. A tree that is filled and then
// renamed needs it before the rename.
func SyncAll(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(folder.Fd())), folder.Close())
}

// put has a file written beside the path and moved there.
func put(path string, mode os.FileMode, fill func(*os.File) error, move func(temporary, path string) error, sync func(dir string) error) error {
	dir := filepath.Dir(path)
	changed := changing(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+".")
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	err = fill(temporary)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if err == nil {
		// Before the rename: a crash leaves no empty file under the final name.
		err = temporary.Sync()
	}
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = move(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("file %q: %w", path, errors.Join(err, os.Remove(temporary.Name())))
	}
	for _, folder := range changed {
		if err := sync(folder); err != nil {
			return fmt.Errorf("file %q is written, but may not survive a power cut: %w", path, err)
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
