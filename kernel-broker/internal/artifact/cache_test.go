// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func openCache(t *testing.T, root string, limit int64) *Cache {
	t.Helper()
	c, err := OpenCache(root, limit, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // some tests have closed it
	return c
}

// source serves one artifact and records requests.
type source struct {
	content []byte
	digest  Digest
	offsets []int64
	err     error // of the next fetch
	cut     int   // bytes after which the next fetch ends, if not 0
}

func newSource(size int) *source {
	content := random(size)
	return &source{content: content, digest: digestOf(content)}
}

func (s *source) fetch(_ context.Context, offset int64) (io.ReadCloser, error) {
	s.offsets = append(s.offsets, offset)
	err, cut := s.err, s.cut
	s.err, s.cut = nil, 0
	if err != nil {
		return nil, err
	}
	rest := s.content[offset:]
	if cut > 0 {
		rest = rest[:cut]
	}
	return io.NopCloser(bytes.NewReader(rest)), nil
}

func (s *source) ensure(t *testing.T, c *Cache) error {
	t.Helper()
	path, err := c.Ensure(t.Context(), s.digest, int64(len(s.content)), s.fetch)
	if err != nil {
		if path != "" {
			t.Errorf("Ensure failed and names %s", path)
		}
		return err
	}
	have, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(have, s.content) {
		t.Errorf("the artifact's file has %d bytes, %v", len(have), err)
	}
	return nil
}

func (s *source) mustEnsure(t *testing.T, c *Cache) {
	t.Helper()
	if err := s.ensure(t, c); err != nil {
		t.Fatal(err)
	}
}

// wantCached checks which sources are in the cache, and its byte count.
func wantCached(t *testing.T, c *Cache, want ...*source) {
	t.Helper()
	entries, err := c.List()
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%d artifacts, %v; want %d", len(entries), err, len(want))
	}
	var size int64
	for _, s := range want {
		if _, err := os.Stat(c.Path(s.digest)); err != nil {
			t.Errorf("artifact of %d bytes is missing: %v", len(s.content), err)
		}
		size += int64(len(s.content))
	}
	if used(t, c) != size {
		t.Errorf("used = %d, want %d", used(t, c), size)
	}
}

// used is the size of the cache; running downloads count in full.
func used(t *testing.T, c *Cache) int64 {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	u, err := c.dir.usage(c.reserved, Digest{})
	if err != nil {
		t.Error(err)
	}
	return u.bytes
}

func TestEnsureFetchesOnce(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	for _, s := range []*source{newSource(0), newSource(1), newSource(500)} {
		s.mustEnsure(t, c)
		s.mustEnsure(t, c)
		if len(s.offsets) != 1 || s.offsets[0] != 0 {
			t.Errorf("%d bytes: fetched at %v", len(s.content), s.offsets)
		}
	}
}

func TestLeastRecentlyUsedIsRemoved(t *testing.T) {
	root := t.TempDir()
	c := openCache(t, root, 300)
	s1, s2, s3, s4, s5 := newSource(100), newSource(101), newSource(99), newSource(98), newSource(90)
	s1.mustEnsure(t, c)
	s2.mustEnsure(t, c)
	s3.mustEnsure(t, c)
	wantCached(t, c, s1, s2, s3)
	s1.mustEnsure(t, c) // used again, so s2 is the oldest
	s4.mustEnsure(t, c)
	wantCached(t, c, s1, s3, s4)

	// The order survives a restart.
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = openCache(t, root, 300)
	wantCached(t, c, s1, s3, s4)
	s5.mustEnsure(t, c)
	wantCached(t, c, s1, s4, s5)
	if len(s1.offsets) != 1 {
		t.Errorf("fetched again after a restart: %v", s1.offsets)
	}
}

func TestPinnedStays(t *testing.T) {
	c := openCache(t, t.TempDir(), 300)
	s1, s2, s3, s4 := newSource(100), newSource(101), newSource(99), newSource(150)
	unpin1 := c.Pin(s1.digest) // before it is there
	s1.mustEnsure(t, c)
	s2.mustEnsure(t, c)
	s3.mustEnsure(t, c)
	unpin2, again2 := c.Pin(s2.digest), c.Pin(s2.digest)
	err := s4.ensure(t, c)
	if !errors.Is(err, ErrCacheFull) {
		t.Fatalf("Ensure = %v, want ErrCacheFull", err)
	}
	wantCached(t, c, s1, s2, s3) // and nothing was removed needlessly
	if len(s4.offsets) != 0 {
		t.Error("fetched without room")
	}
	unpin2()
	unpin2() // the second call must not release the other pin
	if err := s4.ensure(t, c); !errors.Is(err, ErrCacheFull) {
		t.Fatalf("Ensure with one of two pins left = %v", err)
	}
	again2()
	s4.mustEnsure(t, c)
	wantCached(t, c, s1, s4)
	unpin1()
	s3.mustEnsure(t, c)
	wantCached(t, c, s3, s4)
}

