// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

var quiet = slog.New(slog.DiscardHandler)

// TestConformanceMemory: what a caller's test shows on the store in memory holds for etcd.
func TestConformanceMemory(t *testing.T) {
	testConformance(t, func(*testing.T) store.Store { return memstore.New() })
}

func TestConformanceEmbedded(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	testConformance(t, func(t *testing.T) store.Store { return open(t, endpoint) })
}

// TestConformanceExternal runs on another project's build of an older etcd, in
// its own process, over TCP.
func TestConformanceExternal(t *testing.T) {
	endpoint := etcdtest.Start(t, etcdtest.Options{}).Endpoint
	testConformance(t, func(t *testing.T) store.Store { return open(t, endpoint) })
}

var clusters atomic.Int64

// open opens a namespace of its own.
func open(t *testing.T, endpoint string) *etcdstore.Store {
	t.Helper()
	return openCluster(t, endpoint, fmt.Sprintf("test-%d", clusters.Add(1)), 0)
}

func openCluster(t *testing.T, endpoint, cluster string, timeout time.Duration) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.Open(t.Context(), etcdstore.Config{
		Endpoints: []string{endpoint}, Cluster: cluster, Timeout: timeout, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func embedded(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.Endpoint()
}
