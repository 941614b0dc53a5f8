// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Cache is a folder that survives between runs. Entries are folders, complete
// from the moment they are seen; each is made under its own lock.
type Cache struct {
	Dir string
}

// DefaultCacheDir is $KB_CACHE, or kernel-broker in the user's cache folder.
func DefaultCacheDir() (string, error) {
	if dir := os.Getenv("KB_CACHE"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder: %w (set KB_CACHE or use --cache)", err)
	}
	return filepath.Join(base, "kernel-broker"), nil
}

// Entry returns the folder kind/key, and makes it if it is not there yet: fill
// gets an empty folder, which is moved into place when fill returns nil and
// removed when it does not. Of several callers, in this process or others, one
// fills and the rest wait for it; waiting is called once if there is something to wait for.
func (c Cache) Entry(ctx context.Context, kind, key string, waiting func(), fill func(dir string) error) (string, error) {
	place := filepath.Join(c.Dir, kind, key)
	if exists(place) {
		return place, nil
	}
	lock, err := filelock.Acquire(ctx, place+".lock", waiting)
	if err != nil {
		return "", fmt.Errorf("cache entry %q: %w", kind+"/"+key, err)
	}
	defer lock.Release()
	if exists(place) {
		return place, nil
	}
	partial := place + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("cache entry %q: left-over of a killed run: %w", kind+"/"+key, err)
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return "", fmt.Errorf("cache entry %q: %w", kind+"/"+key, err)
	}
	if err := fill(partial); err != nil {
		return "", errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, place); err != nil {
		return "", fmt.Errorf("cache entry %q: %w", kind+"/"+key, err)
	}
	return place, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Publish copies the named files to a folder, each by rename, the last named
// file last: a reader who finds that one finds the others too.
func Publish(from, to string, names ...string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("output %q: %w", filepath.Join(to, name), err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read from
	return atomicfile.Fill(to, 0o644, func(target *os.File) error {
		_, err := io.Copy(target, source)
		return err
	})
}
