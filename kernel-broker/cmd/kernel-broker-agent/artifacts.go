// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/boot"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/sealed"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// artifacts adapts the cache for the booter: it fetches from the broker, and its errors distinguish the kernel's fault
// from the node's.
type artifacts struct {
	cache *artifact.Cache
	limit uint64
	fetch func(ctx context.Context, digest string, offset uint64) (io.ReadCloser, error)
	kept  map[string]func()
	ready ready
}

// Keep implements boot.Artifacts.
func (a *artifacts) Keep(digests ...string) error {
	next := map[string]func(){}
	for _, text := range digests {
		digest, err := artifact.ParseDigest(text)
		if err != nil {
			return blame(err)
		}
		next[text] = a.cache.Pin(digest)
	}
	for _, unpin := range a.kept {
		unpin()
	}
	a.kept = next
	return nil
}

// Ensure implements boot.Artifacts. It does not read present files: Sealed does directly before the load, and reading a
// kernel twice would slow down every switch.
func (a *artifacts) Ensure(ctx context.Context, text string, size uint64) error {
	digest, err := artifact.ParseDigest(text)
	if err != nil {
		return blame(err)
	}
	if size > a.limit {
		// Another node may have a larger cache.
		return fmt.Errorf("artifact %s has %d bytes, the node's whole cache %d: %w", text, size, a.limit, artifact.ErrCacheFull)
	}
	if a.present(digest, int64(size)) {
		return nil
	}
	_, err = a.cache.Ensure(ctx, digest, int64(size), func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		body, err := a.fetch(ctx, text, uint64(offset))
		if errors.Is(err, link.ErrOffset) {
			err = fmt.Errorf("%w: %w", artifact.ErrNoResume, err)
		}
		return body, err
	})
	return blame(err)
}

// present records the use in the file's time, from which the next agent, after the boot, decides what to evict.
func (a *artifacts) present(digest artifact.Digest, size int64) bool {
	path := a.cache.Path(digest)
	info, err := os.Stat(path)
	now := time.Now()
	return err == nil && info.Size() == size && os.Chtimes(path, now, now) == nil
}

// Sealed implements boot.Artifacts. On a mismatch the cache reads the file again and drops it.
func (a *artifacts) Sealed(ctx context.Context, text string, size uint64) (*os.File, error) {
	digest, err := artifact.ParseDigest(text)
	if err != nil {
		return nil, blame(err)
	}
	if file := a.ready.take(text, size); file != nil {
		return file, nil
	}
	source, err := a.cache.Open(digest)
	if errors.Is(err, artifact.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", boot.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := source.Stat()
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	limit := max(info.Size(), int64(min(size, a.limit)))
	file, have, got, err := sealed.Copy(ctx, "artifact", source, limit)
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, err
	}
	if have == text && uint64(got) == size {
		return file, nil
	}
	if have == text {
		// The content matches the digest, but not the announced size.
		return nil, errors.Join(blame(fmt.Errorf("artifact %s has %d bytes, not %d: %w", text, got, size, artifact.ErrTruncated)), file.Close())
	}
	wrong := fmt.Errorf("%w: artifact %s has digest %s", boot.ErrDamaged, text, have)
	if err := a.cache.Verify(ctx, digest); err != nil && !errors.Is(err, artifact.ErrDigestMismatch) && !errors.Is(err, artifact.ErrNotFound) {
		wrong = errors.Join(wrong, err)
	}
	return nil, errors.Join(wrong, file.Close())
}

// blame marks errors of the artifact itself, which every node would get.
func blame(err error) error {
	for _, own := range []error{
		artifact.ErrInvalidDigest, artifact.ErrDigestMismatch, artifact.ErrTruncated, artifact.ErrTooLarge,
		artifact.ErrNoResume, kb.ErrNotFound, kb.ErrFailedPrecondition,
	} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", boot.ErrKernel, err)
		}
	}
	return err
}
