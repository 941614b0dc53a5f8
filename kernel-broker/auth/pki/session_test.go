// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// visitor is a node that connects again and again, as gRPC does: with one configuration.
type visitor struct {
	*site
	node   *source
	server *tls.Config
	client *tls.Config
}

func newVisitor(s *site) *visitor {
	v := &visitor{site: s, node: s.enrol("n1"), server: s.server()}
	v.client = mtls.ClientConfig(v.node, "lab")
	v.client.ServerName = "broker" // as gRPC sets it, sessions are kept by it
	return v
}

// connects reports whether the broker resumed a session, and who it saw.
func (v *visitor) connects() (resumed bool, who mtls.Peer, err error) {
	v.t.Helper()
	server := v.server.Clone()
	server.VerifyConnection = nil // of the settings that are chosen for the handshake
	choose := v.server.GetConfigForClient
	server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		chosen, err := choose(hello)
		if err != nil {
			return nil, err
		}
		verify := chosen.VerifyConnection
		chosen = chosen.Clone()
		chosen.VerifyConnection = func(state tls.ConnectionState) error {
			resumed = state.DidResume
			return verify(state)
		}
		return chosen, nil
	}
	who, serverErr, clientErr := shake(v.t, server, v.client)
	return resumed, who, errors.Join(serverErr, clientErr)
}

func (v *visitor) wants(what string, resumes bool) {
	v.t.Helper()
	resumed, who, err := v.connects()
	if err != nil || resumed != resumes || who.Name.Name != "n1" || !who.Certificate.Equal(v.node.pair.Leaf) {
		v.t.Errorf("%s: resumed %v, want %v; the broker sees %v, %v", what, resumed, resumes, who.Name, err)
	}
}

// A node that comes back resumes its session, and is the node that it was.
func TestSessionsAreResumed(t *testing.T) {
	v := newVisitor(newSite(t))
	v.wants("the first time", false)
	for range 3 {
		v.wants("again", true)
	}
	v.server = v.site.server()
	v.wants("to a broker that has begun anew", false)
	v.wants("and again", true)
}

// A session does not bring a revoked node in.
func TestARevokedNodeResumesNothing(t *testing.T) {
	s := newSite(t)
	s.clock.pass(-time.Minute) // TLS judges by the real time
	v := newVisitor(s)
	v.wants("the first time", false)
	v.wants("again", true)
	v.clock.pass(time.Minute / 2)
	if err := v.registry.Revoke(t.Context(), "n1", "test", "stolen"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if resumed, who, err := v.connects(); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("resumed %v, as %v, %v", resumed, who.Name, err)
		}
	}
	// With a new certificate the session of the old one is not asked for.
	v.clock.pass(time.Minute / 2)
	*v.node = *v.enrol("n1")
	v.wants("after a new token", false)
	v.wants("again", true)
}

// Nor does one outlive the authorities that were believed when it began.
func TestTicketsEndWithTheAuthority(t *testing.T) {
	v := newVisitor(newSite(t))
	v.wants("the first time", false)
	v.wants("again", true)
	if _, err := v.registry.Rotate(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	v.wants("after a rotation", false)
	v.wants("again", true)
}

// A renewed certificate counts from the next connection on.
func TestANewCertificateBeginsASession(t *testing.T) {
	v := newVisitor(newSite(t))
	v.wants("the first time", false)
	v.wants("again", true)
	a := newAsker(t)
	c, err := v.registry.Renew(t.Context(), v.node.peer(t), a.request)
	if err != nil {
		t.Fatal(err)
	}
	*v.node = *a.got(c)
	v.wants("renewed", false)
	v.wants("again", true)
}

// A session ends with the certificate that it began with, also when the client keeps it.
func TestAnExpiredSessionIsNotResumed(t *testing.T) {
	v := newVisitor(newSite(t))
	v.wants("the first time", false)
	later := func() time.Time { return v.node.pair.Leaf.NotAfter.Add(time.Second) }
	choose := v.server.GetConfigForClient
	v.server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		chosen, err := choose(hello)
		if err == nil {
			chosen = chosen.Clone()
			chosen.Time = later
		}
		return chosen, err
	}
	if resumed, _, _ := v.connects(); resumed {
		t.Error("a session was resumed after the end of its certificate")
	}
}
