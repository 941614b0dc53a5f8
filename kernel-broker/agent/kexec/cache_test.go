// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	digests "github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// source has the artifacts of a broker, and records what is fetched.
type source struct {
	content map[string][]byte
	fetched []string
	// next replaces the content of the next fetch.
	next io.Reader
}

// add returns the digest of new random content.
func (s *source) add(size int) string {
	content := make([]byte, size)
	_, _ = rand.Read(content) // never fails
	return s.put(content)
}

func (s *source) put(content []byte) string {
	digest := digests.Of(content)
	s.content[digest] = content
	return digest
}

func (s *source) fetch(_ context.Context, digest string) (io.ReadCloser, error) {
	s.fetched = append(s.fetched, digest)
	from := s.next
	if s.next = nil; from == nil {
		content, has := s.content[digest]
		if !has {
			return nil, kb.ErrNotFound
		}
		from = bytes.NewReader(content)
	}
	return io.NopCloser(from), nil
}

// testCache is a cache before a source.
type testCache struct {
	*Cache
	*source
	t    *testing.T
	root string
}

func openCache(t *testing.T, limit uint64) *testCache {
	t.Helper()
	c := &testCache{source: &source{content: map[string][]byte{}}, t: t, root: t.TempDir()}
	c.open(limit)
	t.Cleanup(func() { _ = c.Close() }) // some tests have closed it
	return c
}

func (c *testCache) open(limit uint64) {
	c.t.Helper()
	var err error
	if c.Cache, err = OpenCache(c.root, limit, c.source.fetch, slog.New(slog.DiscardHandler)); err != nil {
		c.t.Fatal(err)
	}
}

// ensure also looks at the bytes.
func (c *testCache) ensure(digest string) error {
	c.t.Helper()
	content := c.content[digest]
	if err := c.Ensure(c.t.Context(), digest, uint64(len(content))); err != nil {
		return err
	}
	file, err := c.Sealed(c.t.Context(), digest, uint64(len(content)))
	if err != nil {
		return err
	}
	have, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil || !bytes.Equal(have, content) {
		c.t.Errorf("the artifact has %d bytes, %v", len(have), err)
	}
	return nil
}

func (c *testCache) mustEnsure(list ...string) {
	c.t.Helper()
	for _, digest := range list {
		if err := c.ensure(digest); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *testCache) path(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return filepath.Join(c.root, "sha256", hex[:2], hex)
}

// holds checks which artifacts are in the cache, and that no other file is.
func (c *testCache) holds(want ...string) {
	c.t.Helper()
	var have []string
	err := filepath.WalkDir(c.root, func(_ string, file fs.DirEntry, err error) error {
		if err == nil && file.Type().IsRegular() && file.Name() != "lock" {
			have = append(have, "sha256:"+file.Name())
		}
		return err
	})
	slices.Sort(want)
	slices.Sort(have)
	if err != nil || !slices.Equal(have, want) {
		c.t.Fatalf("the cache holds %q, %v; want %q", have, err, want)
	}
}

func TestEnsureFetchesOnce(t *testing.T) {
	t.Parallel()
	c := openCache(t, 1000)
	for _, size := range []int{0, 1, 500} {
		c.fetched = nil
		digest := c.add(size)
		c.mustEnsure(digest, digest)
		if len(c.fetched) != 1 {
			t.Errorf("%d bytes: fetched %v", size, c.fetched)
		}
	}
}

func TestLeastRecentlyUsedIsRemoved(t *testing.T) {
	t.Parallel()
	c := openCache(t, 300)
	a1, a2, a3, a4, a5 := c.add(100), c.add(101), c.add(99), c.add(98), c.add(90)
	c.mustEnsure(a1, a2, a3)
	c.holds(a1, a2, a3)
	c.mustEnsure(a1) // used again, so a2 is the oldest
	c.mustEnsure(a4)
	c.holds(a1, a3, a4)

	// The order survives a restart.
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.open(300)
	c.holds(a1, a3, a4)
	c.mustEnsure(a5)
	c.holds(a1, a4, a5)
	if len(c.fetched) != 5 {
		t.Errorf("fetched %v", c.fetched)
	}
}

// What the kernel in the making needs stays, and nothing is removed needlessly.
func TestKeptStays(t *testing.T) {
	t.Parallel()
	c := openCache(t, 300)
	a1, a2, a3, a4 := c.add(100), c.add(101), c.add(99), c.add(150)
	c.Keep(a1, a2) // before they are there
	c.mustEnsure(a1, a2, a3)
	c.fetched = nil
	if err := c.ensure(a4); !errors.Is(err, kb.ErrExhausted) || errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "cache is full") {
		t.Fatalf("Ensure = %v", err)
	}
	c.holds(a1, a2, a3)
	if len(c.fetched) != 0 {
		t.Error("fetched without room")
	}
	c.Keep(a1)
	c.mustEnsure(a4)
	c.holds(a1, a4)
	c.Keep(a4)
	c.mustEnsure(a3)
	c.holds(a3, a4)
}

func TestSizeIsExact(t *testing.T) {
	t.Parallel()
	c := openCache(t, 300)
	digest := c.add(200)
	if err := c.Ensure(t.Context(), digest, 301); !errors.Is(err, kb.ErrExhausted) || errors.Is(err, ErrKernel) || len(c.fetched) > 0 {
		t.Errorf("larger than the cache: %v, fetched %v", err, c.fetched)
	}
	if err := c.Ensure(t.Context(), digest, 199); !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a byte more than announced = %v", err)
	}
	if err := c.Ensure(t.Context(), digest, 201); !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("a byte less than announced = %v", err)
	}
	c.holds()
	c.mustEnsure(digest)
	c.holds(digest)
}

