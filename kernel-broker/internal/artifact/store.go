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
	// ErrOffset: an upload begins behind what has arrived.
	ErrOffset = errors.New("offset past what has arrived")
	// ErrStoreFull: the artifact would not fit into what the store may take.
	ErrStoreFull = errors.New("artifact store is full")
	// ErrUploads: as many uploads run as may at a time.
	ErrUploads = errors.New("too many uploads at a time")
)

// StoreOptions of a Store.
type StoreOptions struct {
	// Limit in bytes of all artifacts and broken uploads; 0 is none.
	Limit int64
	// Uploads that may run at a time; 0 is any number.
	Uploads int
	// Grace is how long a file stays that nothing needs: it may be about to be
	// registered, and a broken upload about to go on.
	Grace time.Duration
	// Needed returns what is needed, with what needs it, for Collect.
	Needed func(ctx context.Context) (map[Digest][]string, error)
	// Now defaults to time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Store is the broker's Dir: bounded, filled by uploads that can be carried on
// after a broken connection, and cleared of what nothing needs. Its methods may
// be called concurrently; only one process may have it open.
type Store struct {
	dir *Dir
	o   StoreOptions

	mu      sync.Mutex
	running map[Digest]int64 // uploads, with the bytes they were promised
}

// OpenStore makes the directory where it does not exist, and drops what
// interrupted writers left, other than uploads that can go on.
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

// Check reads a whole file anew. One that is not what its digest says is removed,
// so that it can be uploaded again: ErrDigestMismatch. ErrNotFound: there is none.
func (s *Store) Check(ctx context.Context, digest Digest) error {
	err := s.dir.Verify(ctx, digest)
	if errors.Is(err, ErrDigestMismatch) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return errors.Join(err, s.dir.Remove(digest))
	}
	return err
}

// State tells whether an artifact is stored, and else how much of it arrived.
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

// Has reports whether an artifact is stored with that size. Who asks is about
// to need it, so it is spared by Collect for the time of grace.
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

// Put takes the bytes of an artifact from offset on, at most what has arrived
// by State; the rest of those is dropped. It returns false, without reading,
// when the artifact is there. When the source breaks off, what came is kept.
//
// Errors: those of the source; ErrTruncated, ErrDigestMismatch (nothing is
// kept), ErrTooLarge, ErrOffset, ErrInUse while another upload of the artifact
// runs, ErrUploads, ErrStoreFull, ErrDiskFull.
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

// begin makes room and notes the upload, unless the artifact is there.
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

// usedLocked is what the store takes, running uploads counted in full and the
// broken one of except not at all.
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

// receive writes behind what had arrived and gives the whole its name.
func (s *Store) receive(ctx context.Context, digest Digest, size, offset int64, source io.Reader) (err error) {
	path := s.dir.partialPath(digest)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close() // adopt has closed it, or its content does not matter
		if keepsNothing(err) {
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
