// SPDX-License-Identifier: Apache-2.0

// Package artifact keeps kernels, initial ram disks and module trees as files named by the digest of their content.
//
// Such a name can be checked against the file. So transfers, disks and other hosts need not be trusted, and two versions
// cannot be confused. A file appears under its name only when it is complete, checked and on disk.
//
// Dir is the plain directory, which a node's cache uses, too. Store is the broker's: bounded, and cleared of what nothing
// needs.
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// Dir is a directory of artifacts, sha256/ab/abcdef..., which are read-only. Its methods are safe for concurrent use. They
// return ErrInvalid for what is no digest, and ErrNotFound for a missing artifact.
type Dir struct{ root string }

// Entry is an artifact.
type Entry struct {
	Digest string
	Size   uint64
	Used   time.Time // when it was received or touched
}

// OpenDir makes the directory where it does not exist, and removes what a process that was killed had received of
// artifacts. So one process at a time may use it.
func OpenDir(root string) (*Dir, error) {
	if err := os.MkdirAll(filepath.Join(root, "sha256"), 0o755); err != nil {
		return nil, full(err)
	}
	left, err := fs.Glob(os.DirFS(root), "sha256/??/.*.*")
	for _, name := range append(left, "partial") { // earlier versions received into that
		err = errors.Join(err, os.RemoveAll(filepath.Join(root, name)))
	}
	if err != nil {
		return nil, fmt.Errorf("artifact directory %q: %w", root, err)
	}
	return &Dir{root}, nil
}

// path is the only way from a digest to a file's name.
func (d *Dir) path(digest string) (string, error) {
	if err := kb.ValidateDigest(digest); err != nil {
		return "", err
	}
	name := strings.TrimPrefix(digest, "sha256:")
	return filepath.Join(d.root, "sha256", name[:2], name), nil
}

// Receive stores what a source yields. ErrInvalid: it has another size or digest. ErrExhausted: the disk is full. After an
// error there is nothing of it.
func (d *Dir) Receive(ctx context.Context, want string, size uint64, source io.Reader) error {
	path, err := d.path(want)
	if err != nil {
		return err
	}
	return full(atomicfile.Fill(path, 0o444, func(file *os.File) error {
		// One byte more distinguishes a source of this size from a larger one.
		have, n, err := digest.Copy(ctx, file, io.LimitReader(source, int64(size)+1))
		switch {
		case err != nil:
			return err
		case uint64(n) > size:
			return fmt.Errorf("artifact too large, more than %d bytes: %w", size, kb.ErrInvalid)
		case uint64(n) < size:
			return fmt.Errorf("artifact truncated, %d of %d bytes: %w", n, size, kb.ErrInvalid)
		case have != want:
			return mismatch(want, have)
		}
		return nil
	}))
}

func mismatch(want, have string) error {
	return fmt.Errorf("content does not match its digest, want %s, have %s: %w", want, have, kb.ErrInvalid)
}

// full marks errors of a full disk.
func full(err error) error {
	if diskfull.Is(err) {
		return fmt.Errorf("no space on the disk: %w: %w", kb.ErrExhausted, err)
	}
	return err
}

// Open opens an artifact for reading, without a check of its content.
func (d *Dir) Open(digest string) (*os.File, error) {
	path, err := d.path(digest)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	return file, missing(digest, err)
}

// Stat describes an artifact without a check of its content.
func (d *Dir) Stat(digest string) (Entry, error) {
	path, err := d.path(digest)
	if err != nil {
		return Entry{}, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return Entry{}, missing(digest, err)
	}
	return Entry{digest, uint64(info.Size()), info.ModTime()}, nil
}

// Touch records a use of an artifact.
func (d *Dir) Touch(digest string, now time.Time) error {
	path, err := d.path(digest)
	if err != nil {
		return err
	}
	return missing(digest, os.Chtimes(path, now, now))
}

// List returns all artifacts, sorted by digest. Files with other names are not artifacts.
func (d *Dir) List() ([]Entry, error) {
	var entries []Entry
	err := filepath.WalkDir(filepath.Join(d.root, "sha256"), func(path string, file fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		digest := "sha256:" + file.Name()
		if own, err := d.path(digest); err != nil || own != path || !file.Type().IsRegular() {
			return nil //nolint:nilerr // not an artifact
		}
		info, err := file.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err == nil {
			entries = append(entries, Entry{digest, uint64(info.Size()), info.ModTime()})
		}
		return err
	})
	return entries, err
}

// Remove deletes an artifact; a missing one is no error. Open readers can continue.
func (d *Dir) Remove(digest string) error {
	path, err := d.path(digest)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("artifact %s: %w", digest, err)
	}
	return nil
}

// missing names the artifact of a failed call.
func missing(digest string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("artifact %s: %w", digest, kb.ErrNotFound)
	}
	return fmt.Errorf("artifact %s: %w", digest, err)
}