// Whose fault it is that an artifact cannot be had, and that nothing is left of it.
func TestFaultOfFetch(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		spoil  func(c *testCache, digest string)
		kernel bool
	}{
		"one bit":       {func(c *testCache, digest string) { c.content[digest][7] ^= 1 }, true},
		"unknown":       {func(c *testCache, digest string) { c.next = iotest.ErrReader(kb.ErrNotFound) }, true},
		"broken off":    {func(c *testCache, digest string) { c.next = broken(c.content[digest][:50]) }, false},
		"not connected": {func(c *testCache, _ string) { c.next = broken(nil) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCache(t, 300)
			digest := c.add(100)
			f.spoil(c, digest)
			if err := c.Ensure(t.Context(), digest, 100); err == nil || errors.Is(err, ErrKernel) != f.kernel || errors.Is(err, kb.ErrUnavailable) == f.kernel {
				t.Errorf("Ensure = %v", err)
			}
			c.holds()
		})
	}
}

// broken yields some bytes and then the error of a lost connection.
func broken(content []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(content), iotest.ErrReader(fmt.Errorf("the broker went away: %w", kb.ErrUnavailable)))
}

// A fetch that broke off starts again.
func TestFetchAgain(t *testing.T) {
	t.Parallel()
	c := openCache(t, 300)
	digest := c.add(200)
	c.next = broken(c.content[digest][:123])
	if err := c.ensure(digest); !errors.Is(err, kb.ErrUnavailable) {
		t.Fatalf("Ensure = %v", err)
	}
	c.mustEnsure(digest)
	c.holds(digest)
}

// replace puts other content into an artifact's file.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o444)); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedArtifactIsFetchedAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, path string, content []byte){
		"one bit": func(t *testing.T, path string, content []byte) {
			t.Helper()
			content[200] ^= 4
			replace(t, path, content)
		},
		"truncated": func(t *testing.T, path string, content []byte) { t.Helper(); replace(t, path, content[:399]) },
		"longer":    func(t *testing.T, path string, content []byte) { t.Helper(); replace(t, path, append(content, 0)) },
		"empty":     func(t *testing.T, path string, _ []byte) { t.Helper(); replace(t, path, nil) },
		"removed": func(t *testing.T, path string, _ []byte) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCache(t, 500) // no room for two
			digest := c.add(400)
			c.Keep(digest) // which does not protect damage
			c.mustEnsure(digest)
			damage(t, c.path(digest), bytes.Clone(c.content[digest]))
			if _, err := c.Sealed(t.Context(), digest, 400); !errors.Is(err, ErrDamaged) {
				t.Fatalf("Sealed = %v", err)
			}
			c.holds()
			c.mustEnsure(digest)
			// Found before the load.
			damage(t, c.path(digest), bytes.Clone(c.content[digest]))
			if err := c.ensure(digest); err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			c.mustEnsure(digest)
			c.holds(digest)
			if len(c.fetched) != 3 {
				t.Errorf("fetched %d times", len(c.fetched))
			}
		})
	}
}

// A killed agent leaves what it was receiving.
func TestRestartDropsTemporaryFiles(t *testing.T) {
	t.Parallel()
	c := openCache(t, 1000)
	digest := c.add(400)
	c.mustEnsure(digest)
	if _, err := OpenCache(c.root, 1000, nil, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Fatalf("second OpenCache = %v, want ErrInUse", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(c.path(digest))
	for _, left := range []string{filepath.Join("sha256", name[:2], "."+name+".123"), "partial/" + name} {
		path := filepath.Join(c.root, left)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c.open(1000)
	c.holds(digest)
}

// cached is a cache with artifacts, used one after another that long ago.
func cached(t *testing.T, ages map[string]time.Duration) (*testCache, map[string]string) {
	t.Helper()
	c := openCache(t, 1<<20)
	list := map[string]string{}
	for content, age := range ages {
		digest := c.put([]byte(content))
		c.mustEnsure(digest)
		at := time.Now().Add(-age)
		if err := os.Chtimes(c.path(digest), at, at); err != nil {
			t.Fatal(err)
		}
		list[content] = digest
	}
	return c, list
}

// The previous kernel is kept ready with all its files, and the checked copy is what is loaded.
func TestReadyCopies(t *testing.T) {
	t.Parallel()
	c, list := cached(t, map[string]time.Duration{
		"stock": 0, "image": time.Minute, "initrd": time.Minute + time.Second, "older": time.Hour,
	})
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.ready) != 2 || c.ready[sized{list["image"], 5}] == nil || c.ready[sized{list["initrd"], 6}] == nil {
		t.Fatalf("ready: %v", c.ready)
	}
	replace(t, c.path(list["image"]), []byte("imagf"))
	if _, err := c.Sealed(t.Context(), list["initrd"], 4); err == nil {
		t.Error("a copy of another size is taken")
	}
	file, err := c.Sealed(t.Context(), list["image"], 5)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "image" {
		t.Errorf("loaded %q, %v", text, err)
	}
	if _, err := c.Sealed(t.Context(), list["image"], 5); !errors.Is(err, ErrDamaged) {
		t.Errorf("a copy is used twice: %v", err)
	}
}
