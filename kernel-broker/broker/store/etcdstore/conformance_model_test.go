// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// model is the dumbest store that can be: a map.
type model struct{ records map[string]store.Record }

// fails returns the key that makes a commit conflict.
func (m *model) fails(writes []store.Write) (string, bool) {
	for _, w := range writes {
		if w.Expect != store.AnyRevision && m.records[w.Key].Revision != w.Expect {
			return w.Key, true
		}
	}
	return "", false
}

// apply reports whether anything changed.
func (m *model) apply(writes []store.Write, revision int64) (changed bool) {
	for _, w := range writes {
		_, had := m.records[w.Key]
		switch {
		case !w.Delete:
			m.records[w.Key] = store.Record{Key: w.Key, Value: w.Value, Revision: revision}
		case had:
			delete(m.records, w.Key)
		}
		changed = changed || had || !w.Delete
	}
	return changed
}

func (m *model) list(prefix string) []string {
	var out []string
	for key, r := range m.records {
		if strings.HasPrefix(key, prefix) {
			out = append(out, text(r))
		}
	}
	slices.Sort(out)
	return out
}

// testAgainstModel runs random operations on the store and on the model. Each
// case has its own part of the store.
func testAgainstModel(t *testing.T, s store.Store) {
	var cases atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		root := fmt.Sprintf("case%d/", cases.Add(1))
		m := &model{records: map[string]store.Record{}}
		_, last := list(rt, s, root)
		rt.Repeat(map[string]func(*rapid.T){
			"commit": func(rt *rapid.T) { last = max(last, m.commit(rt, s, root, last)) },
			"get":    func(rt *rapid.T) { m.checkGet(rt, s, root) },
			"list":   func(rt *rapid.T) { m.checkList(rt, s, root) },
			"range":  func(rt *rapid.T) { m.checkRange(rt, s, root) },
		})
	})
}

func drawKey(rt *rapid.T, root string) string {
	return root + rapid.SampledFrom([]string{"a", "a/1", "a/2", "ab", "b", "c"}).Draw(rt, "key")
}

// drawWrite draws expectations that hold about half of the time.
func (m *model) drawWrite(rt *rapid.T, key string, last int64) store.Write {
	w := store.Write{Key: key, Delete: rapid.Bool().Draw(rt, "delete")}
	if !w.Delete {
		w.Value = []byte(rapid.StringN(0, 8, 8).Draw(rt, "value"))
	}
	now := m.records[key].Revision
	w.Expect = rapid.SampledFrom([]int64{now, now, now, store.AnyRevision, 0, last, last + 1}).Draw(rt, "expect")
	return w
}

// commit returns the new revision, or 0 after a conflict.
func (m *model) commit(rt *rapid.T, s store.Store, root string, last int64) int64 {
	var writes []store.Write
	for range rapid.IntRange(0, 4).Draw(rt, "writes") {
		key := drawKey(rt, root)
		if !slices.ContainsFunc(writes, func(w store.Write) bool { return w.Key == key }) {
			writes = append(writes, m.drawWrite(rt, key, last))
		}
	}
	revision, err := s.Commit(rt.Context(), writes...)
	if key, fails := m.fails(writes); fails {
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || conflict.Key != key || conflict.Have != m.records[key].Revision {
			rt.Fatalf("Commit(%v) = %d, %v; want a conflict on %q", writes, revision, err, key)
		}
		return 0
	}
	if changed := m.apply(writes, revision); err != nil || revision < last || changed && revision == last {
		rt.Fatalf("Commit(%v) after %d = %d, %v", writes, last, revision, err)
	}
	return revision
}

func (m *model) checkGet(rt *rapid.T, s store.Store, root string) {
	key := drawKey(rt, root)
	if want, ok := m.records[key]; ok {
		wantRecord(rt, s, key, string(want.Value), want.Revision)
		return
	}
	wantAbsent(rt, s, key)
}

func (m *model) checkList(rt *rapid.T, s store.Store, root string) {
	prefix := root + rapid.SampledFrom([]string{"", "a", "a/", "b", "x"}).Draw(rt, "prefix")
	records, _ := list(rt, s, prefix)
	var have []string
	for _, r := range records {
		have = append(have, text(r))
	}
	if want := m.list(prefix); !slices.Equal(have, want) {
		rt.Fatalf("List(%q) = %v, want %v", prefix, have, want)
	}
}

func (m *model) checkRange(rt *rapid.T, s store.Store, root string) {
	from, before := drawKey(rt, root), drawKey(rt, root)
	if from >= before {
		before = from + "~"
	}
	limit := rapid.IntRange(1, 4).Draw(rt, "limit")
	records, err := s.Range(rt.Context(), from, before, limit)
	wantError(rt, err, nil)
	var have, want []string
	for _, r := range records {
		have = append(have, text(r))
	}
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		if from <= key && key < before && len(want) < limit {
			want = append(want, text(m.records[key]))
		}
	}
	if !slices.Equal(have, want) {
		rt.Fatalf("Range(%q, %q, %d) = %v, want %v", from, before, limit, have, want)
	}
}
