// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// protocol is what gRPC wants both ends to agree on.
const protocol = "h2"

// Source gives what an end shows and trusts, as it is now. Its methods are
// called in each handshake, by any goroutine.
type Source interface {
	// Certificate with its key; nil where the end has none.
	Certificate() (*tls.Certificate, error)
	// Authorities whose certificates are believed.
	Authorities() ([]*x509.Certificate, error)
}

// Peer is who was found at the other end.
type Peer struct {
	Name        Name
	Certificate *x509.Certificate
}

// curves of the key exchange. Go's default begins with X25519MLKEM768, with which a
// handshake costs a broker half as much again, to keep a recording secret from quantum
// computers; what agents and brokers say is worth nothing after some minutes. The P
// curves are for clients that may use no other.
var curves = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384}

// ServerConfig is for a broker's listener. Clients may come without a
// certificate; one that they do show has to be a node's of this cluster, and
// accept, which says whether it is still good, must return nil for it: of a resumed
// session, too.
func ServerConfig(own Source, cluster string, accept func(Peer) error) *tls.Config {
	visitors := visitors{own: own, cluster: cluster, accept: accept}
	config := &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{protocol},
		CurvePreferences: curves,
		ClientAuth:       tls.RequestClientCert,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown(own) },
		VerifyConnection: func(state tls.ConnectionState) error { return visitors.check(state, nil, time.Now()) },
	}
	keys := &tickets{config: config.Clone(), visitors: visitors}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return keys.current(time.Now()) }
	return config
}

func shown(own Source) (*tls.Certificate, error) {
	certificate, err := own.Certificate()
	if err == nil && certificate == nil {
		err = errors.New("broker has no certificate")
	}
	return certificate, err
}

// PeerOf returns who a finished handshake of a ServerConfig has shown; nobody
// where there was no certificate.
func PeerOf(state tls.ConnectionState) (Peer, error) {
	if len(state.PeerCertificates) == 0 {
		return Peer{}, nil
	}
	name, err := NameOf(state.PeerCertificates[0])
	return Peer{Name: name, Certificate: state.PeerCertificates[0]}, err
}

// ClientConfig is for who dials a broker: a node, or anybody whose source has
// no certificate. The broker is known by its role in the cluster, not by the
// address that it was found at. An empty cluster means that of the own
// certificate; without one, any that the authorities vouch for. Sessions are resumed
// while the own certificate stays.
func ClientConfig(own Source, cluster string) *tls.Config {
	session := &session{own: own}
	config := clientConfig(session.shown, func(presented []*x509.Certificate) error {
		want, err := clusterOf(own, cluster)
		if err != nil {
			return err
		}
		return verifyBroker(own, presented, want)
	})
	config.ClientSessionCache = session
	return config
}

func clusterOf(own Source, cluster string) (string, error) {
	if cluster != "" {
		return cluster, nil
	}
	pair, err := own.Certificate()
	if err != nil || pair == nil {
		return "", err
	}
	name, err := NameOf(pair.Leaf)
	return name.Cluster, err
}

// PinnedConfig is for a host that has a token or a fingerprint, and no certificate: the broker must
// show a chain to the authority with that fingerprint.
func PinnedConfig(fingerprint string) *tls.Config {
	none := func() (*tls.Certificate, error) { return nil, nil }
	return clientConfig(none, func(presented []*x509.Certificate) error {
		for _, c := range presented {
			if c.IsCA && Fingerprint(c) == fingerprint {
				return verifyBroker(fixed{c}, presented, "")
			}
		}
		return fmt.Errorf("the server is not the broker with that fingerprint: none of its %d certificates has it: %w",
			len(presented), kb.ErrUnauthenticated)
	})
}

// BrokerConfig is for brokers that speak to each other by HTTP, for both ends. Each shows what it shows to clients, and
// is let in by the role in it.
func BrokerConfig(own Source, cluster string) *tls.Config {
	config := clientConfig(func() (*tls.Certificate, error) { return shown(own) }, func(presented []*x509.Certificate) error {
		return verifyBroker(own, presented, cluster)
	})
	config.NextProtos = []string{"http/1.1"}
	config.ClientAuth = tls.RequireAnyClientCert
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown(own) }
	config.SessionTicketsDisabled = true
	return config
}

func clientConfig(certificate func() (*tls.Certificate, error), check func([]*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{protocol},
		CurvePreferences: curves,
		// The standard check compares host names, which say nothing here, and
		// its authorities cannot change: VerifyConnection does all of it.
		InsecureSkipVerify: true, // #nosec G402 -- see the line above
		VerifyConnection:   func(state tls.ConnectionState) error { return check(state.PeerCertificates) },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, err := certificate()
			if err == nil && c == nil {
				c = new(tls.Certificate) // stands for none in TLS
			}
			return c, err
		},
	}
}

func verifyBroker(own Source, presented []*x509.Certificate, cluster string) error {
	if len(presented) == 0 {
		return fmt.Errorf("broker shows no certificate: %w", kb.ErrUnauthenticated)
	}
	peer, err := verify(own, presented, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return err
	}
	if peer.Name.Role != Broker || cluster != "" && peer.Name.Cluster != cluster {
		return fmt.Errorf("the server is %s and not a broker of cluster %q: %w", peer.Name, cluster, kb.ErrUnauthenticated)
	}
	return nil
}

// verify checks a chain against the authorities as they are now.
func verify(own Source, presented []*x509.Certificate, usage x509.ExtKeyUsage) (Peer, error) {
	authorities, err := own.Authorities()
	if err != nil {
		return Peer{}, err
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range authorities {
		options.Roots.AddCert(c)
	}
	for _, c := range presented[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := presented[0].Verify(options); err != nil {
		return Peer{}, fmt.Errorf("certificate with the serial number %x: %w: %w", presented[0].SerialNumber, kb.ErrUnauthenticated, err)
	}
	name, err := NameOf(presented[0])
	return Peer{Name: name, Certificate: presented[0]}, err
}

// fixed is a source that trusts what it was given and has nothing to show.
type fixed []*x509.Certificate

func (fixed) Certificate() (*tls.Certificate, error)      { return nil, nil }
func (f fixed) Authorities() ([]*x509.Certificate, error) { return slices.Clone(f), nil }
