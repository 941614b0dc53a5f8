// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"
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

// StoreOptions of a Store.
type StoreOptions struct {
	// Limit in bytes of all artifacts and interrupted uploads; 0 means none.
	Limit int64
	// Uploads is the limit of concurrent uploads; 0 means none.
	Uploads int
	// Grace is how long an unneeded file stays: it may be about to be registered, or an interrupted upload may resume.
	Grace time.Duration
	// Needed returns the needed artifacts and their users, for Collect.
	Needed func(ctx context.Context) (map[Digest][]string, error)
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

// OpenStore creates the directory if missing and drops leftovers of interrupted writers except resumable uploads.
func OpenStore(root string, o StoreOptions) (*Store, error) {
	dir, err := OpenDir(root)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{dir: dir, o: o, running: map[Digest]int64{}}, dir.Clean()
}

// Open opens an artifact for reading; see Dir.Open.
func (s *Store) Open(digest Digest) (*os.File, error) { return s.dir.Open(digest) }

// Check verifies a whole file. A damaged one is removed, so that it can be uploaded again, and reported as
// ErrDigestMismatch. ErrNotFound: it is missing.
func (s *Store) Check(ctx context.Context, digest Digest) error {
	err := s.dir.Verify(ctx, digest)
	if errors.Is(err, ErrDigestMismatch) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return errors.Join(err, s.dir.Remove(digest))
	}
	return err
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
		return false, fmt.Errorf("artifact %s: %w", digest, full(err))
	}
	return true, nil
}

// begin makes room and registers the upload, unless the artifact is stored.
func (s *Store) begin(ctx context.Context, digest Digest, size int64) (has bool, err error) {
	if has, err = s.admit(digest, size); !errors.Is(err, ErrStoreFull) || s.o.Needed == nil {
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
	used, err := s.usedLocked(digest)
	if err != nil {
		return false, err
	}
	if s.o.Limit > 0 && (size > s.o.Limit || used > s.o.Limit-size) {
		return false, fmt.Errorf("%w: %d bytes wanted, %d of %d in use", ErrStoreFull, size, used, s.o.Limit)
	}
	s.running[digest] = size
	return false, nil
}

// usedLocked is the size of the store; running uploads count in full, and an interrupted upload of except does not
// count.
func (s *Store) usedLocked(except Digest) (int64, error) {
	whole, partial, err := s.entries()
	if err != nil {
		return 0, err
	}
	var used int64
	for _, e := range whole {
		used += e.Size
	}
	for _, e := range partial {
		if _, runs := s.running[e.Digest]; !runs && e.Digest != except {
			used += e.Size
		}
	}
	for _, size := range s.running {
		if used > math.MaxInt64-size {
			return math.MaxInt64, nil
		}
		used += size
	}
	return used, nil
}

func (s *Store) entries() (whole, partial []Entry, err error) {
	if whole, err = s.dir.List(); err != nil {
		return nil, nil, err
	}
	partial, err = s.dir.listPartials()
	return whole, partial, err
}

func (s *Store) end(digest Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, digest)
}

// receive appends to the received data and renames the complete file.
func (s *Store) receive(ctx context.Context, digest Digest, size, offset int64, source io.Reader) (err error) {
	path := s.dir.partialPath(digest)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close() // adopt has closed it, or its content does not matter
		if discardsPartial(err) {
			err = errors.Join(err, ignoreMissing(os.Remove(path)))
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if offset < 0 || offset > info.Size() || offset > size {
		return fmt.Errorf("%w: %d, %d bytes have", ErrOffset, offset, info.Size())
	}
	if err := file.Truncate(offset); err != nil {
		return err
	}
	p := &partial{file: file, size: size}
	if err := p.rehash(ctx); err != nil {
		return err
	}
	n, err := fill(ctx, p.file, p.sum, source, p.size-p.have)
	if p.have += n; err != nil {
		return err
	}
	if p.have < size {
		return fmt.Errorf("%w: %d of %d bytes", ErrTruncated, p.have, size)
	}
	if have := sumOf(p.sum); have != digest {
		return mismatch(digest, have)
	}
	return s.dir.adopt(file, digest)
}
