// SPDX-License-Identifier: Apache-2.0

// Package artifact keeps kernels, initial ram disks and module trees as files named by the digest of their content.
//
// Such a name can be checked against the file. So transfers, disks and other hosts need not be trusted, and two versions
// cannot be confused. A file appears under its name only when it is complete, checked and on disk.
//
// Dir is the plain directory that the broker uses. Cache, on top of it, is the node agent's: bounded in bytes, filled on
// demand.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Dir is a directory of artifacts:
//
//	sha256/ab/abcdef...   complete artifacts, read-only
//	partial/              transfers that run or broke off
//
// Its methods are safe for concurrent use, also by several processes.
type Dir struct{ root string }

type Entry struct {
	Digest Digest
	Size   int64
	Used   time.Time // the file's modification time; a Cache sets it at each use
}

// OpenDir makes the directory where it does not exist.
func OpenDir(root string) (*Dir, error) {
	for _, sub := range []string{"sha256", "partial"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return nil, fmt.Errorf("artifact directory %q: %w", root, full(err))
		}
	}
	return &Dir{root}, nil
}

// Path is the path of an artifact, present or not.
func (d *Dir) Path(digest Digest) string {
	name := digest.hex()
	return filepath.Join(d.root, "sha256", name[:2], name)
}

// fill copies at most limit bytes to a file and into a hash.
func fill(ctx context.Context, file *os.File, sum hash.Hash, r io.Reader, limit int64) (int64, error) {
	size, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(contextReader{ctx, r}, limit))
	if err != nil {
		return size, err
	}
	if size < limit {
		return size, nil
	}
	// One byte more distinguishes an artifact at the limit from a larger one.
	n, err := io.ReadFull(contextReader{ctx, r}, make([]byte, 1))
	if n > 0 {
		return size, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return size, err
}

// adopt renames a complete and checked file; content, name and directories are on disk before it returns. It closes the
// file.
func (d *Dir) adopt(file *os.File, digest Digest) error {
	path := d.Path(digest)
	if err := file.Chmod(0o444); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err == nil {
		if err := atomicfile.SyncDir(filepath.Dir(filepath.Dir(path))); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// Open opens an artifact for reading, without a check: see Verify.
func (d *Dir) Open(digest Digest) (*os.File, error) {
	file, err := os.Open(d.Path(digest))
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", digest, missing(err))
	}
	return file, nil
}

// Verify reads the whole file again: ErrDigestMismatch, ErrNotFound or nil.
func (d *Dir) Verify(ctx context.Context, digest Digest) error {
	file, err := d.Open(digest)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return d.verify(ctx, digest, file)
}

func (d *Dir) verify(ctx context.Context, digest Digest, file *os.File) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, file}); err != nil {
		return fmt.Errorf("artifact %s: %w", digest, err)
	}
	if have := sumOf(sum); have != digest {
		return fmt.Errorf("artifact %q: %w", d.Path(digest), mismatch(digest, have))
	}
	return nil
}

// Stat describes one artifact without checking its content.
func (d *Dir) Stat(digest Digest) (Entry, error) {
	info, err := os.Lstat(d.Path(digest))
	if err != nil {
		return Entry{}, fmt.Errorf("artifact %s: %w", digest, missing(err))
	}
	return Entry{digest, info.Size(), info.ModTime()}, nil
}

// List returns all artifacts, sorted by digest. Files with other names are not
// artifacts and are left alone.
func (d *Dir) List() ([]Entry, error) {
	var entries []Entry
	shards, err := os.ReadDir(filepath.Join(d.root, "sha256"))
	if err != nil {
		return nil, fmt.Errorf("artifact directory %q: %w", d.root, err)
	}
	for _, shard := range shards {
		files, err := os.ReadDir(filepath.Join(d.root, "sha256", shard.Name()))
		if err != nil {
			return nil, fmt.Errorf("artifact directory %q: %w", d.root, err)
		}
		for _, file := range files {
			digest, err := ParseDigest(digestPrefix + file.Name())
			if err != nil || !file.Type().IsRegular() || digest.hex()[:2] != shard.Name() {
				continue
			}
			entry, err := d.Stat(digest)
			if errors.Is(err, ErrNotFound) {
				continue // removed meanwhile
			}
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		}
	}
	return entries, nil // both levels are sorted
}

// Remove deletes an artifact; a missing one is no error. Open readers can continue.
func (d *Dir) Remove(digest Digest) error {
	if err := ignoreMissing(os.Remove(d.Path(digest))); err != nil {
		return fmt.Errorf("artifact %s: %w", digest, err)
	}
	return nil
}

func sumOf(h hash.Hash) Digest { return Digest{[sha256.Size]byte(h.Sum(nil))} }

// full marks a failed write for which the disk has no room.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// missing maps a failed look-up to ErrNotFound.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// contextReader makes a copy end with its context, between two reads.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Errors for errors.Is.
var (
	ErrInvalidDigest  = errors.New("invalid digest")
	ErrDigestMismatch = errors.New("content does not match its digest")
	ErrNotFound       = errors.New("artifact not found")
	ErrTooLarge       = errors.New("artifact too large")
	ErrTruncated      = errors.New("artifact truncated")
	ErrDiskFull       = errors.New("no space on the disk")
	ErrCacheFull      = errors.New("cache is full of pinned artifacts")
)

const digestPrefix = "sha256:"

// Digest is the SHA-256 of an artifact. It can be compared and be a map key.
type Digest struct{ sum [sha256.Size]byte }

// ParseDigest reads "sha256:" and 64 lower-case hex digits, the only notation, so that digests can be compared as text.
func ParseDigest(text string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(text, digestPrefix)
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) || strings.ToLower(digits) != digits {
		return Digest{}, fmt.Errorf("digest %q: %w: want sha256: and 64 lower-case hex digits", shorten(text), ErrInvalidDigest)
	}
	if _, err := hex.Decode(d.sum[:], []byte(digits)); err != nil {
		return Digest{}, fmt.Errorf("digest %q: %w: %w", shorten(text), ErrInvalidDigest, err)
	}
	return d, nil
}

// String is the form that ParseDigest reads.
func (d Digest) String() string { return digestPrefix + d.hex() }

func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

func (d Digest) hex() string { return hex.EncodeToString(d.sum[:]) }

// shorten keeps foreign input out of logs in bulk.
func shorten(text string) string {
	const most = 100
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// mismatch names both digests.
func mismatch(want, have Digest) error {
	return fmt.Errorf("%w: want %s, have %s", ErrDigestMismatch, want, have)
}
