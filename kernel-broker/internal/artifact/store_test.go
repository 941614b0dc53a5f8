// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var long = bytes.Repeat([]byte("kernel "), 3000)

// world is a store with a clock and something that needs artifacts.
type world struct {
	*Store
	t      *testing.T
	root   string
	now    time.Time
	needed map[string][]string
	err    error
}

func newWorld(t *testing.T, change func(*StoreOptions)) *world {
	t.Helper()
	w := &world{t: t, root: t.TempDir(), now: time.Now(), needed: map[string][]string{}}
	o := StoreOptions{
		Grace: time.Hour, Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
		Needed: func(context.Context) (map[string][]string, error) { return w.needed, w.err },
	}
	if change != nil {
		change(&o)
	}
	var err error
	if w.Store, err = OpenStore(w.root, o); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) put(content []byte) string {
	w.t.Helper()
	digest := digestOf(content)
	if stored, err := w.Put(w.t.Context(), digest, uint64(len(content)), bytes.NewReader(content)); err != nil || !stored {
		w.t.Fatalf("Put = %v, %v", stored, err)
	}
	return digest
}

// breaks yields some bytes and then an error, as a lost connection does.
func breaks(content []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(content), errorReader{})
}

var errLost = errors.New("connection lost")

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errLost }

// Of an upload that broke off or was not what it should be nothing is left, and it starts again.
func TestUploadStartsAgain(t *testing.T) {
	w := newWorld(t, nil)
	digest, size := digestOf(long), uint64(len(long))
	for _, c := range []struct {
		from  io.Reader
		want  error
		words string
	}{
		{breaks(long[:5000]), errLost, ""},
		{breaks([]byte("something else")), errLost, ""},
		{bytes.NewReader(append([]byte("something else"), long[14:]...)), kb.ErrInvalid, "does not match its digest"},
		{bytes.NewReader(append(slices.Clone(long), 'x')), kb.ErrInvalid, "too large"},
		{bytes.NewReader(long[1:]), kb.ErrInvalid, "truncated"},
	} {
		if _, err := w.Put(t.Context(), digest, size, c.from); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Fatalf("Put = %v, want %v", err, c.want)
		}
		if _, err := w.Stat(digest); !errors.Is(err, kb.ErrNotFound) {
			t.Fatalf("Stat = %v", err)
		}
		if have := files(t, w.root); len(have) != 0 {
			t.Fatalf("files %v", have)
		}
	}
	w.put(long)
	if have, err := w.Stat(digest); err != nil || have.Size != size {
		t.Errorf("Stat = %v, %v", have, err)
	}
}

// A file that is damaged on the disk is found, and can be uploaded again.
func TestDamagedFileCanBeUploadedAgain(t *testing.T) {
	w := newWorld(t, nil)
	digest, size := digestOf(long), uint64(len(long))
	put := func() {
		t.Helper()
		if stored, err := w.Put(t.Context(), digest, size, bytes.NewReader(long)); err != nil || !stored {
			t.Fatal(stored, err)
		}
	}
	put()
	if err := w.Check(t.Context(), digest); err != nil {
		t.Errorf("a whole file: %v", err)
	}
	path, _ := w.dir.path(digest)
	damaged := slices.Clone(long)
	damaged[len(damaged)/2] ^= 1
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, damaged, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(t.Context(), digest); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := w.Check(t.Context(), digest); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
	put()
	if err := w.Check(t.Context(), digest); err != nil {
		t.Errorf("uploaded again: %v", err)
	}
}

// lookedAt is a context that does something when it is first asked whether it is over.
type lookedAt struct {
	context.Context
	once sync.Once
	do   func()
}

func (c *lookedAt) Err() error {
	c.once.Do(c.do)
	return c.Context.Err()
}

// A damaged file that is uploaded again while it is read stays.
func TestUploadedWhileItIsChecked(t *testing.T) {
	w := newWorld(t, nil)
	digest, size := digestOf(long), uint64(len(long))
	w.put(long)
	path, _ := w.dir.path(digest)
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, long[1:], 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx := &lookedAt{Context: t.Context(), do: func() {
		if stored, err := w.Put(t.Context(), digest, size, bytes.NewReader(long)); err != nil || !stored {
			t.Error(stored, err)
		}
	}}
	if err := w.Check(ctx, digest); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("what was read: %v", err)
	}
	if err := w.Check(t.Context(), digest); err != nil {
		t.Errorf("what was uploaded: %v", err)
	}
}

