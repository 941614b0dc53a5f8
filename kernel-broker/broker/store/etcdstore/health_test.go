// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
)

// A store that refuses every write still answers reads; the broker is ill without writes.
func TestHealthOfAFullStore(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(), Quota: 20 << 20, Retention: time.Hour, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	kept, err := Open(t.Context(), Config{Endpoints: []string{server.Endpoint()}, Cluster: "test", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}()
	at := time.Now()
	kept.health.Now = func() time.Time { return at }
	if text, err := kept.Health(t.Context()); err != nil || text == "" {
		t.Fatalf("a store with room: %q, %v", text, err)
	}
	for i := 0; i < 100 && err == nil; i++ {
		_, err = kept.Commit(t.Context(), store.Write{Key: "k", Value: make([]byte, 512<<10), Expect: store.AnyRevision})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("writing past the quota = %v, want ErrFull", err)
	}
	if _, err := kept.Health(t.Context()); err != nil {
		t.Errorf("within a second the answer is kept, and it is %v", err)
	}
	at = at.Add(keepHealth)
	if _, err := kept.Health(t.Context()); !errors.Is(err, store.ErrFull) {
		t.Errorf("health of a full store = %v, want ErrFull", err)
	}
	if _, err := kept.Get(t.Context(), healthKey); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the question left a record: %v", err)
	}
}
