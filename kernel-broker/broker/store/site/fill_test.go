// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// A copy that is broken off at any commit is finished by the next one. Meanwhile no broker takes the target's records, nor
// begins on it anew.
func TestCopyIsRepeated(t *testing.T) {
	for _, when := range []memstore.Moment{memstore.Before, memstore.After} {
		for n := 0; ; n++ {
			p := place(t, Embedded)
			s, to := source(t, p), memstore.New()
			to.Limit(store.Limits{Writes: 32, Bytes: 256 << 10})
			target := Target{Place: p, Store: to}
			target.Kind = External
			broken := &breaking{Store: to, after: n, when: when}
			target.Store = broken
			if err := Copy(t.Context(), from(t, s), target, quiet); err == nil {
				if n < 5 {
					t.Errorf("it makes %d commits only", n)
				}
				break
			} else if !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			done := when == memstore.After && broken.finished(t)
			if err := Check(t.Context(), to, target.Place); (err == nil) != done {
				t.Fatalf("broken off after %d commits: a broker would say %v", n, err)
			}
			// Meanwhile the source went on.
			put(t, s, "jobs/000", "changed")
			if _, err := s.Commit(t.Context(), store.Write{Key: "jobs/001", Delete: true, Expect: store.AnyRevision}); err != nil {
				t.Fatal(err)
			}
			target.Store = to
			err := Copy(t.Context(), from(t, s), target, quiet)
			if done {
				if !errors.Is(err, ErrNotEmpty) {
					t.Errorf("once more: %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("after %d commits: %v", n, err)
			}
			same(t, s, to)
			if err := Check(t.Context(), to, target.Place); err != nil {
				t.Error(err)
			}
		}
	}
}

// breaking fails one commit.
type breaking struct {
	*memstore.Store
	after int
	when  memstore.Moment
}

func (b *breaking) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	if b.after--; b.after == -1 {
		b.FailCommits(1, b.when)
	}
	return b.Store.Commit(ctx, writes...)
}

func (b *breaking) finished(t *testing.T) bool {
	t.Helper()
	kept, _, err := Read(t.Context(), b.Store)
	if err != nil {
		t.Fatal(err)
	}
	return kept != nil && kept.Unfinished == ""
}

// A target with other records is left as it is.
func TestCopyRefuses(t *testing.T) {
	p := place(t, Embedded)
	s := source(t, p)
	other := place(t, External)
	for name, c := range map[string]struct {
		prepare func(to *memstore.Store, target *Target, src *Source)
		is      error
		words   string
	}{
		"records": {func(to *memstore.Store, _ *Target, _ *Source) { put(t, to, "jobs/1", "x") }, ErrNotEmpty, "remove it"},
		"a site": {func(to *memstore.Store, _ *Target, _ *Source) {
			if _, err := Claim(t.Context(), to, other, noon); err != nil {
				t.Error(err)
			}
		}, ErrNotEmpty, "since 2026-11-30T12:00:00Z"},
		"another site's half": {func(to *memstore.Store, _ *Target, _ *Source) {
			put(t, to, Key, `{"format":1,"cluster":"hpc","id":"other","since":"2026-11-30T12:00:00Z","unfinished":"restore"}`)
		}, ErrNotEmpty, "a restore of another site"},
		"another cluster":       {func(_ *memstore.Store, target *Target, _ *Source) { target.Cluster = "other" }, ErrForeign, `of the cluster "hpc"`},
		"another data folder":   {func(_ *memstore.Store, _ *Target, src *Source) { src.Identity.ID = "other" }, ErrForeign, "another site than the data folder"},
		"a record too large":    {func(to *memstore.Store, _ *Target, _ *Source) { to.Limit(store.Limits{Writes: 128, Bytes: 64 << 10}) }, nil, `record "nodes/n1" has 102408 bytes`},
		"a database too small":  {func(_ *memstore.Store, target *Target, _ *Source) { target.Room = 500 << 10 }, nil, "larger --quota-backend-bytes"},
		"a source that is away": {func(_ *memstore.Store, _ *Target, _ *Source) { s.FailReads(1) }, store.ErrUnavailable, "unavailable"},
	} {
		to, target, src := memstore.New(), Target{Place: p}, from(t, s)
		target.Kind, target.Store = External, to
		c.prepare(to, &target, &src)
		before := contents(t, to)
		err := Copy(t.Context(), src, target, quiet)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		if after := contents(t, to); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: it has changed the target: %v", name, after)
		}
	}
	if local, err := ReadLocal(p.Dir); err != nil || local.Store != Embedded {
		t.Errorf("the data folder knows %+v, %v", local, err)
	}
}

// A source that fails in the middle removes nothing, and one that changes meanwhile is noticed.
func TestCopyOfAFaultySource(t *testing.T) {
	p := place(t, Embedded)
	s, to := source(t, p), memstore.New()
	target := Target{Place: p, Store: to}
	broken := from(t, s)
	broken.Records = func(ctx context.Context) iter.Seq2[store.Record, error] {
		return func(yield func(store.Record, error) bool) {
			for rec, err := range current(ctx, s) {
				if rec.Key > "jobs/050" {
					yield(store.Record{}, errDamaged)
					return
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}
	put(t, to, Key, `{"format":1,"cluster":"hpc","id":"`+broken.Identity.ID+`","since":"2026-11-30T12:00:00Z","unfinished":"move"}`)
	put(t, to, "jobs/090", "of the try before")
	if _, err := merge(t.Context(), broken, to, true, func(int) {}); !errors.Is(err, errDamaged) || contents(t, to)["jobs/090"] == "" {
		t.Errorf("%v", err)
	}
	passes := 0
	changing := from(t, s)
	changing.Records = func(ctx context.Context) iter.Seq2[store.Record, error] {
		if passes++; passes == 3 {
			put(t, s, "jobs/020", "changed")
		}
		return current(ctx, s)
	}
	if err := Copy(t.Context(), changing, target, quiet); err == nil || !strings.Contains(err.Error(), "1 records differ") {
		t.Errorf("a source that changes: %v", err)
	}
	if err := Check(t.Context(), to, p); !errors.Is(err, ErrForeign) {
		t.Errorf("its target is taken: %v", err)
	}
}
