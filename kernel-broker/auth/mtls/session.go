// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// ticketLife is how long a key for session tickets is used. Who steals it can pose as
// each node that had a ticket meanwhile, so it is never written down and soon gone.
const ticketLife = 24 * time.Hour

// visitors are the clients of a broker.
type visitors struct {
	own     Source
	cluster string
	accept  func(Peer) error
}

// check refuses a client whose certificate is not good. TLS runs it for resumed sessions,
// with the certificates that they began with. A ticket is vouched for where it is of a
// key that was made for these authorities.
func (v visitors) check(state tls.ConnectionState, vouching []*x509.Certificate, now time.Time) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	who := func() (Peer, error) { return verify(v.own, state.PeerCertificates, x509.ExtKeyUsageClientAuth) }
	if state.DidResume && v.vouched(state.PeerCertificates, vouching, now) {
		who = func() (Peer, error) { return PeerOf(state) }
	}
	peer, err := who()
	if err != nil {
		return err
	}
	if peer.Name.Cluster != v.cluster || peer.Name.Role != Node {
		return fmt.Errorf("certificate of %s is not one of a node of cluster %q: %w", peer.Name, v.cluster, kb.ErrUnauthenticated)
	}
	return v.accept(peer)
}

// vouched reports whether the certificates of a resumed session are still as good as
// when it began. They were checked then by the authorities of the ticket's key: that is
// enough while these are the ones believed now, and none of all has ended.
func (v visitors) vouched(presented, vouching []*x509.Certificate, now time.Time) bool {
	authorities, err := v.own.Authorities()
	if err != nil || !slices.EqualFunc(authorities, vouching, (*x509.Certificate).Equal) {
		return false
	}
	ended := func(c *x509.Certificate) bool { return now.After(c.NotAfter) }
	return !slices.ContainsFunc(presented, ended) && !slices.ContainsFunc(authorities, ended)
}

// tickets are the settings of a listener with a key for session tickets, which changes
// with the authorities: a session begins again with those that are believed now.
type tickets struct {
	config   *tls.Config
	visitors visitors

	mu          sync.Mutex
	keyed       *tls.Config
	since       time.Time
	authorities []*x509.Certificate
}

// current returns the settings for one handshake. Its check goes by the authorities of
// its key, whatever changes while it is under way.
func (t *tickets) current(now time.Time) (*tls.Config, error) {
	authorities, err := t.visitors.own.Authorities()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	same := slices.EqualFunc(authorities, t.authorities, (*x509.Certificate).Equal)
	if age := now.Sub(t.since); t.keyed == nil || age < 0 || age > ticketLife || !same {
		t.keyed, t.since, t.authorities = t.config.Clone(), now, authorities
		t.keyed.VerifyConnection = func(state tls.ConnectionState) error { return t.visitors.check(state, authorities, time.Now()) }
		var key [32]byte
		rand.Read(key[:])
		t.keyed.SetSessionTicketKeys([][32]byte{key})
	}
	return t.keyed, nil
}

// session is the last ticket that a client got, for one broker at a time. It is used
// with the certificate that it began with and no other: the broker sees the client by
// that one. It implements tls.ClientSessionCache.
type session struct {
	own Source

	mu     sync.Mutex
	broker string
	ticket *tls.ClientSessionState
	of     *tls.Certificate // shown when the session began
	last   *tls.Certificate // shown in the last full handshake
}

// shown returns the certificate for a full handshake.
func (s *session) shown() (*tls.Certificate, error) {
	own, err := s.own.Certificate()
	if err == nil {
		s.mu.Lock()
		s.last = own
		s.mu.Unlock()
	}
	return own, err
}

// Get implements tls.ClientSessionCache.
func (s *session) Get(broker string) (*tls.ClientSessionState, bool) {
	own, err := s.own.Certificate()
	if err != nil {
		return nil, false // the full handshake says why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ticket == nil || s.broker != broker || !sameCertificate(own, s.of) {
		return nil, false
	}
	return s.ticket, true
}

// Put implements tls.ClientSessionCache. The ticket of a resumed session is of the
// certificate that was shown before.
func (s *session) Put(broker string, ticket *tls.ClientSessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker, s.ticket, s.of = broker, ticket, s.last
}

func sameCertificate(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Certificate, b.Certificate, slices.Equal[[]byte])
}