// Uploads leave room for the broker's records, which may be on the same disk.
func TestUploadsLeaveRoom(t *testing.T) {
	free := uint64(0)
	w := newWorld(t, func(o *StoreOptions) { o.Space = func(string) (uint64, uint64, error) { return free, 1000, nil } })
	content := []byte(strings.Repeat("a", 50))
	for _, free = range []uint64{0, 99, 149} {
		if _, err := w.Put(t.Context(), digestOf(content), 50, bytes.NewReader(content)); !errors.Is(err, kb.ErrExhausted) {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	free = 150
	w.put(content)
}

// A file that was released makes room at once, unless something needs it or asks for it again.
func TestReleasedFilesMakeRoom(t *testing.T) {
	w := newWorld(t, func(o *StoreOptions) { o.Limit = 100 })
	var digests []string
	for _, c := range []string{"a", "b", "c"} {
		digests = append(digests, w.put([]byte(strings.Repeat(c, 30))))
		if err := w.Release(digests[len(digests)-1]); err != nil {
			t.Fatal(err)
		}
	}
	w.needed[digests[1]] = []string{"run 1"}
	if has, err := w.Has(digests[2], 30); !has || err != nil {
		t.Fatal(has, err)
	}
	w.put([]byte(strings.Repeat("d", 30)))
	for i, want := range []bool{false, true, true} {
		if has, err := w.Has(digests[i], 30); has != want || err != nil {
			t.Errorf("file %d: %v, %v", i, has, err)
		}
	}
	if err := w.Release(digestOf([]byte("no such file"))); err != nil {
		t.Error(err)
	}
}

func TestCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		limit, free, want uint64
	}{
		"the limit":           {1000, 5000, 1000},
		"no limit":            {0, 900, 40 + 900 - 100},
		"the disk is smaller": {1000, 300, 40 + 300 - 100},
		"the disk is full":    {1000, 50, 40},
	} {
		free := uint64(1000)
		w := newWorld(t, func(o *StoreOptions) {
			o.Limit, o.Space = c.limit, func(string) (uint64, uint64, error) { return free, 1000, nil }
		})
		w.put([]byte(strings.Repeat("a", 40)))
		free = c.free
		if got, err := w.Capacity(); got != c.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
}

func TestQuotaAndConcurrentUploads(t *testing.T) {
	w := newWorld(t, func(o *StoreOptions) { o.Limit, o.Uploads = 100, 2 })
	w.put([]byte(strings.Repeat("a", 60)))
	b := []byte(strings.Repeat("b", 41))
	if _, err := w.Put(t.Context(), digestOf(b), 41, bytes.NewReader(b)); !errors.Is(err, kb.ErrExhausted) {
		t.Errorf("over the limit: %v", err)
	}
	// Nothing needs the first one; after its grace period it makes room.
	w.now = w.now.Add(2 * time.Hour)
	w.put(b)
	if has, err := w.Has(digestOf([]byte(strings.Repeat("a", 60))), 60); has || err != nil {
		t.Errorf("Has = %v, %v", has, err)
	}
	var readers []*io.PipeWriter
	var group sync.WaitGroup
	for _, content := range []string{"c", "d"} {
		r, writer := io.Pipe()
		readers = append(readers, writer)
		group.Go(func() {
			if _, err := w.Put(t.Context(), digestOf([]byte(content)), 1, r); err != nil {
				t.Error(err)
			}
		})
	}
	running := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.running) }
	for running() < 2 {
		time.Sleep(time.Millisecond)
	}
	if _, err := w.Put(t.Context(), digestOf([]byte("c")), 1, nil); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("the same twice: %v", err)
	}
	if _, err := w.Put(t.Context(), digestOf([]byte("e")), 1, nil); !errors.As(err, new(*kb.RetryableError)) || !errors.Is(err, kb.ErrExhausted) {
		t.Errorf("a third: %v", err)
	}
	for i, writer := range readers {
		_, _ = io.WriteString(writer, []string{"c", "d"}[i])
		_ = writer.Close()
	}
	group.Wait()
	if w.put([]byte("e")); running() != 0 {
		t.Error("an upload is left")
	}
}

func TestCollect(t *testing.T) {
	w := newWorld(t, nil)
	needed, orphan, asked := w.put([]byte("needed")), w.put([]byte("orphan")), w.put([]byte("asked for"))
	w.needed[needed] = []string{"mitgcm@1"}
	digests := func(files []Stored) (out []string) {
		for _, f := range files {
			out = append(out, f.Digest)
		}
		return out
	}
	if removed, err := w.Collect(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("within the grace: %v, %v", removed, err)
	}
	w.now = w.now.Add(2 * time.Hour)
	if has, err := w.Has(asked, uint64(len("asked for"))); !has || err != nil {
		t.Fatalf("Has = %v, %v", has, err)
	}
	for _, dryRun := range []bool{true, false} {
		removed, err := w.Collect(t.Context(), dryRun)
		got := digests(removed)
		if err != nil || !slices.Equal(got, []string{orphan}) {
			t.Errorf("dry run %v: %v, %v", dryRun, got, err)
		}
	}
	all, used, _, err := w.List(t.Context())
	if err != nil || len(all) != 2 || used != uint64(len("needed")+len("asked for")) {
		t.Errorf("left: %+v, %d bytes, %v", all, used, err)
	}
	if removed, err := w.Collect(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("again: %v, %v", removed, err)
	}
}

// Without a list of needed artifacts nothing is removed.
func TestCollectWithoutNeedsRemovesNothing(t *testing.T) {
	w := newWorld(t, nil)
	orphan := w.put([]byte("orphan"))
	w.now, w.err = w.now.Add(2*time.Hour), errLost
	if removed, err := w.Collect(t.Context(), false); !errors.Is(err, errLost) || removed != nil {
		t.Errorf("Collect = %v, %v", removed, err)
	}
	if _, err := w.Stat(orphan); err != nil {
		t.Error(err)
	}
}

// A file requested after the needs were read, but before its turn, stays.
func TestCollectKeepsRequestedFiles(t *testing.T) {
	w := newWorld(t, nil)
	content := []byte("just in time")
	digest := w.put(content)
	w.now = w.now.Add(2 * time.Hour)
	all, _, _, err := w.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if has, err := w.Has(digest, uint64(len(content))); !has || err != nil {
		t.Fatal(err)
	}
	if gone, err := w.remove(all[0]); gone || err != nil {
		t.Errorf("remove = %v, %v", gone, err)
	}
	if has, err := w.Has(digest, uint64(len(content))); !has || err != nil {
		t.Errorf("Has = %v, %v", has, err)
	}
}
