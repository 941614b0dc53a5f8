// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
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

// Trust is how the broker authenticates over the network. Callers have no certificates.
type Trust struct {
	// CA is the file of the authorities to believe; empty: no TLS.
	CA string `yaml:"ca"`
	// Cluster of the broker; empty: any.
	Cluster string `yaml:"cluster"`
}

// transport returns the security of a connection. The local socket needs none: the kernel and the permissions of its
// folder identify both ends.
func (t Trust) transport(target string) credentials.TransportCredentials {
	if t.CA == "" || strings.HasPrefix(target, "unix:") {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(mtls.ClientConfig(mtls.NewFiles(mtls.Paths{Authorities: t.CA}), t.Cluster))
}

// RetryAfter returns the wait before a call refused for overload may be repeated, if the broker gave one.
func RetryAfter(err error) (wait time.Duration, said bool) {
	made, ok := status.FromError(err)
	if !ok || made.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range made.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}

// maxRetries limits the number of retries of a call.
const maxRetries = 5

// retry repeats a call after the wait that the broker gave, within the deadline. It precedes authentication: each try
// needs its own proof.
func retry(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	for try := 1; ; try++ {
		err := invoke(ctx, method, request, reply, conn, o...)
		wait, said := RetryAfter(err)
		if !said || try > maxRetries {
			return err
		}
		if end, has := ctx.Deadline(); has && time.Until(end) <= wait {
			return err // which is more specific than a timeout
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
