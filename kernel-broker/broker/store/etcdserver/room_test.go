// SPDX-License-Identifier: Apache-2.0

package etcdserver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
)

// A full store takes writes again as soon as old values are compacted, without a restart.
func TestAFullStoreRecoversWhileItRuns(t *testing.T) {
	server := startServer(t, etcdserver.Config{Dir: t.TempDir(), Quota: 20 << 20, Retention: time.Hour, Tend: 20 * time.Millisecond})
	s := openStore(t, server)
	write := func() error {
		_, err := s.Commit(t.Context(), store.Write{Key: "k", Value: make([]byte, 512<<10), Expect: store.AnyRevision})
		return err
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = write()
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("writing past the quota = %v, want ErrFull", err)
	}
	r, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := compact(t, server, r.Revision); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = write(); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after compaction: %v", err)
		}
	}
	// Compaction frees the file piece by piece, and a look may come between two pieces: below nine tenths of the quota is
	// enough for writes, and the rest is used again.
	if size := gauge(t, "etcd_mvcc_db_total_size_in_bytes"); size > 18<<20 {
		t.Errorf("the file still takes %.0f bytes", size)
	}
}
