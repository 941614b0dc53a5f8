// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrInUse means that another process or call holds the cache or an artifact.
var ErrInUse = errors.New("in use")

// ErrNoResume is returned by a Fetch that can only start at 0.
var ErrNoResume = errors.New("cannot resume at an offset")

// Fetch opens an artifact at its source, from an offset on. The offset is not 0 after an interrupted download; a Fetch
// that cannot start there returns ErrNoResume and is called again with 0. Its reader should end with ctx.
type Fetch func(ctx context.Context, offset int64) (io.ReadCloser, error)

// Cache is a bounded Dir that fetches missing artifacts. Its methods are safe for concurrent use; only one process can
// have it open.
//
// To make room it removes interrupted downloads first and then the least recently used artifacts. It never removes an
// artifact that is pinned, being fetched or being checked.
type Cache struct {
	dir   *Dir
	limit int64
	log   *slog.Logger
	lock  *os.File

	mu       sync.Mutex
	reserved map[Digest]int64 // sizes of running downloads
	pins     map[Digest]int
	busy     map[Digest]chan struct{} // closed when the one operation on the digest ends
}

// OpenCache takes over what an earlier process left. It removes no artifact, even above the limit, since nothing can be
// pinned yet: the next Ensure does.
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
		reserved: map[Digest]int64{}, pins: map[Digest]int{}, busy: map[Digest]chan struct{}{}}
	if _, err := dir.listPartials(); err != nil {
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

// Close releases the cache for another process. No other method may run then or later.
func (c *Cache) Close() error { return c.lock.Close() }

// Pin protects an artifact, present or not, from removal until the returned function is called. Pins add up and do not
// outlive the process: pin required kernels before the first Ensure.
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

// Ensure returns the path of a complete artifact and verifies its content in this call; it fetches an absent or damaged
// one. Size is its exact length as published. Of concurrent calls for one digest each waits for the one
// before, whose file it then finds. Pin the digest first if the
// file must stay after the call.
//
// Errors: the error of fetch, or ErrTruncated if the source ended early (both keep the data, and the next call resumes);
// ErrDigestMismatch, ErrDiskFull, and ErrTooLarge if the source has more than size bytes or size exceeds the cache
// (nothing is kept); ErrCacheFull if pinned artifacts leave no room.
func (c *Cache) Ensure(ctx context.Context, digest Digest, size int64, fetch Fetch) (string, error) {
	if err := c.exclusive(ctx, digest, func() error { return c.ensure(ctx, digest, size, fetch) }); err != nil {
		return "", fmt.Errorf("artifact %s: %w", digest, err)
	}
	return c.dir.Path(digest), nil
}

// exclusive runs an operation when no other runs on the digest.
func (c *Cache) exclusive(ctx context.Context, digest Digest, run func() error) error {
	c.mu.Lock()
	for c.busy[digest] != nil {
		other := c.busy[digest]
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
	}
	done := make(chan struct{})
	c.busy[digest] = done
	c.mu.Unlock()
	// Deferred, so that a panic in fetch does not block the waiting calls.
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.busy, digest)
		close(done)
	}()
	return run()
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
	defer c.release(digest)
	if err := c.download(ctx, digest, size, fetch); err != nil {
		return err
	}
	c.touch(digest)
	return nil
}

// Verify checks the content of a present artifact. A damaged one is removed, so that the next Ensure fetches it again,
// and reported as ErrDigestMismatch.
func (c *Cache) Verify(ctx context.Context, digest Digest) error {
	return c.exclusive(ctx, digest, func() error { return c.check(ctx, digest) })
}

// check runs alone on the digest.
func (c *Cache) check(ctx context.Context, digest Digest) error {
	err := c.dir.Verify(ctx, digest)
	if errors.Is(err, ErrDigestMismatch) {
		c.log.Error("artifact is damaged, removing it", "digest", digest.String(), "error", err)
		return errors.Join(err, c.dir.Remove(digest))
	}
	return err
}

// touch notes a use in the file, also for the order after a restart.
func (c *Cache) touch(digest Digest) {
	now := time.Now()
	if err := os.Chtimes(c.dir.Path(digest), now, now); err != nil {
		c.log.Warn("artifact's time of use is not kept", "digest", digest.String(), "error", err)
	}
}

// Open opens a present artifact, without a check of its content.
func (c *Cache) Open(digest Digest) (*os.File, error) { return c.dir.Open(digest) }

// Path is the path of an artifact, present or not.
func (c *Cache) Path(digest Digest) string { return c.dir.Path(digest) }

// List returns the complete artifacts, sorted by digest.
func (c *Cache) List() ([]Entry, error) { return c.dir.List() }

// usage is what a Dir holds. Files that are being received count with the size that they are to have.
type usage struct {
	whole, partial []Entry
	bytes          int64
}

// usage counts neither an interrupted transfer of except nor, beside the reservation, what there is of it.
func (d *Dir) usage(reserved map[Digest]int64, except Digest) (u usage, err error) {
	if u.whole, err = d.List(); err != nil {
		return u, err
	}
	if u.partial, err = d.listPartials(); err != nil {
		return u, err
	}
	for _, e := range u.whole {
		if _, runs := reserved[e.Digest]; !runs {
			u.bytes += e.Size
		}
	}
	for _, e := range u.partial {
		if _, runs := reserved[e.Digest]; !runs && e.Digest != except {
			u.bytes += e.Size
		}
	}
	for _, size := range reserved {
		if u.bytes > math.MaxInt64-size {
			u.bytes = math.MaxInt64
			return u, nil
		}
		u.bytes += size
	}
	return u, nil
}

// victim is a candidate for removal.
type victim struct {
	Entry
	path string
}

// reserve makes room for a download and counts it. If that is impossible it removes nothing and returns ErrCacheFull.
func (c *Cache) reserve(digest Digest, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, err := c.dir.usage(c.reserved, digest)
	if err != nil {
		return err
	}
	var victims []victim
	freed, need := int64(0), u.bytes+size-c.limit
	for _, v := range c.victims(u) {
		if freed >= need {
			break
		}
		victims = append(victims, v)
		freed += v.Size
	}
	if freed < need {
		return fmt.Errorf("%w: %d bytes wanted, limit %d, %d cannot be removed", ErrCacheFull, size, c.limit, u.bytes-freed)
	}
	for _, v := range victims {
		if err := ignoreMissing(os.Remove(v.path)); err != nil {
			return fmt.Errorf("making room: %w", err)
		}
		c.log.Info("artifact removed to make room", "digest", v.Digest.String(), "size", v.Size)
	}
	c.reserved[digest] = size
	return nil
}

// victims are what may be removed, in that order: interrupted downloads, and then what was not used for longest. It
// needs c.mu.
func (c *Cache) victims(u usage) (victims []victim) {
	older := func(a, b Entry) int {
		return cmp.Or(a.Used.Compare(b.Used), strings.Compare(a.Digest.hex(), b.Digest.hex()))
	}
	slices.SortFunc(u.partial, older)
	slices.SortFunc(u.whole, older)
	for _, e := range u.partial {
		if c.busy[e.Digest] == nil {
			victims = append(victims, victim{e, c.dir.partialPath(e.Digest)})
		}
	}
	for _, e := range u.whole {
		if c.busy[e.Digest] == nil && c.pins[e.Digest] == 0 {
			victims = append(victims, victim{e, c.dir.Path(e.Digest)})
		}
	}
	return victims
}

// release ends a reservation: what there is of the file counts from now on.
func (c *Cache) release(digest Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reserved, digest)
}
