// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// explain adds to an error of etcd's what an administrator can do about it. Where etcd does not answer, it looks how far
// each endpoint can be reached.
func explain(ctx context.Context, cfg Config, prefix string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("user %q or the password is wrong: correct etcd.user and etcd.password_file, or run: etcdctl user passwd %s: %w", cfg.User, cfg.User, err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("it asks for a user: set etcd.user and etcd.password_file, or etcd.certificate with the user's name as its CN: %w", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return denied(cfg, prefix, []string{"read"}, err)
	case ctx.Err() != nil, errors.Is(err, errOwn):
		return err
	}
	causes := make([]error, len(cfg.Endpoints))
	var all sync.WaitGroup
	for i, endpoint := range cfg.Endpoints {
		all.Go(func() { causes[i] = reach(ctx, cfg, endpoint) })
	}
	all.Wait()
	var texts []string
	for i, cause := range causes {
		if cause == nil {
			cause = fmt.Errorf("it can be reached and does not serve: see its log, and whether more than half of its members run (etcdctl endpoint status --cluster): %w", err)
		}
		texts = append(texts, fmt.Sprintf("%s: %v", cfg.Endpoints[i], cause))
	}
	return explained{strings.Join(texts, "; "), err}
}

// explained has the causes of an error, and is that error.
type explained struct {
	text string
	err  error
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.err }

// denied names the rights that a user lacks, and who gives them.
func denied(cfg Config, prefix string, rights []string, err error) error {
	user := fmt.Sprintf("user %q", cfg.User)
	if cfg.User == "" {
		user = "the user that etcd.certificate names"
	}
	return fmt.Errorf("%s may not %s below %q: give a role of this user the right: etcdctl role grant-permission ROLE --prefix=true readwrite %s: %w",
		user, strings.Join(rights, ", "), prefix, prefix, err)
}

// reach says what keeps a client from an endpoint; nil: nothing.
func reach(ctx context.Context, cfg Config, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	network, address := "tcp", u.Host
	if u.Scheme == "unix" {
		network, address = "unix", u.Path
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return unreached(err, u.Hostname())
	}
	defer func() { _ = conn.Close() }()
	if u.Scheme == "unix" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if secured(endpoint) {
		if config, err = (handshake{cfg.TLS}).config(); err != nil {
			return err
		}
	}
	config.ServerName = u.Hostname()
	client := tls.Client(conn, config)
	err = client.HandshakeContext(ctx)
	if !secured(endpoint) {
		if errors.As(err, new(*tls.CertificateVerificationError)) {
			return errors.New("it speaks TLS: write https:// into etcd.endpoints, and set etcd.ca")
		}
		return nil
	}
	if err == nil {
		err = accepted(client)
	}
	return untrusted(err, u.Hostname())
}

// accepted waits for the refusal of the client's certificate, which TLS 1.3 has after the handshake.
func accepted(conn *tls.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // etcd waits for a request
	}
	return err
}

func unreached(err error, host string) error {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("this host knows no %q: correct etcd.endpoints, or the name service: %w", host, err)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("nothing listens there: start etcd, or correct etcd.endpoints: %w", err)
	}
	return fmt.Errorf("it cannot be reached: is the host up, and does a firewall let this host through: %w", err)
}

func untrusted(err error, host string) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return fmt.Errorf("its certificate is of an authority that this host does not trust: name the file with that authority in etcd.ca: %w", err)
	case errors.As(err, &name):
		return fmt.Errorf("its certificate is not for %q: write a name of the certificate into etcd.endpoints, or have one made for this one: %w", host, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("its certificate is over, or not valid yet: have a new one made, or set this host's clock: %w", err)
	case errors.As(err, &record):
		return fmt.Errorf("it speaks no TLS: write http:// into etcd.endpoints, or give etcd a certificate (--cert-file, --key-file): %w", err)
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert of TLS
		return fmt.Errorf("it refuses this client: set etcd.certificate and etcd.key to a certificate of the authority that it trusts (--trusted-ca-file): %w", err)
	}
	return fmt.Errorf("TLS: %w", err)
}
