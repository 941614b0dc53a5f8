// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func place(t *testing.T, kind Kind) Place {
	t.Helper()
	return Place{Cluster: "hpc", Dir: t.TempDir(), Kind: kind, Store: "the store", Remove: "remove it"}
}

// What a broker does with the names that it finds.
func TestDecide(t *testing.T) {
	local := func(id string, kind Kind) *Local { return &Local{Cluster: "hpc", ID: id, Store: kind} }
	begun := func(id string) *Local { return &Local{Cluster: "hpc", ID: id, Store: External, New: true} }
	kept := func(id string) *Identity { return &Identity{Cluster: "hpc", ID: id} }
	const some, none = false, true
	for _, c := range []struct {
		name        string
		kind        Kind
		local       *Local
		kept        *Identity
		empty, left bool
		want        step
		words       string
	}{
		{"a new site", Embedded, nil, nil, none, false, name, ""},
		{"an embedded store of an earlier version", Embedded, nil, nil, some, true, name, ""},
		{"an embedded store whose file was lost", Embedded, nil, kept("a"), some, true, remember, ""},
		{"an embedded store from a copy", Embedded, local("a", Embedded), nil, some, true, name, ""},
		{"an embedded store that was removed", Embedded, local("a", Embedded), nil, none, false, name, ""},
		{"an embedded store", Embedded, local("a", Embedded), kept("a"), some, true, ready, ""},
		{"a new site with an etcd", External, nil, nil, none, false, name, ""},
		{"an etcd of an earlier version", External, nil, nil, some, false, name, ""},
		{"an etcd of an earlier version, and an old embedded store", External, nil, nil, some, true, name, ""},
		{"an etcd", External, local("a", External), kept("a"), some, false, ready, ""},
		{"killed before the store had its name", External, begun("a"), nil, none, false, name, ""},
		{"killed before the file was whole", External, begun("a"), kept("a"), some, false, remember, ""},
		{"begun twice", External, begun("a"), kept("b"), some, false, 0, "another site"},

		{"embedded, then endpoints", External, local("a", Embedded), nil, none, true, 0, "kernel-broker store move"},
		{"endpoints of an earlier version's site", External, nil, nil, none, true, 0, "kernel-broker store move"},
		{"after a move, without endpoints", Embedded, local("a", External), kept("a"), some, true, 0, "name it again"},
		{"after a move, without the old store", Embedded, local("a", External), nil, none, false, 0, "name it again"},
		{"another site of the same name", External, local("a", External), kept("b"), some, false, 0, "another site"},
		{"a lost data folder", External, nil, kept("a"), some, false, 0, "kernel-broker store adopt"},
		{"an etcd that lost its records", External, local("a", External), nil, none, false, 0, "kernel-broker store restore FILE"},
		{"an etcd from a copy without a name", External, local("a", External), nil, some, false, 0, "kernel-broker store adopt"},
		{"a half of it", External, local("a", External), &Identity{Cluster: "hpc", ID: "a", Unfinished: "move from here"}, some, true, 0, "since a move from here did not finish: run it again"},
		{"another cluster's records", External, local("a", External), &Identity{Cluster: "other", ID: "a"}, some, false, 0, `the records of the cluster "other"`},
		{"another cluster's folder", External, &Local{Cluster: "other", ID: "a", Store: External}, nil, none, false, 0, `is of the cluster "other"`},
	} {
		p := Place{Cluster: "hpc", Dir: "/data", Kind: c.kind, Store: "the store", Remove: "remove it", Left: c.left}
		got, err := p.decide(c.local, c.kept, c.empty)
		if got != c.want || c.words == "" && err != nil || c.words != "" && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: step %d, %v; want %d, %q", c.name, got, err, c.want, c.words)
		}
	}
}

// A host with the key of the store's secrets is of their site, also with a new data folder; with another site's it is not.
func TestTheKeyOfTheSecretsNamesTheSite(t *testing.T) {
	p := Place{Cluster: "hpc", Dir: "/data", Kind: External, Store: "the store", Keyed: true}
	kept := &Identity{Cluster: "hpc", ID: "a"}
	if got, err := p.decide(nil, kept, false); got != remember || err != nil {
		t.Errorf("step %d, %v", got, err)
	}
	if _, err := p.decide(&Local{Cluster: "hpc", ID: "b", Store: External}, kept, false); !errors.Is(err, ErrForeign) {
		t.Errorf("another site's folder: %v", err)
	}
}

