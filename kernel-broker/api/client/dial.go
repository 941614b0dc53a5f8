// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// maxReceive fits the list of all jobs.
const maxReceive = 32 << 20

// Target converts an address (unix:///path, /path, or host:port) to gRPC's form.
func Target(address string) (string, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	path = strings.TrimPrefix(path, "//")
	if isUnix || strings.HasPrefix(address, "/") {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("address %q: the path of the socket is not absolute: %w", address, kb.ErrInvalid)
		}
		return "unix://" + path, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("address %q is neither unix:///path nor host:port: %w", address, kb.ErrInvalid)
	}
	return "dns:///" + address, nil
}

// Dial returns a connection to the broker. It does not wait: the first call fails if the broker is away, and a lost
// connection is restored within a second of its return.
func Dial(address string, trust Trust, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	target, err := Target(address)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(trust.transport(target)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithChainUnaryInterceptor(retry),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		// Detects a broker that hangs with an open socket.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		// A proxy for the web is no way to the broker.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("broker at %s: %w", address, err)
	}
	return conn, nil
}
