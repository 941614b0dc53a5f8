// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// Cache has the artifacts of kernels: it fetches them from the broker, and its errors distinguish the kernel's fault from
// the node's.
type Cache struct {
	files *artifact.Cache
	limit uint64
	fetch func(ctx context.Context, digest string, offset uint64) (io.ReadCloser, error)
	kept  map[string]func()

	mu sync.Mutex
	// ready are sealed copies, each for one load.
	ready map[string]*os.File
}

// NewCache puts the cache of at most limit bytes before fetch, which reads an artifact from an offset on.
func NewCache(files *artifact.Cache, limit uint64, fetch func(ctx context.Context, digest string, offset uint64) (io.ReadCloser, error)) *Cache {
	return &Cache{files: files, limit: limit, fetch: fetch, ready: map[string]*os.File{}}
}

// Keep implements Artifacts.
func (c *Cache) Keep(digests ...string) error {
	next := map[string]func(){}
	for _, text := range digests {
		digest, err := artifact.ParseDigest(text)
		if err != nil {
			return artifactError(err)
		}
		next[text] = c.files.Pin(digest)
	}
	for _, unpin := range c.kept {
		unpin()
	}
	c.kept = next
	return nil
}

// Ensure implements Artifacts. It does not read present files: Sealed does directly before the load, and reading a kernel
// twice would slow down every switch.
func (c *Cache) Ensure(ctx context.Context, text string, size uint64) error {
	digest, err := artifact.ParseDigest(text)
	if err != nil {
		return artifactError(err)
	}
	if size > c.limit {
		// Another node may have a larger cache.
		return fmt.Errorf("artifact %s has %d bytes, the node's whole cache %d: %w", text, size, c.limit, artifact.ErrCacheFull)
	}
	if c.present(digest, int64(size)) {
		return nil
	}
	_, err = c.files.Ensure(ctx, digest, int64(size), func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		return c.fetch(ctx, text, uint64(offset))
	})
	return artifactError(err)
}

// present records the use in the file's time, from which the next agent, after the boot, decides what to evict.
func (c *Cache) present(digest artifact.Digest, size int64) bool {
	path := c.files.Path(digest)
	info, err := os.Stat(path)
	now := time.Now()
	return err == nil && info.Size() == size && os.Chtimes(path, now, now) == nil
}

// Sealed implements Artifacts. On a mismatch the cache reads the file again and drops it.
func (c *Cache) Sealed(ctx context.Context, text string, size uint64) (*os.File, error) {
	digest, err := artifact.ParseDigest(text)
	if err != nil {
		return nil, artifactError(err)
	}
	if file := c.take(text, size); file != nil {
		return file, nil
	}
	source, err := c.files.Open(digest)
	if errors.Is(err, artifact.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := source.Stat()
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	limit := max(info.Size(), int64(min(size, c.limit)))
	file, have, got, err := SealedCopy(ctx, "artifact", source, limit)
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, err
	}
	if have == text && uint64(got) == size {
		return file, nil
	}
	if have == text {
		// The content matches the digest, but not the announced size.
		return nil, errors.Join(artifactError(fmt.Errorf("artifact %s has %d bytes, not %d: %w", text, got, size, artifact.ErrTruncated)), file.Close())
	}
	wrong := fmt.Errorf("%w: artifact %s has digest %s", ErrDamaged, text, have)
	if err := c.files.Verify(ctx, digest); err != nil && !errors.Is(err, artifact.ErrDigestMismatch) && !errors.Is(err, artifact.ErrNotFound) {
		wrong = errors.Join(wrong, err)
	}
	return nil, errors.Join(wrong, file.Close())
}

// artifactError marks errors of the artifact itself, which every node would get.
func artifactError(err error) error {
	for _, own := range []error{
		artifact.ErrInvalidDigest, artifact.ErrDigestMismatch, artifact.ErrTruncated, artifact.ErrTooLarge,
		artifact.ErrNoResume, kb.ErrNotFound, kb.ErrFailedPrecondition,
	} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", ErrKernel, err)
		}
	}
	return err
}

// Checking an image's digest takes much of a switch's time before the boot. So an idle node on stock keeps a checked,
// sealed copy of the previous kernel: users repeat their applications.
const (
	// readyLimit bounds the memory of the copies, in bytes.
	readyLimit = 64 << 20
	// sameUse is within which the files of one kernel are used.
	sameUse = 2 * time.Second
)

// Prepare copies the artifacts used before the current ones.
func (c *Cache) Prepare(ctx context.Context) error {
	entries, err := c.files.List()
	if err != nil {
		return err
	}
	for _, e := range previous(entries) {
		digest := e.Digest.String()
		file, err := c.Sealed(ctx, digest, uint64(e.Size))
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.ready[digest] = file
		c.mu.Unlock()
	}
	return nil
}

// take returns a ready copy of exactly that size, if there is one.
func (c *Cache) take(digest string, size uint64) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := c.ready[digest]
	if file == nil {
		return nil
	}
	if info, err := file.Stat(); err != nil || uint64(info.Size()) != size {
		return nil
	}
	delete(c.ready, digest)
	return file
}

// previous selects the artifacts of the last use but one, within the size limit.
func previous(entries []artifact.Entry) (list []artifact.Entry) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(x, y artifact.Entry) int { return y.Used.Compare(x.Used) })
	left := int64(readyLimit)
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
