// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

// An etcd that compacts nothing is told from one that does.
func TestUncompacted(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s := openCluster(t, server.Endpoint, "a", 0)
	closing(t, s)
	grows := func(key string, want bool) {
		t.Helper()
		if got, err := s.Uncompacted(t.Context(), key); err != nil || got != want {
			t.Errorf("%q: %v, %v", key, got, err)
		}
	}
	grows("site", false)
	commit(t, s, put("site", "v", 0))
	at := commit(t, s, put("k", "v", 0))
	grows("site", true)
	if _, err := server.Client("").Compact(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	grows("site", false)
	grows("k", true)
}

// A snapshot is as of one revision, whatever is written meanwhile, and has nothing of the store's own.
func TestSnapshot(t *testing.T) {
	for name, endpoint := range map[string]string{"embedded": embedded(t, t.TempDir()), "external": etcdtest.Start(t, etcdtest.Options{}).Endpoint} {
		s := openCluster(t, endpoint, "a", 0)
		closing(t, s)
		other := openCluster(t, endpoint, "ab", 0)
		closing(t, other)
		commit(t, other, put("foreign", "v", 0))
		if err := s.Lead(t.Context(), claim("one", "here")); err != nil {
			t.Fatal(err)
		}
		var many []store.Write
		for i := range 100 {
			many = append(many, put(fmt.Sprintf("k/%03d", i), "before", 0))
		}
		at := commit(t, s, many...)
		snap, err := s.Snapshot(t.Context())
		if err != nil || snap.Revision != at || snap.Count != len(many)+2 { // who acts, and the epoch
			t.Fatalf("%s: %+v, %v", name, snap, err)
		}
		for range 2 {
			n := 0
			for rec, err := range snap.Records(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if rec.Key != many[n].Key || string(rec.Value) != "before" || rec.Revision != at {
					t.Fatalf("%s: record %d is %s", name, n, text(rec))
				}
				n++
				commit(t, s, put("k/099", "after", store.AnyRevision), put("k/1", "after", store.AnyRevision))
			}
			if n != len(many) {
				t.Errorf("%s: %d records", name, n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range snap.Records(ctx) {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
