// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
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
