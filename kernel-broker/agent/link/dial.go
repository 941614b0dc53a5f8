// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"

	"google.golang.org/grpc"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/anybroker"
)

// target returns gRPC's target of the broker's address, or of several with commas. Dial resolves names: gRPC itself would
// also ask DNS for a configuration.
func target(broker string) (string, []grpc.DialOption) {
	addresses := anybroker.Split(broker)
	if len(addresses) == 1 {
		return "passthrough:///" + addresses[0], nil
	}
	return anybroker.Target(addresses)
}

// Ports that only root may dial from. Those below are left to services.
const (
	firstPrivileged = 665
	lastPrivileged  = 1023
)

// Dial dials from a privileged port, which a broker with privileged_agents asks
// for, and from any port where this process may not use one. Each port is tried
// once, beginning anywhere, so that agents that start again do not meet the
// connections that they left behind.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	const count = lastPrivileged - firstPrivileged + 1
	start := rand.IntN(count) //nolint:gosec // G404: where to begin to look for a port is no secret
	for i := range count {
		dialer := net.Dialer{
			LocalAddr: &net.TCPAddr{Port: firstPrivileged + (start+i)%count},
			Control:   leavePortToOthers,
		}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		switch {
		case errors.Is(err, syscall.EACCES):
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL):
			continue
		}
		return conn, err
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// leavePortToOthers lets a service that starts later listen on our port.
func leavePortToOthers(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}

// dialled are connections of a link that may be open, so that one which is dead can be
// closed: gRPC knows no other way. They stay what they are, since gRPC sets options of
// TCP connections.
type dialled struct {
	by func(ctx context.Context, address string) (net.Conn, error)

	mu    sync.Mutex
	conns []net.Conn
}

func (d *dialled) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := d.by(ctx, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(slices.DeleteFunc(d.conns, isClosed), conn)
	return conn, nil
}

// cut closes them.
func (d *dialled) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.conns = nil
}

func isClosed(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}
