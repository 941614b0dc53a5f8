// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
)

// networkShare is the part of the connections without a node's certificate that one
// IPv6 network of 64 bits may have: a host may have any address in it.
const networkShare = 4

// controllerShare is the part of all connections that none but the backup controllers
// may have.
const controllerShare = 16

// Listen listens for nodes and users. The hosts' kernels ask each other for signs of life, so that a node is missed in time
// whose host or network is gone.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	signs := net.KeepAliveConfig{Enable: true, Idle: controller.Gone - 30*time.Second, Interval: 10 * time.Second, Count: 3}
	return (&net.ListenConfig{KeepAliveConfig: signs}).Listen(ctx, "tcp", address)
}

// Listener limits the connections of l. Connections over a limit are closed
// immediately: making them wait would keep all behind them waiting. Only for a place
// among those whose client is not known yet a connection waits, before its handshake:
// all nodes of a cluster may connect at once.
func (o Options) Listener(l net.Listener) net.Listener {
	o = o.orDefaults()
	limited := &limitedListener{Listener: l, most: o.Limits.PeerConnections, ofNetwork: math.MaxInt, ofOthers: math.MaxInt, log: o.Log, sampler: limit.NewLogSampler(logRate),
		all: limit.NewSemaphore(o.Limits.Connections), users: limit.NewSemaphore(o.Limits.Unauthenticated),
		addresses: limit.NewSemaphore(0), networks: limit.NewSemaphore(0), nodes: limit.NewSemaphore(0),
		exempt: slices.Concat(o.always(), o.SlurmUsers), controllers: o.Controllers}
	if o.TLS != nil { // without certificates nodes cannot be told from others
		limited.places = semaphore.NewWeighted(int64(o.Limits.Unauthenticated))
		limited.ofNetwork = max(limited.most, o.Limits.Unauthenticated/networkShare)
	}
	if len(o.Controllers) > 0 {
		limited.ofOthers = o.Limits.Connections - o.Limits.Connections/controllerShare
	}
	return limited
}

type limitedListener struct {
	net.Listener
	most      int // of one address, node or local user
	ofNetwork int // of one IPv6 network
	ofOthers  int // of all but backup controllers
	log       *slog.Logger
	sampler   *limit.LogSampler
	// all are the network's. Until a connection is known to be a node's, it counts
	// for its address and network, from then on for the node: any number of nodes
	// may have one network, or one address.
	all, addresses, networks, nodes *limit.Semaphore
	// places are those of connections that are not known to be a node's; nil: any number.
	places      *semaphore.Weighted
	users       *limit.Semaphore // of this host
	exempt      []uint32         // local users
	controllers []netip.Prefix
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		limited, peer := l.admit(conn)
		if limited != nil {
			return limited, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // leaves nothing in the kernel
		}
		_ = conn.Close() // tells the peer
		l.refused(peer)
	}
}

func (l *limitedListener) refused(peer string) {
	if left, write := l.sampler.Sample(networkOf(peer)); write {
		own, unauthenticated := l.addresses.Held(addressOf(peer))
		ofNetwork, _ := l.networks.Held(networkOf(peer))
		_, all := l.all.Held("")
		l.log.Warn("connection refused: too many", "peer", peer, "of_peer", own, "at_most", l.most, "of_network", ofNetwork,
			"all", all, "unauthenticated", unauthenticated, "left_out", left)
	}
}

// admit returns nil for a connection over the limit.
func (l *limitedListener) admit(conn net.Conn) (limited *limitedConn, peer string) {
	if local, ok := conn.(*net.UnixConn); ok {
		return l.admitLocal(local)
	}
	peer = conn.RemoteAddr().String()
	controller, most := onController(l.controllers, peer), l.ofOthers
	if controller {
		most = math.MaxInt
	}
	release := l.all.TryAcquire("", most)
	if release == nil {
		return nil, peer
	}
	limited = &limitedConn{Conn: conn, release: release, leaveAddress: func() {}, nodes: l.nodes, ofNode: l.most}
	if controller {
		return limited, peer // each job that waits for its kernel has a connection
	}
	address := l.addresses.TryAcquire(addressOf(peer), l.most)
	if address == nil {
		release()
		return nil, peer
	}
	network := l.networks.TryAcquire(networkOf(peer), l.ofNetwork)
	if network == nil {
		address()
		release()
		return nil, peer
	}
	limited.leaveAddress = func() {
		network()
		address()
	}
	limited.places, limited.refused = l.places, func() { l.refused(peer) }
	return limited, peer
}

func (l *limitedListener) admitLocal(conn *net.UnixConn) (limited *limitedConn, peer string) {
	ucred, err := peercred.Of(conn)
	if err != nil {
		return nil, "local socket"
	}
	limited = &limitedConn{Conn: conn, release: func() {}, leaveAddress: func() {}}
	if slices.Contains(l.exempt, ucred.Uid) {
		return limited, ""
	}
	peer = fmt.Sprintf("uid %d", ucred.Uid)
	if limited.release = l.users.TryAcquire(peer, l.most); limited.release == nil {
		return nil, peer
	}
	return limited, peer
}

// limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	// release ends its count among all, leaveAddress among those of its address.
	release, leaveAddress func()
	nodes                 *limit.Semaphore
	ofNode                int
	// places is where it waits for a place; nil: it needs none. refused logs that it had none.
	places  *semaphore.Weighted
	refused func()

	mu        sync.Mutex
	leaveNode func()
	placed    bool
	closed    bool
}

// takePlace waits for a place among the connections whose client is not known yet.
func (c *limitedConn) takePlace(ctx context.Context) error {
	if err := c.places.Acquire(ctx, 1); err != nil {
		if errors.Is(err, context.DeadlineExceeded) { // and not that the server ends
			c.refused()
		}
		return fmt.Errorf("no place for one more client without a node's certificate: %w", kb.ErrExhausted)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.places.Release(1)
		return net.ErrClosed
	}
	c.placed = true
	return nil
}

// leavePlaceLocked gives its place to the next one.
func (c *limitedConn) leavePlaceLocked() {
	c.leaveAddress()
	if c.placed {
		c.placed = false
		c.places.Release(1)
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.leavePlaceLocked()
		c.release()
		if c.leaveNode != nil {
			c.leaveNode()
		}
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// countAsNode counts a connection for the node that it is known to be, and for its
// address no more.
func countAsNode(conn net.Conn, node string) error {
	c, ok := conn.(*limitedConn)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if c.leaveNode = c.nodes.TryAcquire(node, c.ofNode); c.leaveNode == nil {
		return fmt.Errorf("node %q has %d connections, the limit: %w", node, c.ofNode, kb.ErrExhausted)
	}
	c.leavePlaceLocked()
	return nil
}

// unlimited is the connection as the system knows it.
func unlimited(conn net.Conn) net.Conn {
	if limited, ok := conn.(*limitedConn); ok {
		return limited.Conn
	}
	return conn
}
