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
)

var long = bytes.Repeat([]byte("kernel "), 3000)

// world is a store with a clock and something that needs artifacts.
type world struct {
	*Store
	t      *testing.T
	root   string
	now    time.Time
	needed map[Digest][]string
	err    error
}

func newWorld(t *testing.T, change func(*StoreOptions)) *world {
	t.Helper()
	w := &world{t: t, root: t.TempDir(), now: time.Now(), needed: map[Digest][]string{}}
	o := StoreOptions{
		Grace: time.Hour, Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
		Needed: func(context.Context) (map[Digest][]string, error) { return w.needed, w.err },
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

func (w *world) put(content []byte) Digest {
	w.t.Helper()
	digest := digestOf(content)
	if stored, err := w.Put(w.t.Context(), digest, int64(len(content)), 0, bytes.NewReader(content)); err != nil || !stored {
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

func TestInterruptedUploadResumes(t *testing.T) {
	w := newWorld(t, nil)
	digest, size := digestOf(long), int64(len(long))
	for _, step := range []struct{ offset, until int64 }{{0, 5000}, {5000, 9000}, {7000, 12000}} {
		_, err := w.Put(t.Context(), digest, size, step.offset, breaks(long[step.offset:step.until]))
		if !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		if stored, have, err := w.State(digest); stored || have != step.until || err != nil {
			t.Fatalf("State = %v, %d, %v, want %d", stored, have, err, step.until)
		}
	}
	if _, err := w.Put(t.Context(), digest, size, 12001, bytes.NewReader(nil)); !errors.Is(err, ErrOffset) {
		t.Errorf("offset beyond the received data: %v", err)
	}
	// Another process may have received the first part.
	again, err := OpenStore(w.root, w.o)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := again.Put(t.Context(), digest, size, 12000, bytes.NewReader(long[12000:])); err != nil || !stored {
		t.Fatalf("Put = %v, %v", stored, err)
	}
	if stored, have, err := again.State(digest); !stored || have != size || err != nil {
		t.Errorf("State = %v, %d, %v", stored, have, err)
	}
	if err := again.dir.Verify(t.Context(), digest); err != nil {
		t.Error(err)
	}
}

func TestMismatchedUploadRestarts(t *testing.T) {
	w := newWorld(t, nil)
	digest, size := digestOf(long), int64(len(long))
	if _, err := w.Put(t.Context(), digest, size, 0, breaks([]byte("something else"))); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	_, err := w.Put(t.Context(), digest, size, 14, bytes.NewReader(long[14:]))
	if !errors.Is(err, ErrDigestMismatch) {
		t.Fatal(err)
	}
	if stored, have, err := w.State(digest); stored || have != 0 || err != nil {
		t.Errorf("State = %v, %d, %v", stored, have, err)
	}
	if _, err := w.Put(t.Context(), digest, size, 0, bytes.NewReader(append(slices.Clone(long), 'x'))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too long: %v", err)
	}
	if _, err := w.Put(t.Context(), digest, size, 0, bytes.NewReader(long[1:])); !errors.Is(err, ErrTruncated) {
		t.Errorf("too short: %v", err)
	}
}

// A file that is damaged on the disk is found, and can be uploaded again.
func TestDamagedFileCanBeUploadedAgain(t *testing.T) {
	w := newWorld(t, nil)
	digest, size := digestOf(long), int64(len(long))
	put := func() {
		t.Helper()
		if stored, err := w.Put(t.Context(), digest, size, 0, bytes.NewReader(long)); err != nil || !stored {
			t.Fatal(stored, err)
		}
	}
	put()
	if err := w.Check(t.Context(), digest); err != nil {
		t.Errorf("a whole file: %v", err)
	}
	path := w.dir.Path(digest)
	damaged := slices.Clone(long)
	damaged[len(damaged)/2] ^= 1
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, damaged, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(t.Context(), digest); !errors.Is(err, ErrDigestMismatch) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := w.Check(t.Context(), digest); !errors.Is(err, ErrNotFound) {
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
	digest, size := digestOf(long), int64(len(long))
	w.put(long)
	path := w.dir.Path(digest)
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, long[1:], 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx := &lookedAt{Context: t.Context(), do: func() {
		if stored, err := w.Put(t.Context(), digest, size, 0, bytes.NewReader(long)); err != nil || !stored {
			t.Error(stored, err)
		}
	}}
	if err := w.Check(ctx, digest); !errors.Is(err, ErrDigestMismatch) {
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
		if _, err := w.Put(t.Context(), digestOf(content), 50, 0, bytes.NewReader(content)); !errors.Is(err, ErrDiskFull) {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	free = 150
	w.put(content)
}

func TestQuotaAndConcurrentUploads(t *testing.T) {
	w := newWorld(t, func(o *StoreOptions) { o.Limit, o.Uploads = 100, 2 })
	w.put([]byte(strings.Repeat("a", 60)))
	b := []byte(strings.Repeat("b", 41))
	if _, err := w.Put(t.Context(), digestOf(b), 41, 0, bytes.NewReader(b)); !errors.Is(err, ErrStoreFull) {
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
			if _, err := w.Put(t.Context(), digestOf([]byte(content)), 1, 0, r); err != nil {
				t.Error(err)
			}
		})
	}
	running := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.running) }
	for running() < 2 {
		time.Sleep(time.Millisecond)
	}
	if _, err := w.Put(t.Context(), digestOf([]byte("c")), 1, 0, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("the same twice: %v", err)
	}
	if _, err := w.Put(t.Context(), digestOf([]byte("e")), 1, 0, nil); !errors.Is(err, ErrUploads) {
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
	broken := digestOf(long)
	if _, err := w.Put(t.Context(), broken, int64(len(long)), 0, breaks(long[:10])); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	w.needed[needed] = []string{"mitgcm@1"}
	digests := func(files []Stored) (out []Digest) {
		for _, f := range files {
			out = append(out, f.Digest)
		}
		return out
	}
	if removed, err := w.Collect(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("within the grace: %v, %v", removed, err)
	}
	w.now = w.now.Add(2 * time.Hour)
	if has, err := w.Has(asked, int64(len("asked for"))); !has || err != nil {
		t.Fatalf("Has = %v, %v", has, err)
	}
	for _, dryRun := range []bool{true, false} {
		removed, err := w.Collect(t.Context(), dryRun)
		got := digests(removed)
		if err != nil || len(got) != 2 || !slices.Contains(got, orphan) || !slices.Contains(got, broken) {
			t.Errorf("dry run %v: %v, %v", dryRun, got, err)
		}
	}
	all, used, err := w.List(t.Context())
	if err != nil || len(all) != 2 || used != int64(len("needed")+len("asked for")) {
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
	if _, err := os.Stat(w.dir.Path(orphan)); err != nil {
		t.Error(err)
	}
}

// A file requested after the needs were read, but before its turn, stays.
func TestCollectKeepsRequestedFiles(t *testing.T) {
	w := newWorld(t, nil)
	content := []byte("just in time")
	digest := w.put(content)
	w.now = w.now.Add(2 * time.Hour)
	all, _, err := w.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if has, err := w.Has(digest, int64(len(content))); !has || err != nil {
		t.Fatal(err)
	}
	if gone, err := w.remove(all[0]); gone || err != nil {
		t.Errorf("remove = %v, %v", gone, err)
	}
	if has, err := w.Has(digest, int64(len(content))); !has || err != nil {
		t.Errorf("Has = %v, %v", has, err)
	}
}
