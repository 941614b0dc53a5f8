// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (c from) RemoteAddr() net.Addr {
	host, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(c.address, "700"))
	if err != nil {
		panic(err)
	}
	return host
}

func (from) Close() error { return nil }

func listenerWithTLS() *limitedListener {
	o := Options{Log: slog.New(slog.DiscardHandler), TLS: &TLS{}, Limits: DefaultLimits()}
	return o.Listener(nil).(*limitedListener)
}

// A connection whose other end is gone without a word ends in time.
func TestConnectionsToWhatIsGone(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	set := map[int]int{unix.TCP_KEEPIDLE: 0, unix.TCP_KEEPINTVL: 0, unix.TCP_KEEPCNT: 0}
	if err := raw.Control(func(fd uintptr) {
		for option := range set {
			set[option], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if seconds := set[unix.TCP_KEEPIDLE] + set[unix.TCP_KEEPINTVL]*set[unix.TCP_KEEPCNT]; time.Duration(seconds)*time.Second != controller.Gone {
		t.Errorf("missed after %d s: %v", seconds, set)
	}
}

// Any number of nodes may have one network or one address, and a host beside them that
// connects as often as it may keeps none of them out.
func TestNodesOfOneNetwork(t *testing.T) {
	for name, address := range map[string]func(n int) string{
		"IPv6":        func(n int) string { return fmt.Sprintf("fd00:1:2:3::%x", n+1) },
		"IPv4":        func(n int) string { return fmt.Sprintf("10.1.%d.%d", n/200, n%200+1) },
		"IPv4 by NAT": func(int) string { return "192.0.2.1" },
	} {
		t.Run(name, func(t *testing.T) {
			l := listenerWithTLS()
			stranger := map[bool]string{true: "fd00:1:2:3::ffff", false: "10.1.255.255"}[name == "IPv6"]
			for n := range l.most {
				if conn, _ := l.admit(from{address: stranger}); conn == nil {
					t.Fatalf("connection %d of an address is refused", n+1)
				}
			}
			if conn, _ := l.admit(from{address: stranger}); conn != nil {
				t.Error("an address has more connections than the limit")
			}
			for n := range 3000 {
				conn, _ := l.admit(from{address: address(n)})
				if conn == nil {
					t.Fatalf("node %d is refused", n+1)
				}
				if err := countAsNode(conn, fmt.Sprintf("n%d", n)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A node has its own limit, wherever it is, and what it has is free when it is closed.
func TestConnectionsOfANode(t *testing.T) {
	l := listenerWithTLS()
	var open []*limitedConn
	for n := range l.most {
		conn, _ := l.admit(from{address: fmt.Sprintf("10.0.0.%d", n+1)})
		if err := countAsNode(conn, "n1"); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	more, _ := l.admit(from{address: "10.0.1.1"})
	if err := countAsNode(more, "n1"); !errors.Is(err, kb.ErrExhausted) {
		t.Errorf("one more: %v", err)
	}
	for _, conn := range append(open, more) {
		_ = conn.Close()
		_ = conn.Close()
	}
	for what, s := range map[string]*limit.Semaphore{"all": l.all, "addresses": l.addresses, "networks": l.networks, "nodes": l.nodes} {
		if _, held := s.Held(""); held != 0 {
			t.Errorf("%s: %d are counted, and none is open", what, held)
		}
	}
	if err := countAsNode(more, "n1"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection that is closed: %v", err)
	}
}

// Who has a whole IPv6 network does not take the places of all others.
func TestAddressesOfOneNetwork(t *testing.T) {
	l := listenerWithTLS()
	held := 0
	for n := range 10_000 {
		if conn, _ := l.admit(from{address: fmt.Sprintf("fd00:1:2:3::%x", n+1)}); conn != nil {
			held++
		}
	}
	if held != l.ofNetwork || held > DefaultLimits().Unauthenticated/2 {
		t.Errorf("%d connections of one network", held)
	}
	if conn, _ := l.admit(from{address: "fd00:1:2:4::1"}); conn == nil {
		t.Error("another network is refused")
	}
}

// The same holds for rates: a host's are its own, and a network of hosts has some times as many.
func TestRatesOfOneNetwork(t *testing.T) {
	r := newAddressRates(limit.Rate{PerSecond: 0.01, Burst: 5})
	took := func(address string) (n int) {
		for range 20 {
			if r.Take(address) == 0 {
				n++
			}
		}
		return n
	}
	for _, address := range []string{"[fd00:1:2:3::1]:700", "[fd00:1:2:3::2%eth0]:700", "10.0.0.1:700", "10.0.0.2:701"} {
		if n := took(address); n != 5 {
			t.Errorf("%s: %d of 5", address, n)
		}
	}
	total := 10
	for n := range 100 {
		total += took(fmt.Sprintf("fd00:1:2:3::1:%x", n))
	}
	if total != networkRates*5 {
		t.Errorf("a network took %d", total)
	}
	if wait := r.Wait("fd00:1:2:3::ff"); wait < time.Second {
		t.Errorf("one more of the network waits %v", wait)
	}
}
