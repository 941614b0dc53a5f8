// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// ErrInUse means that something else holds the cache or an artifact in it.
var ErrInUse = errors.New("in use")

// ErrNoResume is what a Fetch returns when it can only begin at 0.
var ErrNoResume = errors.New("cannot begin in the middle")

// Fetch opens an artifact at its source, from an offset on. The offset is not 0
// when an earlier download broke off; a Fetch that cannot begin there returns
// ErrNoResume and is called again with 0. Its reader should end with ctx.
type Fetch func(ctx context.Context, offset int64) (io.ReadCloser, error)

// Cache is a bounded Dir that fetches what it lacks. Its methods may be called
// concurrently; only one process can have it open.
//
// When room is needed, broken downloads go first and then the artifacts that
// were not used for the longest time. An artifact that is pinned, or that is
// being fetched or checked right now, never goes.
type Cache struct {
	dir   *Dir
	limit int64
	log   *slog.Logger
	lock  *os.File

	mu       sync.Mutex
	entries  map[Digest]Entry // complete
	partials map[Digest]Entry // broken downloads that nobody carries on now
	reserved map[Digest]int64 // sizes of running downloads
	pins     map[Digest]int
	flights  map[Digest]*flight
}

// flight is the one running operation on a digest.
type flight struct {
	done   chan struct{} // closed at the end; the fields below are set before
	ensure bool          // others who want the artifact can take this result
	gaveUp bool          // ended because its own caller did, which says nothing to others
	err    error
}

// OpenCache reads what an earlier process left and drops temporary files. It
// removes no artifact, even if there are more than limit bytes, since nothing
// can be pinned yet: the next Ensure does.
func OpenCache(root string, limit int64, log *slog.Logger) (*Cache, error) {
	dir, err := OpenDir(root)
	if err != nil {
		return nil, err
	}
	lock, err := lockCache(filepath.Join(root, "lock"))
	if err != nil {
		return nil, fmt.Errorf("artifact cache %q: %w", root, err)
	}
	c := &Cache{dir: dir, limit: limit, log: log, lock: lock,
		entries: map[Digest]Entry{}, partials: map[Digest]Entry{}, reserved: map[Digest]int64{},
		pins: map[Digest]int{}, flights: map[Digest]*flight{}}
	if err := c.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return c, nil
}

func lockCache(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, full(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w by another agent", ErrInUse)
		}
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func (c *Cache) load() error {
	if err := c.dir.Clean(); err != nil {
		return err
	}
	entries, err := c.dir.List()
	if err != nil {
		return err
	}
	for _, e := range entries {
		c.entries[e.Digest] = e
	}
	partials, err := c.dir.listPartials()
	for _, e := range partials {
		c.partials[e.Digest] = e
	}
	return err
}

// Close frees the cache for another process. No other method may run then or
// later.
func (c *Cache) Close() error { return c.lock.Close() }

// Pin keeps an artifact from being removed, present already or not, until the
// returned function is called. Pins add up and do not outlive the process: pin
// the kernels that must stay before the first Ensure.
func (c *Cache) Pin(digest Digest) (unpin func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins[digest]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pins[digest]--; c.pins[digest] == 0 {
			delete(c.pins, digest)
		}
	})
}

// Ensure returns the path of a complete artifact whose content was checked in
// this very call, fetching it if it is absent or damaged. Size is its exact
// length as its publisher states it. Concurrent calls for one digest fetch
// once. Pin the digest first if the file must stay after the call.
//
// Errors: what fetch returned, ErrTruncated when the source ended early (both
// keep what has come, and the next call carries on there); ErrDigestMismatch,
// ErrDiskFull, and ErrTooLarge when the source has more than size bytes or size
// is more than the whole cache (nothing is kept); ErrCacheFull when what is
// pinned leaves no room.
func (c *Cache) Ensure(ctx context.Context, digest Digest, size int64, fetch Fetch) (string, error) {
	for {
		other, err := c.exclusive(ctx, digest, true, func() error { return c.ensure(ctx, digest, size, fetch) })
		switch {
		case other != nil && (!other.ensure || other.gaveUp):
			continue
		case other != nil:
			err = other.err
		}
		if err != nil {
			return "", fmt.Errorf("artifact %s: %w", digest, err)
		}
		return c.dir.Path(digest), nil
	}
}

