// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// secured reports whether an endpoint is reached by TLS.
func secured(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") }

// clients are the connections to one etcd.
type clients struct {
	*clientv3.Client
	login *clientv3.Client // nil: nobody authenticates
}

// connect makes the client. It authenticates, if there is a user.
func connect(cfg Config) (clients, error) {
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: cfg.Timeout})}
	if secured(cfg.Endpoints[0]) {
		options = append(options, grpc.WithTransportCredentials(handshake{cfg.TLS}))
	}
	c := clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          cfg.Timeout,
		DialKeepAliveTime:    keepAliveInterval,
		DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions:          options,
		// The client logs every retry; relevant failures are returned as errors.
		Logger: zap.NewNop(),
	}
	if cfg.User == "" {
		client, err := clientv3.New(c)
		return clients{Client: client}, err
	}
	login, err := clientv3.New(c)
	if err != nil {
		return clients{}, err
	}
	c.Username = cfg.User
	if c.Password, err = cfg.Password(); err != nil {
		_ = login.Close() // nothing was sent
		return clients{}, fmt.Errorf("%w: %w", errOwn, err)
	}
	client, err := clientv3.New(c)
	if err != nil {
		_ = login.Close() // nothing was sent
		return clients{}, err
	}
	client.Auth = passwords{client.Auth, login, cfg.Password}
	return clients{client, login}, nil
}

// Close ends the connections.
func (c clients) Close() error {
	err := c.Client.Close()
	if c.login != nil {
		err = errors.Join(err, c.login.Close())
	}
	return err
}

// errOwn is what is wrong on this side.
var errOwn = errors.New("not asked")

// passwords authenticates with the password as it is now. The client asks for a new token when etcd no longer knows the
// old one. It sends the old one with that question, which etcd 3.4 refuses, and then asks again without end; so another
// client asks, which has no token.
type passwords struct {
	clientv3.Auth
	login *clientv3.Client
	read  func() (string, error)
}

func (p passwords) Authenticate(ctx context.Context, user, _ string) (*clientv3.AuthenticateResponse, error) {
	password, err := p.read()
	if err != nil {
		return nil, err
	}
	return p.login.Authenticate(ctx, user, password)
}

// handshake is gRPC's TLS with a configuration that is read for each connection.
type handshake struct {
	read func() (*tls.Config, error) // nil: Go's defaults
}

func (h handshake) config() (*tls.Config, error) {
	if h.read == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	return h.read()
}

func (h handshake) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := h.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (handshake) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("server: %w", store.ErrInvalid)
}

func (handshake) Info() credentials.ProtocolInfo { return credentials.NewTLS(nil).Info() }

func (h handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials, which has deprecated it.
func (handshake) OverrideServerName(string) error { return nil }
