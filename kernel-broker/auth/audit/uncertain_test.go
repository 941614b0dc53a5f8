// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// failing is a file of a disk that loses what it was given: the next sync
// fails, and the one after that passes, as on Linux.
type failing struct {
	file
	mu    sync.Mutex
	fails int
}

func (f *failing) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return unix.EIO
	}
	return f.file.Sync()
}

// clocked is a log with a clock of the test's.
func clocked(t *testing.T, dir string, maxBytes int64) (*Log, *time.Time) {
	t.Helper()
	now := time.Unix(1e9, 0)
	l, err := Open(Options{Dir: dir, MaxBytes: maxBytes, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return l, &now
}

// After a sync that failed nothing is on record before a record says which are
// in doubt, although the next sync of the same file would pass.
func TestAFailedSync(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, now := clocked(t, dir, 0)
	add(t, l, "one")
	if _, err := l.Append(Entry{Kind: "look"}, false); err != nil {
		t.Fatal(err)
	}
	l.file = &failing{file: l.file, fails: 1}
	if _, err := l.Append(Entry{Kind: "decision"}, true); !errors.Is(err, kb.ErrUnavailable) || !errors.Is(err, unix.EIO) {
		t.Errorf("with a failed sync: %v", err)
	}
	for _, wait := range []bool{true, false} {
		if _, err := l.Append(Entry{Kind: "decision"}, wait); !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), "records 2 to 3") {
			t.Errorf("after it: %v", err)
		}
	}
	if l.Head().Seq != 3 {
		t.Errorf("the head is %v", l.Head())
	}
	if _, err := l.Health(); err == nil || !strings.Contains(err.Error(), "records 2 to 3") {
		t.Errorf("the log is well: %v", err)
	}
	*now = now.Add(2 * resumePause)
	add(t, l, "four")
	if text, err := l.Health(); err != nil {
		t.Errorf("%q, %v", text, err)
	}
	shut(t, l)
	r := verify(t, dir)
	if len(r.Problems) != 1 || r.Records != 5 || r.Files != 2 {
		t.Errorf("%+v", r)
	}
	found(t, r, "records 2 to 3 may not be on disk")
}

// When the disk cannot take that either, nothing goes on, and no end of files
// is made of it.
func TestADiskThatStaysBroken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, now := clocked(t, dir, 0)
	add(t, l, "one")
	l.file = &failing{file: l.file, fails: 1}
	if _, err := l.Append(Entry{Kind: "x"}, true); err == nil {
		t.Fatal("a sync that failed was not told")
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(2 * resumePause)
	for range 10 {
		if _, err := l.Append(Entry{Kind: "x"}, true); !errors.Is(err, kb.ErrUnavailable) {
			t.Errorf("on a disk that is gone: %v", err)
		}
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d files", n)
	}
	// The end is the last chance.
	shut(t, l)
	found(t, verify(t, dir), "records 2 to 2 may not be on disk")
}

// A file that cannot be synced when it is full is no better, and those who wait
// at the same time hear of it all.
func TestAFailedSyncOfManyAndOfARotation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, now := clocked(t, dir, 500)
	add(t, l, "one")
	if _, err := l.Append(Entry{Kind: "look", Object: strings.Repeat("x", 150)}, false); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.size = 500
	l.file = &failing{file: l.file, fails: 1}
	l.mu.Unlock()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if _, err := l.Append(Entry{Kind: "x", Object: fmt.Sprint(i)}, true); !errors.Is(err, kb.ErrUnavailable) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	group.Wait()
	*now = now.Add(2 * resumePause)
	add(t, l, "later")
	shut(t, l)
	r := verify(t, dir)
	found(t, r, "records 2 to 2 may not be on disk")
	if len(r.Problems) != 1 || r.Records != 4 {
		t.Errorf("%+v", r)
	}
}

// Records of what changes nothing leave the rest of the disk to the others, and
// the log is ill long before that.
func TestTheReserve(t *testing.T) {
	const size = 100 << 30
	dir := filepath.Join(t.TempDir(), "audit")
	l, now := clocked(t, dir, 0)
	free, whole, failure := uint64(size), uint64(size), error(nil)
	l.o.Space = func(of string) (uint64, uint64, error) {
		if of != dir {
			t.Errorf("asked about %q", of)
		}
		return free, whole, failure
	}
	for _, c := range []struct {
		free, size uint64
		err        error
		room       bool
		words      string
	}{
		{2 << 30, size, nil, true, ""},
		{900 << 20, size, nil, true, "900 MiB free; make room, below 256 MiB"},
		{255 << 20, size, nil, false, "reads and refusals are counted only"},
		{0, size, nil, false, "reads and refusals are counted only"},
		{257 << 20, size, nil, true, "make room"},
		{60 << 20, 1000 << 20, nil, true, "below 50 MiB"},
		{49 << 20, 1000 << 20, nil, false, "counted only"},
		{300 << 20, 1000 << 20, nil, true, ""},
		{0, 0, unix.EIO, true, "how much room there is"},
	} {
		*now = now.Add(measurePause)
		free, whole, failure = c.free, c.size, c.err
		text, err := l.Health()
		if l.HasSpace() != c.room || (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%d of %d free: room %v, health %q, %v", c.free, c.size, l.HasSpace(), text, err)
		}
	}
	// What changes something is recorded to the last byte.
	free, whole, failure = 0, size, nil
	*now = now.Add(measurePause)
	add(t, l, "change")
	shut(t, l)
}
