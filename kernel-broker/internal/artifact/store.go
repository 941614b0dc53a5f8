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
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

type StoreOptions struct {
	// Limit in bytes of all artifacts and running uploads; 0 means none.
	Limit uint64
	// Uploads is the limit of concurrent uploads; 0 means none.
	Uploads int
	// Grace is how long an unneeded file stays: it may be about to be registered.
	Grace time.Duration
	// Needed returns the needed artifacts and their users, by digest, for Collect.
	Needed func(ctx context.Context) (map[string][]string, error)
	// Space tells what is free of how much, and defaults to what the system says.
	Space func(dir string) (free, whole uint64, err error)
	// Now defaults to time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Store is the broker's Dir: bounded, and cleared of unneeded files. Its methods are safe for concurrent use; only one
// process may have it open.
type Store struct {
	dir *Dir
	o   StoreOptions

	mu      sync.Mutex
	running map[string]uint64 // uploads by digest, with their sizes
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
	return &Store{dir: dir, o: o, running: map[string]uint64{}}, nil
}

// Open opens an artifact for reading; see Dir.Open. It does not wait.
func (s *Store) Open(_ context.Context, digest string) (*os.File, error) { return s.dir.Open(digest) }

// Stat describes an artifact; see Dir.Stat.
func (s *Store) Stat(digest string) (Entry, error) { return s.dir.Stat(digest) }

// Entries are all artifacts; see Dir.List.
func (s *Store) Entries() ([]Entry, error) { return s.dir.List() }

// Check verifies a whole file. A damaged one is removed, so that it can be uploaded again, and reported as ErrInvalid.
// ErrNotFound: it is missing.
func (s *Store) Check(ctx context.Context, want string) error {
	file, err := s.dir.Open(want)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	have, _, err := digest.Copy(ctx, io.Discard, file)
	if err == nil && have == want {
		return nil
	}
	if err != nil {
		return fmt.Errorf("artifact %s: %w", want, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// It may have been uploaded again meanwhile.
	read, failed := file.Stat()
	now, missing := os.Stat(file.Name())
	if failed == nil && missing == nil && os.SameFile(read, now) {
		failed = s.dir.Remove(want)
	}
	return errors.Join(fmt.Errorf("artifact %q: %w", file.Name(), mismatch(want, have)), failed)
}

// Has reports whether an artifact is stored with that size. It protects the artifact from Collect for the grace period.
func (s *Store) Has(digest string, size uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasLocked(digest, size)
}

func (s *Store) hasLocked(digest string, size uint64) (bool, error) {
	entry, err := s.dir.Stat(digest)
	if errors.Is(err, kb.ErrNotFound) || err == nil && entry.Size != size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.dir.Touch(digest, s.o.Now())
}

// Release ends the grace of a file: Collect removes it when nothing needs it. A missing one is no error.
func (s *Store) Release(digest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.dir.Touch(digest, time.Unix(0, 0)); !errors.Is(err, kb.ErrNotFound) {
		return err
	}
	return nil
}

// Capacity is how many bytes of artifacts the store can have: its limit, or less where the disk has no room for as many.
func (s *Store) Capacity() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, used, err := s.listLocked()
	if err != nil {
		return 0, err
	}
	capacity := s.o.Limit
	if capacity == 0 {
		capacity = math.MaxUint64
	}
	if free, whole, err := s.o.Space(s.dir.root); err == nil {
		reserved := reserveOf(whole)
		capacity = min(capacity, used+max(free, reserved)-reserved)
	}
	return capacity, nil
}

// Put receives an artifact. It returns false, without reading, if the artifact is stored.
//
// Errors: those of the source and of Dir.Receive; ErrUnavailable while another upload of the artifact runs, ErrExhausted
// when too many run or the store is full.
func (s *Store) Put(ctx context.Context, digest string, size uint64, source io.Reader) (stored bool, err error) {
	has, err := s.begin(ctx, digest, size)
	if err != nil {
		return false, fmt.Errorf("artifact %s: %w", digest, err)
	}
	if has {
		return false, nil
	}
	defer s.end(digest)
	if err := s.dir.Receive(ctx, digest, size, source); err != nil {
		return false, err
	}
	return true, nil
}

// begin makes room and registers the upload, unless the artifact is stored.
func (s *Store) begin(ctx context.Context, digest string, size uint64) (has bool, err error) {
	if has, err = s.admit(digest, size); !errors.Is(err, errNoRoom) || s.o.Needed == nil {
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

const (
	// uploadsWait is when to come back for one who finds too many uploads under way.
	uploadsWait = 5 * time.Second
	// reserve is what uploads leave free: the audit log and the broker's store may be on the same disk.
	reserve = 512 << 20
	// reserveFraction of a small disk is its reserve.
	reserveFraction = 10
)

// reserveOf a disk of that size.
func reserveOf(whole uint64) uint64 { return min(reserve, whole/reserveFraction) }

// errNoRoom: Collect may help.
var errNoRoom = fmt.Errorf("no room for another artifact: %w", kb.ErrExhausted)

func (s *Store) admit(digest string, size uint64) (has bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, err := s.hasLocked(digest, size); has || err != nil {
		return has, err
	}
	if _, runs := s.running[digest]; runs {
		return false, fmt.Errorf("in use by another upload: %w", kb.ErrUnavailable)
	}
	if n := len(s.running); s.o.Uploads > 0 && n >= s.o.Uploads {
		return false, &kb.RetryableError{Wait: uploadsWait, Err: fmt.Errorf("too many concurrent uploads, %d: %w", n, kb.ErrExhausted)}
	}
	_, used, err := s.listLocked()
	if err != nil {
		return false, err
	}
	if s.o.Limit > 0 && (size > s.o.Limit || used > s.o.Limit-size) {
		return false, fmt.Errorf("artifact store is full, %d bytes wanted, %d of %d in use: %w", size, used, s.o.Limit, errNoRoom)
	}
	if free, whole, err := s.o.Space(s.dir.root); err == nil {
		if reserve := reserveOf(whole); free < reserve || size > free-reserve {
			return false, fmt.Errorf("no space on the disk, %d bytes wanted, %d free, of which %d stay for the broker's records: %w", size, free, reserve, errNoRoom)
		}
	}
	s.running[digest] = size
	return false, nil
}

func (s *Store) end(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, digest)
}

// listLocked returns the artifacts and the bytes in use: theirs, and those that running uploads are to have.
func (s *Store) listLocked() (files []Entry, used uint64, err error) {
	files, err = s.dir.List()
	for _, f := range files {
		if _, runs := s.running[f.Digest]; !runs { // or it counts twice for a moment
			used += f.Size
		}
	}
	for _, size := range s.running {
		used += size
	}
	return files, used, err
}

// Stored is a file of a Store and its users.
type Stored struct {
	Entry
	NeededBy []string
}

// List returns every file of the store, the bytes in use and their limit.
func (s *Store) List(ctx context.Context) (all []Stored, used, limit uint64, err error) {
	if s.o.Needed == nil {
		return nil, 0, 0, errors.New("artifact store: no list of needed artifacts")
	}
	needed, err := s.o.Needed(ctx)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("needed artifacts: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	files, used, err := s.listLocked()
	for _, f := range files {
		all = append(all, Stored{Entry: f, NeededBy: needed[f.Digest]})
	}
	return all, used, s.o.Limit, err
}

// Collect removes and returns files that nothing needs and that were not requested within the grace period; with dryRun
// it only returns them. If the needed artifacts are unknown, it removes nothing.
//
// It reads them without a lock: clients that are about to need a file call Has first, which protects the file.
func (s *Store) Collect(ctx context.Context, dryRun bool) ([]Stored, error) {
	all, _, _, err := s.List(ctx)
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
	now, err := s.dir.Stat(file.Digest)
	if errors.Is(err, kb.ErrNotFound) || err == nil && now.Used.After(file.Used) {
		return false, nil
	}
	if err == nil {
		err = s.dir.Remove(file.Digest)
	}
	if err != nil {
		return false, err
	}
	s.o.Log.Info("unused artifact removed", "digest", file.Digest, "size", file.Size, "unused_since", file.Used.UTC().Format(time.RFC3339))
	return true, nil
}
