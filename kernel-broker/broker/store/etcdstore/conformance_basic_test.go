// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

func testEmpty(t *testing.T, s store.Store) {
	wantAbsent(t, s, "a")
	records, at := list(t, s, "")
	wantKeys(t, records)
	if at < 1 {
		t.Errorf("revision of an empty store is %d", at)
	}
}

func testPutGetDelete(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0))
	if one < 2 {
		t.Errorf("first revision is %d", one)
	}
	wantRecord(t, s, "a", "1", one)
	two := commit(t, s, put("a", "2", one))
	if two <= one {
		t.Errorf("revision went from %d to %d", one, two)
	}
	wantRecord(t, s, "a", "2", two)
	three := commit(t, s, remove("a", two))
	wantAbsent(t, s, "a")
	four := commit(t, s, put("a", "4", 0))
	if three <= two || four <= three {
		t.Errorf("revisions %d %d %d do not grow", two, three, four)
	}
	wantRecord(t, s, "a", "4", four)
}

func testValues(t *testing.T, s store.Store) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	revision := commit(t, s,
		store.Write{Key: "bytes", Value: all}, store.Write{Key: "none"},
		store.Write{Key: "sp ace/\xff\"'", Value: []byte("v")})
	wantRecord(t, s, "bytes", string(all), revision)
	wantRecord(t, s, "none", "", revision)
	wantRecord(t, s, "sp ace/\xff\"'", "v", revision)

	all[0] = 'X' // the writer's bytes stay the writer's
	first, err := s.Get(t.Context(), "bytes")
	wantError(t, err, nil)
	first.Value[1] = 'X' // and the reader's the reader's
	second, err := s.Get(t.Context(), "bytes")
	wantError(t, err, nil)
	if !bytes.Equal(second.Value[:2], []byte{0, 1}) {
		t.Errorf("the stored value was changed from outside: %v", second.Value[:2])
	}
}

func testFences(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0))
	two := commit(t, s, put("a", "2", one))
	for _, c := range []struct {
		name  string
		write store.Write
	}{
		{"create an existing key", put("a", "x", 0)},
		{"an old revision", put("a", "x", one)},
		{"a revision that never was", put("a", "x", two+1000)},
		{"delete at an old revision", remove("a", one)},
		{"delete expecting nothing", remove("a", 0)},
		{"change a missing key", put("b", "x", one)},
		{"delete a missing key", remove("b", two)},
	} {
		_, err := s.Commit(t.Context(), c.write)
		if wantError(t, err, store.ErrConflict); t.Failed() {
			t.Fatal(c.name)
		}
	}
	wantRecord(t, s, "a", "2", two)
	wantAbsent(t, s, "b")
	three := commit(t, s, put("a", "3", store.AnyRevision), put("b", "3", store.AnyRevision))
	wantRecord(t, s, "a", "3", three)
	wantRecord(t, s, "b", "3", three)
	commit(t, s, remove("a", store.AnyRevision), remove("b", three))
	wantAbsent(t, s, "a")
	wantAbsent(t, s, "b")
}

func testAllOrNothing(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0), put("b", "1", 0))
	wantRecord(t, s, "a", "1", one)
	wantRecord(t, s, "b", "1", one)
	_, err := s.Commit(t.Context(),
		put("a", "2", one), put("c", "2", 0), remove("b", one+1000), put("d", "2", store.AnyRevision))
	wantError(t, err, store.ErrConflict)
	wantRecord(t, s, "a", "1", one)
	wantRecord(t, s, "b", "1", one)
	wantAbsent(t, s, "c")
	wantAbsent(t, s, "d")
	two := commit(t, s, put("a", "2", one), put("c", "2", 0), remove("b", one))
	wantRecord(t, s, "a", "2", two)
	wantRecord(t, s, "c", "2", two)
	wantAbsent(t, s, "b")
}

func testConflictNamesTheKey(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0), put("b", "1", 0))
	two := commit(t, s, put("b", "2", one))
	for _, c := range []struct {
		writes []store.Write
		want   store.ConflictError
	}{
		{[]store.Write{put("a", "x", one), put("b", "x", one)}, store.ConflictError{Key: "b", Expect: one, Have: two}},
		{[]store.Write{put("x", "", store.AnyRevision), put("a", "", one), remove("b", 0)}, store.ConflictError{Key: "b", Have: two}},
		{[]store.Write{put("c", "", one), put("b", "x", one)}, store.ConflictError{Key: "c", Expect: one}},
		{[]store.Write{put("b", "", one), put("c", "x", one)}, store.ConflictError{Key: "b", Expect: one, Have: two}},
	} {
		_, err := s.Commit(t.Context(), c.writes...)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || *conflict != c.want {
			t.Errorf("Commit = %v, want %v", err, &c.want)
		}
	}
}

func testNothingChanged(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0))
	for _, writes := range [][]store.Write{
		{}, {remove("x", 0)}, {remove("x", store.AnyRevision), remove("y", 0)},
	} {
		if at := commit(t, s, writes...); at < one {
			t.Errorf("Commit(%v) = %d, before %d", writes, at, one)
		}
	}
	wantRecord(t, s, "a", "1", one)
	two := commit(t, s, put("a", "1", one)) // the same value is a change
	wantRecord(t, s, "a", "1", two)
	three := commit(t, s, remove("x", 0), put("b", "3", 0))
	wantRecord(t, s, "b", "3", three)
	if two <= one || three <= two {
		t.Errorf("revisions %d %d %d do not grow", one, two, three)
	}
}

func testRefused(t *testing.T, s store.Store) {
	for _, writes := range [][]store.Write{
		{put("", "x", 0)},
		{put("a", "1", 0), put("a", "2", 0)},
		{put("a", "1", 0), remove("a", store.AnyRevision)},
		{put("a", "1", -2)},
		{{Key: "a", Value: []byte("x"), Delete: true}},
	} {
		_, err := s.Commit(t.Context(), writes...)
		wantError(t, err, store.ErrInvalid)
	}
	wantAbsent(t, s, "a")
}
