// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const golden = `kernel-broker-snapshot 1
generated 2026-11-20T12:00:00Z
profile broken 1 1 quarantined
profile mitgcm 3 1,2,3 available
profile stock 1 1 available
end
`

func TestSnapshotText(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("stock", 1))
	apply(t, c, "b", profile("mitgcm", 3))
	apply(t, c, "c", profile("broken", 1))
	fail(t, c, kb.Ref{Profile: "broken", Version: 1}, "x")
	fail(t, c, kb.Ref{Profile: "broken", Version: 1}, "x")
	text, err := c.Snapshot(t.Context())
	if err != nil || text != golden {
		t.Errorf("Snapshot = %v\n%s", err, text)
	}
}

func TestPublishFollowsTheCatalog(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("stock", 1))
	path := filepath.Join(t.TempDir(), "catalog.snapshot")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	texts := make(chan string, 16)
	failOnce := true
	go func() {
		ended <- c.Publish(ctx, func(text string) error {
			if strings.Contains(text, "mitgcm 2") && failOnce {
				failOnce = false
				return errors.New("no space")
			}
			texts <- text
			return WriteSnapshot(path, text)
		})
	}()
	await := func(line string) {
		t.Helper()
		select {
		case text := <-texts:
			if !strings.Contains(text, line) {
				t.Fatalf("published %q, want %q in it", text, line)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing published, want %q", line)
		}
	}
	await("profile stock 1 1 available\nend\n")
	apply(t, c, "b", profile("mitgcm", 1))
	await("profile mitgcm 1 1 available\n")
	apply(t, c, "c", profile("mitgcm", 2)) // the first attempt to publish fails
	await("profile mitgcm 2 1,2 available\n")
	fail(t, c, mitgcm2, "x")
	await("profile mitgcm 2 1,2 available\n")
	fail(t, c, mitgcm2, "x")
	await("profile mitgcm 2 1,2 quarantined\n")
	// The text has one word for all versions. Who reads it reads the catalog anew, too.
	if _, _, err := c.Quarantine(t.Context(), "d", kb.Ref{Profile: "mitgcm", Version: 1}, "slow"); err != nil {
		t.Fatal(err)
	}
	await("profile mitgcm 2 1,2 quarantined\n")
	if err := c.ReleaseQuarantine(t.Context(), "e", mitgcm2); err != nil {
		t.Fatal(err)
	}
	await("profile mitgcm 2 1,2 quarantined\n")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Publish = %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("snapshot file: %v, %v", info, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left beside the snapshot: %v, %v", entries, err)
	}
}

// unread is a store that counts how often the whole catalog is read.
type unread struct {
	store.Store
	lists atomic.Int64
}

func (u *unread) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	u.lists.Add(1)
	return u.Store.List(ctx, prefix)
}

// Anyone may ask for the snapshot: once it is published, an answer reads nothing.
func TestSnapshotIsWhatWasPublished(t *testing.T) {
	c, _ := newCatalog(t)
	u := &unread{Store: c.o.Store}
	c.o.Store = u
	apply(t, c, "a", profile("stock", 1))
	snapshot := func(want string) {
		t.Helper()
		if text, err := c.Snapshot(t.Context()); err != nil || !strings.Contains(text, want) {
			t.Errorf("Snapshot = %q, %v, want %q in it", text, err, want)
		}
	}
	snapshot("profile stock 1 1 available\nend\n")
	ctx, cancel := context.WithCancel(t.Context())
	texts, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- c.Publish(ctx, func(text string) error {
			texts <- text
			return nil
		})
	}()
	<-texts
	before := u.lists.Load()
	snapshot("profile stock 1 1 available\nend\n")
	snapshot("profile stock 1 1 available\nend\n")
	if _, err := c.Get(t.Context(), "stok"); err == nil || !strings.Contains(err.Error(), `did you mean "stock"?`) {
		t.Errorf("an unknown name: %v", err)
	}
	if n := u.lists.Load() - before; n != 0 {
		t.Errorf("the catalog was read %d times for what is published", n)
	}
	apply(t, c, "b", profile("mitgcm", 1))
	<-texts
	snapshot("profile mitgcm 1 1 available\n")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Publish = %v", err)
	}
}

func TestWriteSnapshotReportsFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteSnapshot(path, "x"); err == nil {
		t.Error("a snapshot over a folder was written")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
