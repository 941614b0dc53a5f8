// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// Errors of a Store.
var (
	// ErrOffset: an upload starts beyond the received data.
	ErrOffset = errors.New("offset beyond the received data")
	// ErrStoreFull: the artifact would exceed the store's limit.
	ErrStoreFull = errors.New("artifact store is full")
	// ErrUploads: the limit of concurrent uploads is reached.
	ErrUploads = errors.New("too many concurrent uploads")
)

type StoreOptions struct {
	// Limit in bytes of all artifacts and interrupted uploads; 0 means none.
	Limit int64
	// Uploads is the limit of concurrent uploads; 0 means none.
	Uploads int
	// Grace is how long an unneeded file stays: it may be about to be registered, or an interrupted upload may resume.
	Grace time.Duration
	// Needed returns the needed artifacts and their users, for Collect.
	Needed func(ctx context.Context) (map[Digest][]string, error)
	// Space tells what is free of how much, and defaults to what the system says.
	Space func(dir string) (free, whole uint64, err error)
	// Now defaults to time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Store is the broker's Dir: bounded, filled by resumable uploads, and cleared of unneeded files. Its methods are safe
// for concurrent use; only one process may have it open.
type Store struct {
	dir *Dir
	o   StoreOptions

	mu      sync.Mutex
	running map[Digest]int64 // uploads, with the bytes they were promised
}

// OpenStore creates the directory if missing.
func OpenStore(root string, o StoreOptions) (*Store, error) {
	dir, err := OpenDir(root)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Space == nil {
		o.Space = diskfull.Space
	}
	return &Store{dir: dir, o: o, running: map[Digest]int64{}}, nil
}

// Open opens an artifact for reading; see Dir.Open.
func (s *Store) Open(digest Digest) (*os.File, error) { return s.dir.Open(digest) }

// Check verifies a whole file. A damaged one is removed, so that it can be uploaded again, and reported as
// ErrDigestMismatch. ErrNotFound: it is missing.
func (s *Store) Check(ctx context.Context, digest Digest) error {
	file, err := s.dir.Open(digest)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err = s.dir.verify(ctx, digest, file); !errors.Is(err, ErrDigestMismatch) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// It may have been uploaded again meanwhile.
	read, failed := file.Stat()
	now, missing := os.Stat(s.dir.Path(digest))
	if failed == nil && missing == nil && os.SameFile(read, now) {
		err = errors.Join(err, s.dir.Remove(digest))
	}
	return errors.Join(err, failed)
}

// State reports whether an artifact is stored, or how much of it has arrived.
func (s *Store) State(digest Digest) (stored bool, size int64, err error) {
	entry, err := s.dir.Stat(digest)
	if err == nil {
		return true, entry.Size, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return false, 0, err
	}
	info, err := os.Lstat(s.dir.partialPath(digest))
	if errors.Is(err, os.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("artifact %s: %w", digest, err)
	}
	return false, info.Size(), nil
}

// Has reports whether an artifact is stored with that size. It protects the artifact from Collect for the grace period.
func (s *Store) Has(digest Digest, size int64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasLocked(digest, size)
}

func (s *Store) hasLocked(digest Digest, size int64) (bool, error) {
	entry, err := s.dir.Stat(digest)
	if errors.Is(err, ErrNotFound) || err == nil && entry.Size != size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now := s.o.Now()
	if err := os.Chtimes(s.dir.Path(digest), now, now); err != nil {
		return false, fmt.Errorf("artifact %s: %w", digest, missing(err))
	}
	return true, nil
}

// Put receives an artifact from offset on, at most the size reported by State; data beyond offset is dropped. It returns
// false, without reading, if the artifact is stored. If the source breaks off, the received data is kept.
//
// Errors: those of the source; ErrTruncated, ErrDigestMismatch (nothing is kept), ErrTooLarge, ErrOffset, ErrInUse while
// another upload of the artifact runs, ErrUploads, ErrStoreFull, ErrDiskFull.
func (s *Store) Put(ctx context.Context, digest Digest, size, offset int64, source io.Reader) (stored bool, err error) {
	has, err := s.begin(ctx, digest, size)
	if err != nil {
		return false, fmt.Errorf("artifact %s: %w", digest, err)
	}
	if has {
		return false, nil
	}
	defer s.end(digest)
	if err := s.receive(ctx, digest, size, offset, source); err != nil {
		return false, fmt.Errorf("artifact %s: %w", digest, err)
	}
	return true, nil
}

// begin makes room and registers the upload, unless the artifact is stored.
func (s *Store) begin(ctx context.Context, digest Digest, size int64) (has bool, err error) {
	if has, err = s.admit(digest, size); !errors.Is(err, ErrStoreFull) && !errors.Is(err, ErrDiskFull) || s.o.Needed == nil {
		return has, err
	}
	removed, clearing := s.Collect(ctx, false)
	if clearing != nil {
		return false, errors.Join(err, clearing)
	}
	if len(removed) == 0 {
		return false, err
	}
	return s.admit(digest, size)
}

func (s *Store) admit(digest Digest, size int64) (has bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, err := s.hasLocked(digest, size); has || err != nil {
		return has, err
	}
	if _, runs := s.running[digest]; runs {
		return false, fmt.Errorf("%w by another upload", ErrInUse)
	}
	if s.o.Uploads > 0 && len(s.running) >= s.o.Uploads {
		return false, fmt.Errorf("%w: %d", ErrUploads, len(s.running))
	}
	u, err := s.dir.usage(s.running, digest)
	if err != nil {
		return false, err
	}
	if s.o.Limit > 0 && (size > s.o.Limit || u.bytes > s.o.Limit-size) {
		return false, fmt.Errorf("%w: %d bytes wanted, %d of %d in use", ErrStoreFull, size, u.bytes, s.o.Limit)
	}
	if free, whole, err := s.o.Space(s.dir.root); err == nil {
		if reserve := min(reserve, whole/reserveFraction); free < reserve || uint64(size) > free-reserve {
			return false, fmt.Errorf("%w: %d bytes wanted, %d free, of which %d stay for the broker's records", ErrDiskFull, size, free, reserve)
		}
	}
	s.running[digest] = size
	return false, nil
}

const (
	// reserve is what uploads leave free: the audit log and the broker's store may be on the same disk.
	reserve = 512 << 20
	// reserveFraction of a small disk is its reserve.
	reserveFraction = 10
)

func (s *Store) end(digest Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, digest)
}

