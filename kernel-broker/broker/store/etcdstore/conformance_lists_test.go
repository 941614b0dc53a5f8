// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

func testLimits(t *testing.T, s store.Store) {
	var most []store.Write
	for i := range store.MaxWrites {
		most = append(most, put(fmt.Sprintf("many/%03d", i), "v", 0))
	}
	revision := commit(t, s, most...)
	wantRecord(t, s, "many/127", "v", revision)
	_, err := s.Commit(t.Context(), append(most, put("one more", "v", store.AnyRevision))...)
	wantError(t, err, store.ErrTooLarge)

	// A conflict over as many keys is reported as a conflict.
	_, err = s.Commit(t.Context(), most...)
	wantError(t, err, store.ErrConflict)

	big := strings.Repeat("x", store.MaxCommitBytes-len("big"))
	wantRecord(t, s, "big", big, commit(t, s, put("big", big, 0)))
	_, err = s.Commit(t.Context(), put("big", big+"x", store.AnyRevision))
	wantError(t, err, store.ErrTooLarge)
}

func testListPrefix(t *testing.T, s store.Store) {
	keys := []string{"a", "a/", "a/1", "a/10", "a/2", "a0", "ab/1", "b", "\xff", "\xff\xff", "\xff\xff/x"}
	for i := range keys { // not in order
		commit(t, s, put(keys[(i*7)%len(keys)], "v", 0))
	}
	for prefix, want := range map[string][]string{
		"":          {"a", "a/", "a/1", "a/10", "a/2", "a0", "ab/1", "b", "\xff", "\xff\xff", "\xff\xff/x"},
		"a":         {"a", "a/", "a/1", "a/10", "a/2", "a0", "ab/1"},
		"a/":        {"a/", "a/1", "a/10", "a/2"},
		"a/1":       {"a/1", "a/10"},
		"c":         nil,
		"\xff":      {"\xff", "\xff\xff", "\xff\xff/x"},
		"\xff\xff/": {"\xff\xff/x"},
	} {
		records, _ := list(t, s, prefix)
		wantKeys(t, records, want...)
	}
}

func testRange(t *testing.T, s store.Store) {
	keys := []string{"a", "a/", "a/1", "a/10", "a/2", "a0", "b", "\xff", "\xff\xff"}
	for i := range keys { // not in order
		commit(t, s, put(keys[(i*7)%len(keys)], "v", 0))
	}
	for _, c := range []struct {
		from, before string
		limit        int
		want         []string
	}{
		{"", "\xff\xff\xff", store.MaxRange, keys},
		{"", "b", 3, []string{"a", "a/", "a/1"}},
		{"a/", "a0", 9, []string{"a/", "a/1", "a/10", "a/2"}},
		{"a/", "a0\x00", 9, []string{"a/", "a/1", "a/10", "a/2", "a0"}},
		{"a/10", "a0", 1, []string{"a/10"}},
		{"a/11", "a0", 1, []string{"a/2"}},
		{"a/11", "a/19", 9, nil},
		{"b", "\xff\xff", 9, []string{"b", "\xff"}},
	} {
		records, err := s.Range(t.Context(), c.from, c.before, c.limit)
		wantError(t, err, nil)
		wantKeys(t, records, c.want...)
	}
	for _, r := range []struct {
		from, before string
		limit        int
	}{{"a", "a", 1}, {"b", "a", 1}, {"", "", 1}, {"a", "", 1}, {"a", "b", 0}, {"a", "b", -1}, {"a", "b", store.MaxRange + 1}} {
		_, err := s.Range(t.Context(), r.from, r.before, r.limit)
		wantError(t, err, store.ErrInvalid)
	}
	revision := commit(t, s, put("a/1", "new", store.AnyRevision), remove("a/10", store.AnyRevision))
	records, err := s.Range(t.Context(), "a/1", "a/2", 9)
	wantError(t, err, nil)
	if len(records) != 1 || text(records[0]) != fmt.Sprintf(`"a/1"="new"@%d`, revision) {
		t.Fatalf("after a change: %v", records)
	}
	records[0].Value[0] = 'X' // the reader's bytes are the reader's
	wantRecord(t, s, "a/1", "new", revision)
}

const largeList = 3000

// fill writes the large list and returns the revision of each key.
func fill(t *testing.T, s store.Store, prefix, value string) map[string]int64 {
	t.Helper()
	revisions := make(map[string]int64, largeList)
	for i := 0; i < largeList; {
		var writes []store.Write
		for ; i < largeList && len(writes) < store.MaxWrites; i++ {
			writes = append(writes, put(fmt.Sprintf("%s%05d", prefix, i), value, store.AnyRevision))
		}
		revision := commit(t, s, writes...)
		for _, w := range writes {
			revisions[w.Key] = revision
		}
	}
	return revisions
}

func testListLarge(t *testing.T, s store.Store) {
	value := strings.Repeat("v", 2000)
	revisions := fill(t, s, "list/", value)
	commit(t, s, put("lisa", "before", 0), put("list0", "after", 0))
	records, _ := list(t, s, "list/")
	if len(records) != largeList {
		t.Fatalf("%d records, want %d", len(records), largeList)
	}
	for i, r := range records {
		if want := fmt.Sprintf("list/%05d", i); r.Key != want || string(r.Value) != value || r.Revision != revisions[want] {
			t.Fatalf("record %d is %s", i, text(r))
		}
	}
}

// testListIsOneSnapshot changes the first and the last key together while lists run: each list sees both changes or
// neither.
func testListIsOneSnapshot(t *testing.T, s store.Store) {
	fill(t, s, "list/", "0")
	first, last := "list/", "list/~"
	commit(t, s, put(first, "0", 0), put(last, "0", 0))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			value := fmt.Sprint(i)
			_, err := s.Commit(ctx, put(first, value, store.AnyRevision), put(last, value, store.AnyRevision))
			if err != nil {
				done <- err
				return
			}
		}
	}()
	seen := map[string]bool{}
	for end := time.Now().Add(20 * time.Second); len(seen) < 10; {
		records, at := list(t, s, "list/")
		a, b := records[0], records[len(records)-1]
		if len(records) != largeList+2 || string(a.Value) != string(b.Value) || a.Revision != b.Revision || a.Revision > at {
			t.Fatalf("%d records at %d, first %s, last %s", len(records), at, text(a), text(b))
		}
		seen[string(a.Value)] = true
		if time.Now().After(end) {
			t.Fatalf("only %d states seen, the writer makes no progress", len(seen))
		}
	}
	cancel()
	wantError(t, <-done, context.Canceled)
}
