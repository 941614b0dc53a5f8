// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is the broker's, which tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const lifetime = 30 * 24 * time.Hour

// site is an authority with its registry.
type site struct {
	t         testing.TB
	file      string // with the key of the secrets
	clock     *clock
	store     store.Store
	secrets   *sealed.Box
	authority *Authority
	registry  *Registry
}

func newSite(t testing.TB) *site {
	t.Helper()
	kept := memstore.New()
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	// TLS judges by the real time, so the clock begins there.
	s := &site{t: t, file: filepath.Join(t.TempDir(), "key"), clock: &clock{now: time.Now()}, store: kept}
	s.open()
	return s
}

// open opens both as a broker that starts does.
func (s *site) open() {
	s.t.Helper()
	var err error
	s.secrets, err = sealed.Open(s.t.Context(), s.store, sealed.Options{Cluster: "lab", File: s.file, Begin: true})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := Found(s.t.Context(), s.options(), ""); err != nil {
		s.t.Fatal(err)
	}
	s.authority, err = OpenAuthority(s.t.Context(), s.options())
	if err != nil {
		s.t.Fatal(err)
	}
	s.registry, err = OpenRegistry(s.t.Context(), RegistryOptions{
		Store: s.store, Cluster: "lab", Authority: s.authority, Log: slog.New(slog.DiscardHandler), Now: s.clock.Now,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) options() Options {
	return Options{Secrets: s.secrets, Cluster: "lab", Host: "ctl", Lifetime: lifetime, Now: s.clock.Now}
}

// generations are the names of the records with keys.
func (s *site) generations() []string {
	s.t.Helper()
	records, _, err := s.store.List(s.t.Context(), AuthorityPrefix)
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, r := range records {
		names = append(names, r.Key)
	}
	return names
}

func (s *site) remove(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if _, err := s.store.Commit(s.t.Context(), store.Write{Key: name, Delete: true, Expect: store.AnyRevision}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) token(node string) mtls.Token {
	s.t.Helper()
	token, _, err := s.registry.CreateToken(s.t.Context(), node, 0, "test")
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// asker is a node with a key and a request for it.
type asker struct {
	key     *ecdsa.PrivateKey
	request []byte
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := mtls.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAsker(t testing.TB) *asker {
	t.Helper()
	key := newKey(t)
	request, err := mtls.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	return &asker{key: key, request: request}
}

// got takes the credentials; the node then is an mtls.Source.
func (a *asker) got(c Credentials) *source {
	pair := tls.Certificate{PrivateKey: a.key, Leaf: c.Chain[0]}
	for _, link := range c.Chain {
		pair.Certificate = append(pair.Certificate, link.Raw)
	}
	return &source{pair: &pair, authorities: c.Authorities}
}

type source struct {
	pair        *tls.Certificate
	authorities []*x509.Certificate
}

func (s *source) Certificate() (*tls.Certificate, error)    { return s.pair, nil }
func (s *source) Authorities() ([]*x509.Certificate, error) { return s.authorities, nil }

func (s *source) peer(t testing.TB) mtls.Peer {
	t.Helper()
	name, err := mtls.NameOf(s.pair.Leaf)
	if err != nil {
		t.Fatal(err)
	}
	return mtls.Peer{Name: name, Certificate: s.pair.Leaf}
}

// enrol makes a node with a certificate.
func (s *site) enrol(node string) *source {
	s.t.Helper()
	a := newAsker(s.t)
	c, err := s.registry.Enrol(s.t.Context(), node, s.token(node).Secret, a.request)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.got(c)
}

// shake does a real handshake over loopback and returns what each side says.
func shake(t testing.TB, server, client *tls.Config) (who mtls.Peer, serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer conn.Close()
		secured := tls.Server(conn, server)
		if serverErr = secured.HandshakeContext(t.Context()); serverErr != nil {
			return
		}
		who, serverErr = mtls.PeerOf(secured.ConnectionState())
		_, err = secured.Write([]byte("x"))
		serverErr = errors.Join(serverErr, err)
	})
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	secured := tls.Client(conn, client)
	// In TLS 1.3 a client hears of a refusal with its first read.
	if clientErr = secured.HandshakeContext(t.Context()); clientErr == nil {
		_, clientErr = secured.Read(make([]byte, 1))
	}
	_ = conn.Close()
	serving.Wait()
	return who, serverErr, clientErr
}

func (s *site) server() *tls.Config { return mtls.ServerConfig(s.authority, "lab", s.registry.Accept) }
