// SPDX-License-Identifier: Apache-2.0

package etcdserver_test

import (
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
)

// A full store takes writes again as soon as old values are compacted, without a restart.
func TestAFullStoreRecoversWhileItRuns(t *testing.T) {
	server := startServer(t, etcdserver.Config{Dir: t.TempDir(), Quota: 20 << 20, Retention: time.Hour, Tend: 20 * time.Millisecond})
	s := openStore(t, server)
	write, newest := fill(t, s)
	if err := compact(t, server, newest); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := write(s)
		if err == nil {
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
