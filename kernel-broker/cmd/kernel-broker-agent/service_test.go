// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The service manager hears that the agent is ready before there is a broker, that its loop goes on, and of the stream.
func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "200000")
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
	b := newFakeBroker(t)
	b.stop()
	n := newFakeNode(t, b.address)
	n.up()
	hears("READY=1\nSTATUS=connects to the broker at " + b.address)
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	b.start()
	hears("STATUS=connected to the broker at " + b.address)
	hears("WATCHDOG=1")
	n.stop()
	hears("STOPPING=1")
}
