// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// enrol exchanges the token for a certificate. The key is written to disk first: if the answer is lost, the token
// remains valid for this key only.
func (e *Enroller) enrol(ctx context.Context, token mtls.Token) error {
	if token.Node != e.options.Node {
		return fmt.Errorf("token in %q is for node %q, this is %q: %w", e.options.TokenFile, token.Node, e.options.Node, kb.ErrInvalid)
	}
	key, err := e.nextKey()
	if err != nil {
		return err
	}
	err = e.request(ctx, mtls.PinnedConfig(token.Fingerprint), key, func(ctx context.Context, broker api.TrustServiceClient, request []byte) (*api.Credentials, error) {
		response, err := broker.Enrol(ctx, &api.EnrolRequest{Node: token.Node, Secret: token.Secret, CertificateRequest: request})
		return response.GetCredentials(), err
	})
	if err != nil {
		return fmt.Errorf("enrolment: %w", err)
	}
	// Remove the used token first: if interrupted, the leftover key only causes one more refused enrolment.
	return errors.Join(os.Remove(e.options.TokenFile), os.Remove(e.nextPath()))
}

// renew uses the valid certificate to get one for a new key. The key is written to disk first, so that no certificate is
// stored without it.
func (e *Enroller) renew(ctx context.Context, own mtls.Peer) error {
	key, err := e.nextKey()
	if err == nil && sameKey(key, own.Certificate) {
		// It was kept already, and an interruption followed.
		if err = os.Remove(e.nextPath()); err == nil {
			key, err = e.nextKey()
		}
	}
	if err != nil {
		return err
	}
	err = e.request(ctx, mtls.ClientConfig(e.files, own.Name.Cluster), key, func(ctx context.Context, broker api.TrustServiceClient, request []byte) (*api.Credentials, error) {
		response, err := broker.Renew(ctx, &api.RenewRequest{CertificateRequest: request})
		return response.GetCredentials(), err
	})
	if err != nil {
		return fmt.Errorf("renewal: %w", err)
	}
	if _, err := os.Lstat(e.options.TokenFile); err == nil {
		// The token may have been used for this key with the answer lost, so ask with it again. The next renewal takes
		// another key.
		return nil
	}
	return os.Remove(e.nextPath())
}

func sameKey(key crypto.Signer, of *x509.Certificate) bool {
	public, can := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return can && public.Equal(of.PublicKey)
}

// request asks for a certificate for the key and stores it. It uses its own connection: closing it affects no stream.
func (e *Enroller) request(ctx context.Context, config *tls.Config, key crypto.Signer, call func(context.Context, api.TrustServiceClient, []byte) (*api.Credentials, error)) (err error) {
	request, err := mtls.NewRequest(key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	to, several := target(e.options.Broker)
	conn, err := grpc.NewClient(to, append(several,
		grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithContextDialer(Dial), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: dialLimit}))...)
	if err != nil {
		return fmt.Errorf("broker %q: %w", e.options.Broker, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	issued, err := call(ctx, api.NewTrustServiceClient(conn), request)
	if err != nil {
		return err
	}
	return e.keep(key, issued)
}

// keep stores the broker's certificate if it is for this node and this key.
func (e *Enroller) keep(key crypto.Signer, c *api.Credentials) error {
	chain, err := mtls.ParseDER(c.GetChain())
	if err != nil {
		return fmt.Errorf("certificate from the broker: %w", err)
	}
	authorities, err := mtls.ParseDER(c.GetAuthorities())
	if err != nil {
		return fmt.Errorf("authorities from the broker: %w", err)
	}
	if len(chain) == 0 || len(authorities) == 0 {
		return fmt.Errorf("certificate from the broker: %d in its chain, %d authorities: %w", len(chain), len(authorities), kb.ErrInvalid)
	}
	name, err := mtls.NameOf(chain[0])
	if err != nil {
		return err
	}
	if name.Role != mtls.Node || name.Name != e.options.Node {
		return fmt.Errorf("certificate from the broker is of %s: %w", name, kb.ErrInvalid)
	}
	return e.options.Paths.Keep(key, chain, authorities)
}

func (e *Enroller) nextPath() string {
	return filepath.Join(filepath.Dir(e.options.Paths.Key), "next.key")
}

// nextKey returns the key that an enrolment or a renewal was begun with, or a new one.
func (e *Enroller) nextKey() (crypto.Signer, error) {
	path := e.nextPath()
	text, err := os.ReadFile(path)
	if err == nil {
		if key, ok := parseKey(text); ok {
			return key, nil
		}
		e.options.Log.Warn("key of an enrolment is damaged, another is made", "file", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("key of the node: %w", err)
	}
	key, err := mtls.NewKey()
	if err != nil {
		return nil, fmt.Errorf("key of the node: %w", err)
	}
	if text, err = mtls.EncodeKey(key); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("key of the node: %w", err)
	}
	return key, atomicfile.Write(path, text, 0o600)
}

func parseKey(text []byte) (crypto.Signer, bool) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, false
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, false
	}
	signer, ok := key.(crypto.Signer)
	return signer, ok
}