// receive appends to the received data and renames the complete file.
func (s *Store) receive(ctx context.Context, digest Digest, size, offset int64, source io.Reader) error {
	return s.dir.receive(digest, size, func(p *partial) error {
		info, err := p.file.Stat()
		if err != nil {
			return err
		}
		if offset < 0 || offset > info.Size() || offset > size {
			return fmt.Errorf("%w: %d, %d bytes have", ErrOffset, offset, info.Size())
		}
		if err := p.file.Truncate(offset); err != nil {
			return err
		}
		if err := p.rehash(ctx); err != nil {
			return err
		}
		return p.take(ctx, source)
	})
}

// Stored is a file of a Store and its users.
type Stored struct {
	Entry
	NeededBy []string
	// Partial: an upload that runs or broke off.
	Partial bool
}

// List returns every file of the store, interrupted uploads last, and the total size.
func (s *Store) List(ctx context.Context) ([]Stored, int64, error) {
	needed, err := s.needed(ctx)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := s.dir.usage(s.running, Digest{})
	if err != nil {
		return nil, 0, err
	}
	all := make([]Stored, 0, len(u.whole)+len(u.partial))
	for _, e := range u.whole {
		all = append(all, Stored{Entry: e, NeededBy: needed[e.Digest]})
	}
	for _, e := range u.partial {
		file := Stored{Entry: e, Partial: true}
		if _, runs := s.running[e.Digest]; runs {
			file.NeededBy = []string{"an upload"}
		}
		all = append(all, file)
	}
	return all, u.bytes, nil
}

func (s *Store) needed(ctx context.Context) (map[Digest][]string, error) {
	if s.o.Needed == nil {
		return nil, errors.New("artifact store: no list of needed artifacts")
	}
	needed, err := s.o.Needed(ctx)
	if err != nil {
		return nil, fmt.Errorf("needed artifacts: %w", err)
	}
	return needed, nil
}

// Collect removes and returns files that nothing needs and that were not requested within the grace period; with dryRun
// it only returns them. If the needed artifacts are unknown, it removes nothing.
//
// It reads them without a lock: clients that are about to need a file call Has first, which protects the file.
func (s *Store) Collect(ctx context.Context, dryRun bool) ([]Stored, error) {
	all, _, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var removed []Stored
	for _, file := range garbage(all, s.o.Now(), s.o.Grace) {
		gone := true
		if !dryRun {
			if gone, err = s.remove(file); err != nil {
				return removed, err
			}
		}
		if gone {
			removed = append(removed, file)
		}
	}
	return removed, nil
}

// garbage selects removable files, the longest unused first.
func garbage(all []Stored, now time.Time, grace time.Duration) []Stored {
	var old []Stored
	for _, file := range all {
		if len(file.NeededBy) == 0 && now.Sub(file.Used) > grace {
			old = append(old, file)
		}
	}
	slices.SortStableFunc(old, func(a, b Stored) int { return a.Used.Compare(b.Used) })
	return old
}

// remove deletes a file unless it was requested since the listing.
func (s *Store) remove(file Stored) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.dir.Path(file.Digest)
	if file.Partial {
		path = s.dir.partialPath(file.Digest)
		if _, runs := s.running[file.Digest]; runs {
			return false, nil
		}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false, ignoreMissing(err)
	}
	if info.ModTime().After(file.Used) {
		return false, nil
	}
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return false, fmt.Errorf("artifact %s: %w", file.Digest, err)
	}
	s.o.Log.Info("unused artifact removed", "digest", file.Digest.String(), "size", file.Size,
		"partial", file.Partial, "unused_since", file.Used.UTC().Format(time.RFC3339))
	return true, nil
}