func TestSizeIsExact(t *testing.T) {
	c := openCache(t, t.TempDir(), 300)
	s := newSource(200)
	for _, size := range []int64{-1, 301} {
		if _, err := c.Ensure(t.Context(), s.digest, size, s.fetch); !errors.Is(err, ErrTooLarge) || len(s.offsets) > 0 {
			t.Errorf("size %d: %v, fetched at %v", size, err, s.offsets)
		}
	}
	if _, err := c.Ensure(t.Context(), s.digest, 199, s.fetch); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a byte more than announced = %v", err)
	}
	wantFiles(t, c.dir.root)
	if _, err := c.Ensure(t.Context(), s.digest, 201, s.fetch); !errors.Is(err, ErrTruncated) {
		t.Errorf("a byte less than announced = %v", err)
	}
	s.mustEnsure(t, c)
	wantCached(t, c, s)
}

func TestDamagedArtifactIsFetchedAgain(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(400)
	defer c.Pin(s.digest)() // a pin does not protect damage
	s.mustEnsure(t, c)
	damage(t, c.Path(s.digest))
	s.mustEnsure(t, c)
	if len(s.offsets) != 2 {
		t.Errorf("fetched at %v, want twice", s.offsets)
	}
	damage(t, c.Path(s.digest))
	if err := c.Verify(t.Context(), s.digest); !errors.Is(err, ErrDigestMismatch) {
		t.Fatalf("Verify = %v", err)
	}
	wantCached(t, c)
	if err := c.Verify(t.Context(), s.digest); !errors.Is(err, ErrNotFound) {
		t.Fatalf("Verify after removal = %v", err)
	}
	s.mustEnsure(t, c)
	wantCached(t, c, s)
	if err := os.Remove(c.Path(s.digest)); err != nil { // by hand
		t.Fatal(err)
	}
	s.mustEnsure(t, c)
	wantCached(t, c, s)
}

func TestWrongContentIsNotKept(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(400)
	wrong := bytes.Clone(s.content)
	wrong[7] ^= 1
	_, err := c.Ensure(t.Context(), s.digest, 400, func(context.Context, int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(wrong)), nil
	})
	if !errors.Is(err, ErrDigestMismatch) {
		t.Fatalf("Ensure = %v", err)
	}
	wantFiles(t, c.dir.root)
	wantCached(t, c)
}

func TestRestartDropsTemporaryFiles(t *testing.T) {
	root := t.TempDir()
	c := openCache(t, root, 1000)
	s := newSource(400)
	s.mustEnsure(t, c)
	if _, err := OpenCache(root, 1000, quiet); !errors.Is(err, ErrInUse) {
		t.Fatalf("second OpenCache = %v, want ErrInUse", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "partial/left"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = openCache(t, root, 1000)
	wantCached(t, c, s)
	if have := files(t, root); len(have) != 1 {
		t.Errorf("files %v", have)
	}
}

func TestConcurrentEnsureFetchesOnce(t *testing.T) {
	c := openCache(t, t.TempDir(), 1<<20)
	s := newSource(100_000)
	var fetches atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			path, err := c.Ensure(t.Context(), s.digest, 100_000, func(context.Context, int64) (io.ReadCloser, error) {
				fetches.Add(1)
				time.Sleep(20 * time.Millisecond)
				return io.NopCloser(bytes.NewReader(s.content)), nil
			})
			if err != nil || path != c.Path(s.digest) {
				t.Errorf("Ensure = %q, %v", path, err)
			}
		})
	}
	group.Wait()
	if fetches.Load() != 1 {
		t.Errorf("%d fetches", fetches.Load())
	}
}

// A completed download counts once: counted twice, it would evict or reject others.
func TestCompletedDownloadCountsOnce(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(600)
	if err := c.reserve(s.digest, 600); err != nil {
		t.Fatal(err)
	}
	if err := c.dir.put(t.Context(), s.digest, 600, bytes.NewReader(s.content)); err != nil {
		t.Fatal(err)
	}
	if used(t, c) != 600 {
		t.Errorf("used = %d before the reservation ends", used(t, c))
	}
	c.release(s.digest)
	if used(t, c) != 600 {
		t.Errorf("used = %d after it", used(t, c))
	}
}

// TestManyDigestsAtOnce keeps a small cache busy: no artifact is damaged, no pinned one is removed, and the limit holds
// at every moment.
func TestManyDigestsAtOnce(t *testing.T) {
	const limit = 1000
	c := openCache(t, t.TempDir(), limit)
	var sources []*source
	for i := range 12 {
		sources = append(sources, newSource(100+i))
	}
	var group sync.WaitGroup
	for worker := range 6 {
		group.Go(func() {
			for i := range 60 {
				s := sources[(worker*5+i*7)%len(sources)]
				unpin := c.Pin(s.digest)
				path, err := c.Ensure(t.Context(), s.digest, int64(len(s.content)), func(_ context.Context, offset int64) (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader(s.content[offset:])), nil
				})
				if err != nil {
					t.Error(err)
				} else if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, s.content) {
					t.Errorf("a pinned artifact has %d bytes, %v", len(have), err)
				}
				if used := used(t, c); used > limit {
					t.Errorf("%d bytes used", used)
				}
				unpin()
			}
		})
	}
	group.Wait()
	var size int64
	entries, err := c.List()
	for _, e := range entries {
		size += e.Size
	}
	if err != nil || size != used(t, c) || size > limit {
		t.Errorf("%d bytes on disk, %d counted, %v", size, used(t, c), err)
	}
}