// exclusive runs an operation when no other runs on the digest; otherwise it
// waits for the end of that other one and returns it.
func (c *Cache) exclusive(ctx context.Context, digest Digest, ensure bool, run func() error) (*flight, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if other := c.flights[digest]; other != nil {
		c.mu.Unlock()
		select {
		case <-other.done:
			return other, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f := &flight{done: make(chan struct{}), ensure: ensure}
	c.flights[digest] = f
	c.mu.Unlock()
	// Deferred, so that a fetch that panics does not leave the others waiting.
	f.gaveUp = true
	defer func() {
		c.mu.Lock()
		delete(c.flights, digest)
		c.mu.Unlock()
		close(f.done)
	}()
	f.err = run()
	f.gaveUp = f.err != nil && ctx.Err() != nil
	return nil, f.err
}

func (c *Cache) ensure(ctx context.Context, digest Digest, size int64, fetch Fetch) error {
	if size < 0 || size > c.limit {
		return fmt.Errorf("%w: %d bytes, the cache holds %d", ErrTooLarge, size, c.limit)
	}
	err := c.check(ctx, digest)
	if err == nil {
		c.touch(digest)
		return nil
	}
	if !errors.Is(err, ErrDigestMismatch) && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := c.reserve(digest, size); err != nil {
		return err
	}
	defer c.settle(digest)
	if err := c.download(ctx, digest, size, fetch); err != nil {
		return err
	}
	c.touch(digest)
	return nil
}

// Verify checks the content of a present artifact. A damaged one is removed, so
// that the next Ensure fetches it again, and reported as ErrDigestMismatch.
func (c *Cache) Verify(ctx context.Context, digest Digest) error {
	for {
		other, err := c.exclusive(ctx, digest, false, func() error { return c.check(ctx, digest) })
		if other == nil {
			return err
		}
	}
}

// check needs the digest's flight.
func (c *Cache) check(ctx context.Context, digest Digest) error {
	err := c.dir.Verify(ctx, digest)
	switch {
	case errors.Is(err, ErrDigestMismatch):
		c.log.Error("artifact is damaged, removing it", "digest", digest.String(), "error", err)
		return errors.Join(err, c.drop(digest))
	case errors.Is(err, ErrNotFound):
		return errors.Join(err, c.drop(digest)) // perhaps removed by hand
	}
	return err
}

// Remove deletes an artifact, unless it is pinned: ErrInUse.
func (c *Cache) Remove(ctx context.Context, digest Digest) error {
	for {
		other, err := c.exclusive(ctx, digest, false, func() error {
			c.mu.Lock()
			pinned := c.pins[digest] > 0
			c.mu.Unlock()
			if pinned {
				return fmt.Errorf("artifact %s: %w: pinned", digest, ErrInUse)
			}
			return c.drop(digest)
		})
		if other == nil {
			return err
		}
	}
}

// drop needs the digest's flight.
func (c *Cache) drop(digest Digest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, digest)
	return c.dir.Remove(digest)
}

// touch notes a use, in the file too, for the order after a restart.
func (c *Cache) touch(digest Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if err := os.Chtimes(c.dir.Path(digest), now, now); err != nil {
		c.log.Warn("artifact's time of use is not kept", "digest", digest.String(), "error", err)
	}
	entry, err := c.dir.Stat(digest)
	if err != nil {
		c.log.Error("artifact is not counted", "digest", digest.String(), "error", err)
		return
	}
	entry.Used = now
	c.entries[digest] = entry
	delete(c.reserved, digest) // counted as what it is now, and never twice
}

// Open opens a present artifact, without a check of its content.
func (c *Cache) Open(digest Digest) (*os.File, error) { return c.dir.Open(digest) }

// Path is where an artifact is or would be.
func (c *Cache) Path(digest Digest) string { return c.dir.Path(digest) }

// List returns the complete artifacts, sorted by digest.
func (c *Cache) List() ([]Entry, error) { return c.dir.List() }
