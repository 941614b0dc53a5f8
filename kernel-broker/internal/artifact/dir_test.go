// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	digests "github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// digestOf hashes content that is in memory.
func digestOf(content []byte) string { return digests.Of(content) }

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

// put receives content of a size at once.
func (d *Dir) put(ctx context.Context, digest string, size int64, r io.Reader) error {
	return d.Receive(ctx, digest, uint64(size), r)
}

// check compares the whole file with its digest.
func (d *Dir) check(digest string) error {
	path, err := d.path(digest)
	if err != nil {
		return err
	}
	have, _, err := digests.File(path)
	if err == nil && have != digest {
		err = mismatch(digest, have)
	}
	return err
}

func TestReceiveAndOpen(t *testing.T) {
	d := openDir(t)
	for _, size := range []int{0, 1, 4096, 100_000} {
		content := random(size)
		digest := digestOf(content)
		if _, err := d.Open(digest); size > 0 && !errors.Is(err, kb.ErrNotFound) {
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
		if err != nil || entry.Digest != digest || entry.Size != uint64(size) {
			t.Errorf("Stat = %v, %v", entry, err)
		}
		hex := strings.TrimPrefix(digest, "sha256:")
		if info, err := os.Stat(filepath.Join(d.root, "sha256", hex[:2], hex)); err != nil || info.Mode() != 0o444 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	if have := files(t, d.root); len(have) != 4 {
		t.Errorf("files %v", have)
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
	}{
		{"one bit", t.Context(), 10_000, bytes.NewReader(append(bytes.Clone(content[:9_999]), content[9_999]^1)), kb.ErrInvalid},
		{"too short", t.Context(), 20_000, bytes.NewReader(content[:9_999]), kb.ErrInvalid},
		{"empty", t.Context(), 20_000, bytes.NewReader(nil), kb.ErrInvalid},
		{"a byte too long", t.Context(), 10_000, bytes.NewReader(append(bytes.Clone(content), 0)), kb.ErrInvalid},
		{"over the limit", t.Context(), 9_999, bytes.NewReader(content), kb.ErrInvalid},
		{"limit 0", t.Context(), 0, bytes.NewReader(content), kb.ErrInvalid},
		{"broken at the start", t.Context(), 10_000, iotest.ErrReader(broken), broken},
		{"broken in the middle", t.Context(), 10_000, io.MultiReader(bytes.NewReader(content[:5000]), iotest.ErrReader(broken)), broken},
		{"broken at the end", t.Context(), 10_000, io.MultiReader(bytes.NewReader(content), iotest.ErrReader(broken)), broken},
		{"context ended", ended, 10_000, bytes.NewReader(content), context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openDir(t)
			if err := d.put(c.ctx, digest, c.size, c.r); !errors.Is(err, c.want) {
				t.Fatalf("Receive = %v, want %v", err, c.want)
			}
			if left := files(t, d.root); len(left) != 0 {
				t.Errorf("left are %v", left)
			}
			if _, err := d.Open(digest); !errors.Is(err, kb.ErrNotFound) {
				t.Errorf("Open = %v", err)
			}
		})
	}
}

func TestMismatchNamesBothDigests(t *testing.T) {
	d := openDir(t)
	err := d.put(t.Context(), digestOf([]byte("a")), 1, strings.NewReader("b"))
	for _, digest := range []string{digestOf([]byte("a")), digestOf([]byte("b"))} {
		if err == nil || !strings.Contains(err.Error(), digest) {
			t.Errorf("%v does not name %s", err, digest)
		}
	}
}

// What is no digest names no file.
func TestPathsComeFromDigestsOnly(t *testing.T) {
	d := openDir(t)
	digest := digestOf([]byte("x"))
	for _, bad := range []string{"", "sha256:", digest[7:], "sha256:../" + digest[10:], "sha256:" + strings.Repeat("/", 64), "sha256:" + strings.ToUpper(digest[7:])} {
		_, opening := d.Open(bad)
		_, describing := d.Stat(bad)
		for what, err := range map[string]error{
			"Open": opening, "Stat": describing, "Remove": d.Remove(bad), "Touch": d.Touch(bad, time.Now()),
			"Receive": d.put(t.Context(), bad, 1, strings.NewReader("x")),
		} {
			if !errors.Is(err, kb.ErrInvalid) {
				t.Errorf("%s(%.80q) = %v", what, bad, err)
			}
		}
	}
	if have := files(t, d.root); len(have) != 0 {
		t.Errorf("files %v", have)
	}
}

func TestListAndRemove(t *testing.T) {
	d := openDir(t)
	want := map[string]uint64{}
	for i := range 20 {
		content := random(i)
		want[digestOf(content)] = uint64(i)
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
		if i > 0 && entries[i-1].Digest >= e.Digest {
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
		err := d.check(digest)
		if err == nil {
			seen++
		} else if !errors.Is(err, fs.ErrNotExist) || seen > 0 {
			t.Errorf("after %d good reads: %v", seen, err)
		}
	}
	close(stop)
	group.Wait()
}