// A site gets one name, whenever its first broker is killed.
func TestClaimIsRepeated(t *testing.T) {
	for _, kind := range []Kind{Embedded, External} {
		for _, when := range []memstore.Moment{memstore.Before, memstore.After} {
			s, p := memstore.New(), place(t, kind)
			s.FailCommits(1, when)
			if _, err := Claim(t.Context(), s, p, noon); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("with a lost answer: %v", err)
			}
			begun, err := ReadLocal(p.Dir)
			if err != nil || !begun.New {
				t.Fatalf("%+v, %v", begun, err)
			}
			for range 2 {
				id, err := Claim(t.Context(), s, p, noon)
				if local, lerr := ReadLocal(p.Dir); err != nil || lerr != nil || id.ID != begun.ID || *local != (Local{Format: 1, Cluster: "hpc", ID: id.ID, Store: kind}) {
					t.Errorf("%s: %+v, %+v, %v, %v", kind, id, local, err, lerr)
				}
			}
			if err := Check(t.Context(), s, p); err != nil {
				t.Error(err)
			}
		}
	}
}

// A second site of the same name is refused, until somebody says that the records are its own.
func TestForeignRecordsAreRefused(t *testing.T) {
	s, ours, theirs := memstore.New(), place(t, External), place(t, External)
	if _, err := Claim(t.Context(), s, ours, noon); err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(t.Context(), s, theirs, noon); !errors.Is(err, ErrForeign) {
		t.Errorf("another site's records: %v", err)
	}
	if local, err := ReadLocal(theirs.Dir); local != nil || err != nil {
		t.Errorf("it has a name: %+v, %v", local, err)
	}
	id, err := Adopt(t.Context(), s, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Claim(t.Context(), s, theirs, noon); err != nil || again != id {
		t.Errorf("after adoption: %+v, %+v, %v", id, again, err)
	}

	// Records without a name get one by adoption, too.
	old := memstore.New()
	put(t, old, "jobs/1", "x")
	if err := Check(t.Context(), old, ours); !errors.Is(err, ErrForeign) {
		t.Errorf("without a name: %v", err)
	}
	id, err = Adopt(t.Context(), old, ours)
	if again, cerr := Claim(t.Context(), old, ours, noon); err != nil || cerr != nil || again.ID != id.ID {
		t.Errorf("%+v, %+v, %v, %v", id, again, err, cerr)
	}
}

func TestDamagedNames(t *testing.T) {
	s, p := memstore.New(), place(t, External)
	for _, text := range []string{"", "{", `{"format":1}`, `{"format":2,"cluster":"hpc","id":"a","store":"external"}`, `{"format":1,"cluster":"hpc","id":"a","store":"else"}`,
		`{"format":1,"cluster":"hpc","id":"a","store":"external","more":1}`, strings.Repeat(" ", maxLocal) + "{}"} {
		if err := os.WriteFile(filepath.Join(p.Dir, File), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Claim(t.Context(), s, p, noon); err == nil || !strings.Contains(err.Error(), filepath.Join(p.Dir, File)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "{}", `{"format":2,"cluster":"hpc","id":"a","since":"2026-11-30T12:00:00Z"}`, `{"format":1,"cluster":"hpc","id":"a","since":"x"}`} {
		s := memstore.New()
		put(t, s, Key, text)
		if _, err := Claim(t.Context(), s, place(t, External), noon); err == nil || !strings.Contains(err.Error(), "record of the site") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func put(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: []byte(value), Expect: store.AnyRevision}); err != nil {
		t.Fatal(err)
	}
}

// from makes a source of a store.
func from(t *testing.T, s store.Store) Source {
	t.Helper()
	src := Source{Name: "move", Identity: Identity{Cluster: "hpc"}, Records: func(ctx context.Context) iter.Seq2[store.Record, error] { return current(ctx, s) }}
	kept, _, err := Read(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if kept != nil {
		src.Identity = *kept
	}
	return src
}

func quiet(string, int, int) {}

// contents are all records but those that the store needs for itself.
func contents(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for rec, err := range current(t.Context(), s) {
		if err != nil {
			t.Fatal(err)
		}
		all[rec.Key] = string(rec.Value)
	}
	return all
}

func same(t *testing.T, a, b store.Store) {
	t.Helper()
	have, want := contents(t, b), contents(t, a)
	if len(have) != len(want) {
		t.Errorf("%d records instead of %d", len(have), len(want))
	}
	for key, value := range want {
		if got, there := have[key]; !there || got != value {
			t.Errorf("record %q is %.40q instead of %.40q", key, got, value)
		}
	}
}

// source has more records than a page and a commit take, among them empty and large ones.
func source(t *testing.T, p Place) *memstore.Store {
	t.Helper()
	s := memstore.New()
	if _, err := Claim(t.Context(), s, p, noon); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * page {
		put(t, s, fmt.Sprintf("jobs/%03d", i), strings.Repeat("x", i*i))
	}
	put(t, s, "policy", "")
	put(t, s, "nodes/n1", strings.Repeat("y", 100<<10))
	put(t, s, "acting", "nobody copies this")
	return s
}
