// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// ErrInUse means that another agent has the cache.
var ErrInUse = errors.New("in use by another agent")

// Cache has the artifacts of kernels: it fetches them from the broker, and removes what was not used for longest where it
// would exceed its limit. Its errors distinguish the kernel's fault from the node's. Methods are called one after the
// other, but for Prepare.
type Cache struct {
	dir   *artifact.Dir
	lock  *os.File
	limit uint64
	fetch Fetch
	log   *slog.Logger
	kept  []string

	mu sync.Mutex
	// ready are sealed copies, each for one load.
	ready map[sized]*os.File
}

type sized struct {
	digest string
	size   uint64
}

// Fetch opens an artifact at the broker.
type Fetch func(ctx context.Context, digest string) (io.ReadCloser, error)

// OpenCache opens a cache of at most limit bytes, with what an earlier agent left in it. It removes no artifact, even
// above the limit, since nothing is kept yet: the next fetch does.
func OpenCache(root string, limit uint64, fetch Fetch, log *slog.Logger) (*Cache, error) {
	lock, err := lockCache(root)
	if err != nil {
		return nil, fmt.Errorf("artifact cache %q: %w", root, err)
	}
	dir, err := artifact.OpenDir(root)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Cache{dir: dir, lock: lock, limit: limit, fetch: fetch, log: log, ready: map[sized]*os.File{}}, nil
}

func lockCache(root string) (*os.File, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// Close releases the cache for another agent.
func (c *Cache) Close() error { return c.lock.Close() }

// Keep implements Artifacts.
func (c *Cache) Keep(digests ...string) { c.kept = digests }

// Ensure implements Artifacts. It does not read present files: Sealed does directly before the load, and reading a kernel
// twice would slow down every switch.
func (c *Cache) Ensure(ctx context.Context, digest string, size uint64) error {
	if there, err := c.dir.Stat(digest); err == nil && there.Size == size {
		c.touch(digest)
		return nil
	}
	// What is there of another size is damaged.
	if err := c.dir.Remove(digest); err != nil {
		return kernelsFault(err)
	}
	if err := c.makeRoom(digest, size); err != nil {
		return err
	}
	source, err := c.fetch(ctx, digest)
	if err != nil {
		return kernelsFault(err)
	}
	return kernelsFault(errors.Join(c.dir.Receive(ctx, digest, size, source), source.Close()))
}

// touch records a use in the file: the next agent, after the boot, decides by it what to remove.
func (c *Cache) touch(digest string) {
	if err := c.dir.Touch(digest, time.Now()); err != nil {
		c.log.Warn("artifact's time of use is not kept", "digest", digest, "error", err)
	}
}

// kernelsFault marks errors of the artifact itself, which every node would get.
func kernelsFault(err error) error {
	if errors.Is(err, kb.ErrInvalid) || errors.Is(err, kb.ErrNotFound) || errors.Is(err, kb.ErrFailedPrecondition) {
		return fmt.Errorf("%w: %w", ErrKernel, err)
	}
	return err
}

// makeRoom removes what was not used for longest, and is not kept, until so many more bytes fit. If they cannot, it
// removes nothing: another node may have a larger cache.
func (c *Cache) makeRoom(digest string, size uint64) error {
	entries, err := c.dir.List()
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b artifact.Entry) int {
		return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Digest, b.Digest))
	})
	var used, freed uint64
	for _, e := range entries {
		used += e.Size
	}
	fits := func() bool { return size <= c.limit && used-freed <= c.limit-size }
	var victims []artifact.Entry
	for _, e := range entries {
		if !fits() && !slices.Contains(c.kept, e.Digest) {
			victims, freed = append(victims, e), freed+e.Size
		}
	}
	if !fits() {
		return fmt.Errorf("artifact %s has %d bytes, and the node's cache is full: it holds %d, of which files of the same kernel take %d: %w",
			digest, size, c.limit, used-freed, kb.ErrExhausted)
	}
	for _, e := range victims {
		if err := c.dir.Remove(e.Digest); err != nil {
			return err
		}
		c.log.Info("artifact removed to make room", "digest", e.Digest, "size", e.Size)
	}
	return nil
}

// Sealed implements Artifacts. A damaged file is removed, so that the next Ensure fetches it again.
func (c *Cache) Sealed(ctx context.Context, digest string, size uint64) (*os.File, error) {
	if file := c.take(sized{digest, size}); file != nil {
		return file, nil
	}
	file, err := c.copyOf(ctx, digest, size)
	if errors.Is(err, ErrDamaged) {
		c.log.Error("artifact is damaged, removing it", "digest", digest, "error", err)
		err = errors.Join(err, c.dir.Remove(digest))
	}
	return file, err
}

// copyOf returns a sealed copy of a file that matches its digest.
func (c *Cache) copyOf(ctx context.Context, digest string, size uint64) (*os.File, error) {
	source, err := c.dir.Open(digest)
	if errors.Is(err, kb.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, kernelsFault(err)
	}
	defer func() { _ = source.Close() }() // only read from
	info, err := source.Stat()
	if err != nil {
		return nil, err
	}
	if uint64(info.Size()) != size {
		return nil, fmt.Errorf("%w: artifact %s has %d bytes, not %d", ErrDamaged, digest, info.Size(), size)
	}
	file, have, _, err := SealedCopy(ctx, "artifact", source, info.Size())
	if err != nil || have == digest {
		return file, err
	}
	return nil, errors.Join(fmt.Errorf("%w: artifact %s has digest %s", ErrDamaged, digest, have), file.Close())
}

// Checking an image's digest takes much of a switch's time before the boot. So an idle node on stock keeps a checked,
// sealed copy of the previous kernel: users repeat their applications.
const (
	// readyLimit bounds the memory of the copies, in bytes.
	readyLimit = 64 << 20
	// sameUse is within which the files of one kernel are used.
	sameUse = 2 * time.Second
)

// Prepare copies the artifacts used before the current ones. It may run beside the other methods, and changes no file.
func (c *Cache) Prepare(ctx context.Context) error {
	entries, err := c.dir.List()
	if err != nil {
		return err
	}
	for _, e := range previous(entries) {
		file, err := c.copyOf(ctx, e.Digest, e.Size)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.ready[sized{e.Digest, e.Size}] = file
		c.mu.Unlock()
	}
	return nil
}

// take returns a ready copy, if there is one.
func (c *Cache) take(of sized) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := c.ready[of]
	delete(c.ready, of)
	return file
}

// previous selects the artifacts of the last use but one, within the size limit.
func previous(entries []artifact.Entry) (list []artifact.Entry) {
	slices.SortFunc(entries, func(x, y artifact.Entry) int { return y.Used.Compare(x.Used) })
	left := uint64(readyLimit)
	var last time.Time
	for _, e := range entries {
		switch {
		case entries[0].Used.Sub(e.Used) <= sameUse:
			continue // in use
		case last.IsZero():
			last = e.Used
		case last.Sub(e.Used) > sameUse:
			return list
		}
		if e.Size <= left {
			left -= e.Size
			list = append(list, e)
		}
	}
	return list
}
