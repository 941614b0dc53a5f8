// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// cached is a cache with artifacts, used one after another that long ago.
func cached(t *testing.T, ages map[string]time.Duration) (*Cache, map[string]string) {
	t.Helper()
	cache, err := artifact.OpenCache(t.TempDir(), 1<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cache.Close() })
	digests := map[string]string{}
	for content, age := range ages {
		digests[content] = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
		digest, err := artifact.ParseDigest(digests[content])
		if err != nil {
			t.Fatal(err)
		}
		path, err := cache.Ensure(t.Context(), digest, int64(len(content)), func(context.Context, int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader([]byte(content))), nil
		})
		at := time.Now().Add(-age)
		if err := errors.Join(err, os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	return NewCache(cache, 1<<20, nil), digests
}

// The previous kernel is kept ready with all its files, and the checked copy is what is loaded.
func TestReadyCopies(t *testing.T) {
	t.Parallel()
	a, digests := cached(t, map[string]time.Duration{
		"stock": 0, "image": time.Minute, "initrd": time.Minute + time.Second, "older": time.Hour,
	})
	if err := a.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(a.ready) != 2 || a.ready[digests["image"]] == nil || a.ready[digests["initrd"]] == nil {
		t.Fatalf("ready: %v", a.ready)
	}
	digest, _ := artifact.ParseDigest(digests["image"])
	if err := os.WriteFile(a.files.Path(digest), []byte("imagf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sealed(t.Context(), digests["image"], 4); err == nil {
		t.Error("a copy of another size is taken")
	}
	a, digests = cached(t, map[string]time.Duration{"stock": 0, "image": time.Minute})
	if err := a.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Clean(a.files.Path(digest)), []byte("imagf"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := a.Sealed(t.Context(), digests["image"], 5)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "image" {
		t.Errorf("loaded %q, %v", text, err)
	}
	if _, err := a.Sealed(t.Context(), digests["image"], 5); !errors.Is(err, ErrDamaged) {
		t.Errorf("a copy is used twice: %v", err)
	}
}
