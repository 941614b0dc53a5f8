// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// Ten thousand clients that connect and send nothing take the connections of
// unauthenticated clients and no more. Nodes and callers on the broker's host are
// served meanwhile, and everybody after the time limit for a handshake.
func TestTenThousandUnauthenticated(t *testing.T) {
	s := serveTLS(t, time.Hour, func(o *server.Options) {
		users(o)
		o.Limits = server.DefaultLimits()
		o.Limits.Unauthenticated = flood * 2 / 5
		o.Limits.Handshake, o.Limits.HandshakeWait = soon/2, time.Second // for one of these places
	})
	node := s.over(s.enrol("n1"))
	if err := connect(t, node, "n1"); err != nil {
		t.Fatal(err)
	}
	clients := startLoad(t, load{Address: s.address, N: flood, OfAddress: 200})
	s.served(t)
	if err := connect(t, node, "n1"); err != nil {
		t.Errorf("the node in the flood: %v", err)
	}
	held := flood
	until(t, "those without a place are closed", func() bool {
		held = clients.held()
		return held <= flood*2/5
	})
	t.Logf("%d connections, %d held at once", clients.N, held)
	if held == 0 {
		t.Error("none has a place")
	}
	if s.lines("connection refused: too many") == 0 {
		t.Error("the log says nothing")
	}
	until(t, "all of them are closed", func() bool { return clients.held() == 0 })
	if err := connect(t, s.over(s.enrol("n2")), "n2"); err != nil {
		t.Errorf("a new node after the flood: %v", err)
	}
}

// As many from one address leave room for every other one at once.
func TestTenThousandFromOneAddress(t *testing.T) {
	s := serveTLS(t, time.Hour, users)
	one := startLoad(t, load{Address: s.address, N: flood, OfAddress: flood})
	s.served(t)
	if err := connect(t, s.over(s.enrol("n1")), "n1"); err != nil {
		t.Errorf("a node in the flood: %v", err)
	}
	if held := one.settled(); held > server.DefaultLimits().PeerConnections {
		t.Errorf("%d are held, at most %d of an address are allowed", held, server.DefaultLimits().PeerConnections)
	}
}

// Ten thousand nodes are no flood: all of them are held and served, and so is a
// user. Without TLS, whose handshakes would be what the test takes its time for.
func TestTenThousandNodes(t *testing.T) {
	f := serve(t, users, both)
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	all := startLoad(t, load{Address: f.address, N: flood, OfAddress: 100, Payload: []byte(preface)})
	f.served(t)
	if err := connect(t, f.remote(t), "n1"); err != nil {
		t.Errorf("one more node: %v", err)
	}
	held := all.held()
	t.Logf("%d connections, %d held at once", all.N, held)
	if refused := f.lines("connection refused"); refused > 0 || held == 0 {
		t.Errorf("%d held, %d lines of refused connections", held, refused)
	}
}
