// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
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
	endpoint := external(t)
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

// external starts the distribution's etcd.
func external(t *testing.T) string {
	t.Helper()
	binary, err := exec.LookPath("etcd")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("etcd (Debian package etcd-server) must be installed in CI: %v", err)
		}
		t.Skipf("needs Debian's package etcd-server as a foreign server: %v", err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	addresses := freeAddresses(t, 2)
	client, peer := "http://"+addresses[0], "http://"+addresses[1]
	cmd := exec.Command(binary, "--name=foreign", "--data-dir="+filepath.Join(dir, "data"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=foreign="+peer)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when this test is killed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it reports the kill
		_ = log.Close()
	})
	await(t, client, filepath.Join(dir, "log"))
	return client
}

// await prints the server's log if it does not come up.
func await(t *testing.T, endpoint, log string) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		var s *etcdstore.Store
		s, err = etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{endpoint}, Cluster: "await", Logger: quiet})
		if err == nil {
			if err = s.Close(); err == nil {
				return
			}
		}
	}
	text, _ := os.ReadFile(log)
	t.Fatalf("%v\n%s", err, text)
}

// freeAddresses returns addresses of a loopback address that only this process uses: on 127.0.0.1 another process may
// take the port first.
func freeAddresses(t *testing.T, n int) (free []string) {
	t.Helper()
	own := net.IPv4(127, byte(64+os.Getpid()>>16&63), byte(os.Getpid()>>8), byte(os.Getpid()))
	for range n {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: own})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		free = append(free, listener.Addr().String())
	}
	return free
}
