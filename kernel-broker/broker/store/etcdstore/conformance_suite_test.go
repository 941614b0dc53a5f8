// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// testConformance checks an implementation. The function opens a new, empty store; testConformance closes it.
func testConformance(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s store.Store)
	}{
		{"Empty", testEmpty},
		{"PutGetDelete", testPutGetDelete},
		{"Values", testValues},
		{"Fences", testFences},
		{"AllOrNothing", testAllOrNothing},
		{"ConflictNamesTheKey", testConflictNamesTheKey},
		{"NothingChanged", testNothingChanged},
		{"Refused", testRefused},
		{"Limits", testLimits},
		{"ListPrefix", testListPrefix},
		{"ListLarge", testListLarge},
		{"ListIsOneSnapshot", testListIsOneSnapshot},
		{"Range", testRange},
		{"ContextEnds", testContextEnds},
		{"Closed", testClosed},
		{"TwoFencedWriters", testTwoFencedWriters},
		{"Counter", testCounter},
		{"Transfers", testTransfers},
		{"AgainstModel", testAgainstModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.test(t, s)
		})
	}
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

func put(key, value string, expect int64) store.Write {
	return store.Write{Key: key, Value: []byte(value), Expect: expect}
}

func remove(key string, expect int64) store.Write {
	return store.Write{Key: key, Delete: true, Expect: expect}
}

func commit(t failer, s store.Store, writes ...store.Write) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), writes...)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return revision
}

func list(t failer, s store.Store, prefix string) ([]store.Record, int64) {
	t.Helper()
	records, at, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatalf("List(%q): %v", prefix, err)
	}
	return records, at
}

func wantRecord(t failer, s store.Store, key, value string, revision int64) {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	if err != nil || r.Key != key || string(r.Value) != value || r.Revision != revision {
		t.Fatalf("Get(%q) = %s, %v; want %q at revision %d", key, text(r), err, value, revision)
	}
}

func wantAbsent(t failer, s store.Store, key string) {
	t.Helper()
	if r, err := s.Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Get(%q) = %s, %v; want ErrNotFound", key, text(r), err)
	}
}

func wantError(t failer, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func wantKeys(t failer, records []store.Record, want ...string) {
	t.Helper()
	var have []string
	for _, r := range records {
		have = append(have, r.Key)
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Fatalf("keys %q, want %q", have, want)
	}
}

func text(r store.Record) string {
	return fmt.Sprintf("%q=%q@%d", r.Key, r.Value, r.Revision)
}
