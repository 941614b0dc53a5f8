// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

// The service manager hears that a broker is ready while another one acts, and when it serves itself; signs of life go on in both.
func TestServiceManager(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	t.Setenv("WATCHDOG_USEC", "1000000")
	hears := func(want string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for text := make([]byte, 1024); ; {
			n, err := socket.Read(text)
			if err != nil {
				t.Fatalf("no %q: %v", want, err)
			}
			if strings.Contains(string(text[:n]), want) {
				return
			}
		}
	}
	etcd, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: filepath.Join(dir, "etcd"), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := defaults()
	c.DataDir, c.Socket, c.Snapshot = filepath.Join(dir, "data"), filepath.Join(dir, "socket"), filepath.Join(dir, "snapshot")
	c.Listen, c.TLS.Mode, c.Slurm.User, c.Slurm.BinDir = "127.0.0.1:0", tlsNone, "root", dir
	c.Etcd.Endpoints = []string{etcd.Endpoint()}
	other, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: c.Etcd.Endpoints, Cluster: c.Cluster, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Lead(t.Context(), etcdstore.Claim{Holder: "the other", Place: "elsewhere"}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, c, log) }()
	hears("READY=1\nSTATUS=waits: another broker acts, the other")
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	hears("READY=1\nSTATUS=serves agents on 127.0.0.1:")
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	hears("STOPPING=1")
}
