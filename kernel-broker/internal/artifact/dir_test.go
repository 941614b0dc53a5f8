// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// digestOf hashes content that is in memory.
func digestOf(content []byte) Digest { return Digest{sha256.Sum256(content)} }

func openDir(t *testing.T) *Dir {
	t.Helper()
	// A name with special characters of patterns.
	d, err := OpenDir(filepath.Join(t.TempDir(), "a[b*"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// random returns random content, so that no two tests share a digest.
func random(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.Read(content) // never fails
	return content
}

// files lists every regular file under a directory except the lock.
func files(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Name() != "lock" {
			found = append(found, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantFiles(t *testing.T, root string, want ...string) {
	t.Helper()
	have := files(t, root)
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Fatalf("files %q, want %q", have, want)
	}
}

// put receives content of a size at once.
func (d *Dir) put(ctx context.Context, digest Digest, size int64, r io.Reader) error {
	return d.receive(digest, size, func(p *partial) error { return errors.Join(p.restart(), p.take(ctx, r)) })
}

func TestReceiveAndOpen(t *testing.T) {
	d := openDir(t)
	for _, size := range []int{0, 1, 4096, 100_000} {
		content := random(size)
		digest := digestOf(content)
		if _, err := d.Open(digest); size > 0 && !errors.Is(err, ErrNotFound) {
			t.Fatalf("Open before it is there = %v", err)
		}
		for range 2 { // the second replaces the first
			if err := d.put(t.Context(), digest, int64(size), bytes.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
		file, err := d.Open(digest)
		if err != nil {
			t.Fatal(err)
		}
		have, err := io.ReadAll(file)
		if err = errors.Join(err, file.Close()); err != nil || !bytes.Equal(have, content) {
			t.Fatalf("read back %d bytes, %v", len(have), err)
		}
		entry, err := d.Stat(digest)
		if err != nil || entry.Digest != digest || entry.Size != int64(size) {
			t.Errorf("Stat = %v, %v", entry, err)
		}
		hex := strings.TrimPrefix(digest.String(), "sha256:")
		if want := filepath.Join(d.root, "sha256", hex[:2], hex); d.Path(digest) != want {
			t.Errorf("Path = %s, want %s", d.Path(digest), want)
		}
		if info, err := os.Stat(d.Path(digest)); err != nil || info.Mode() != 0o444 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if err := d.Verify(t.Context(), digest); err != nil {
			t.Errorf("Verify = %v", err)
		}
	}
	if left, err := d.listPartials(); err != nil || len(left) != 0 {
		t.Errorf("partial files %v, %v", left, err)
	}
}

func TestReceiveAdoptsOnlyWhatIsRight(t *testing.T) {
	content := random(10_000)
	digest := digestOf(content)
	broken := errors.New("broken")
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name string
		ctx  context.Context
		size int64
		r    io.Reader
		want error
		left int64 // to go on with; -1 is no file
	}{
		{"one bit", t.Context(), 10_000, bytes.NewReader(append(bytes.Clone(content[:9_999]), content[9_999]^1)), ErrDigestMismatch, -1},
		{"too short", t.Context(), 20_000, bytes.NewReader(content[:9_999]), ErrTruncated, 9_999},
		{"empty", t.Context(), 20_000, bytes.NewReader(nil), ErrTruncated, 0},
		{"a byte too long", t.Context(), 10_000, bytes.NewReader(append(bytes.Clone(content), 0)), ErrTooLarge, -1},
		{"over the limit", t.Context(), 9_999, bytes.NewReader(content), ErrTooLarge, -1},
		{"limit 0", t.Context(), 0, bytes.NewReader(content), ErrTooLarge, -1},
		{"broken at the start", t.Context(), 10_000, iotest.ErrReader(broken), broken, 0},
		{"broken in the middle", t.Context(), 10_000, io.MultiReader(bytes.NewReader(content[:5000]), iotest.ErrReader(broken)), broken, 5000},
		{"broken at the end", t.Context(), 10_000, io.MultiReader(bytes.NewReader(content), iotest.ErrReader(broken)), broken, 10_000},
		{"context ended", ended, 10_000, bytes.NewReader(content), context.Canceled, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openDir(t)
			if err := d.put(c.ctx, digest, c.size, c.r); !errors.Is(err, c.want) {
				t.Fatalf("receive = %v, want %v", err, c.want)
			}
			left := int64(-1)
			if info, err := os.Stat(d.partialPath(digest)); err == nil {
				left = info.Size()
			}
			if _, err := d.Open(digest); left != c.left || !errors.Is(err, ErrNotFound) {
				t.Errorf("%d bytes are left, want %d; Open = %v", left, c.left, err)
			}
		})
	}
}

func TestMismatchNamesBothDigests(t *testing.T) {
	d := openDir(t)
	err := d.put(t.Context(), digestOf([]byte("a")), 1, strings.NewReader("b"))
	for _, digest := range []Digest{digestOf([]byte("a")), digestOf([]byte("b"))} {
		if err == nil || !strings.Contains(err.Error(), digest.String()) {
			t.Errorf("%v does not name %s", err, digest)
		}
	}
}

// damage flips one bit of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 4
	if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o444)); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	d := openDir(t)
	content := random(50_000)
	digest := digestOf(content)
	if err := d.Verify(t.Context(), digest); !errors.Is(err, ErrNotFound) {
		t.Fatalf("Verify of a missing artifact = %v", err)
	}
	put := func() {
		t.Helper()
		if err := d.put(t.Context(), digest, 50_000, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	put()
	damage(t, d.Path(digest))
	if err := d.Verify(t.Context(), digest); !errors.Is(err, ErrDigestMismatch) {
		t.Fatalf("Verify of a flipped bit = %v", err)
	}
	put()
	if err := d.Verify(t.Context(), digest); err != nil {
		t.Fatalf("Verify after repair = %v", err)
	}
	if err := os.Truncate(d.Path(digest), 49_999); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(t.Context(), digest); !errors.Is(err, ErrDigestMismatch) {
		t.Fatalf("Verify of a truncated file = %v", err)
	}
}

func TestListAndRemove(t *testing.T) {
	d := openDir(t)
	want := map[Digest]int64{}
	for i := range 20 {
		content := random(i)
		want[digestOf(content)] = int64(i)
		if err := d.put(t.Context(), digestOf(content), int64(i), bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	foreign := filepath.Join(d.root, "sha256", "ab", "README")
	misplaced := filepath.Join(d.root, "sha256", "zz", strings.Repeat("0", 64))
	for _, path := range []string{foreign, misplaced} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := d.List()
	if err != nil || len(entries) != len(want) {
		t.Fatalf("List = %d entries, %v; want %d", len(entries), err, len(want))
	}
	for i, e := range entries {
		if size, ok := want[e.Digest]; !ok || e.Size != size {
			t.Errorf("entry %v is not wanted", e)
		}
		if i > 0 && entries[i-1].Digest.String() >= e.Digest.String() {
			t.Errorf("entries %d and %d are not in order", i-1, i)
		}
		if err := errors.Join(d.Remove(e.Digest), d.Remove(e.Digest)); err != nil {
			t.Error(err)
		}
	}
	if entries, err := d.List(); err != nil || len(entries) != 0 {
		t.Errorf("List after Remove = %v, %v", entries, err)
	}
}

// TestReadersNeverSeePartialFiles opens an artifact while it is put again and again.
func TestReadersNeverSeePartialFiles(t *testing.T) {
	d := openDir(t)
	content := random(200_000)
	digest := digestOf(content)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := d.put(t.Context(), digest, 200_000, bytes.NewReader(content)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for seen := 0; seen < 100 && !t.Failed(); {
		err := d.Verify(t.Context(), digest)
		if err == nil {
			seen++
		} else if !errors.Is(err, ErrNotFound) || seen > 0 {
			t.Errorf("after %d good reads: %v", seen, err)
		}
	}
	close(stop)
	group.Wait()
}
