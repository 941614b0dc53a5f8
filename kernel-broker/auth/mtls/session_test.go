// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

// changing is a source whose certificate and authorities a test sets.
type changing struct {
	own         *tls.Certificate
	authorities []*x509.Certificate
}

func (c *changing) Certificate() (*tls.Certificate, error)    { return c.own, nil }
func (c *changing) Authorities() ([]*x509.Certificate, error) { return c.authorities, nil }

func authority(t *testing.T) *x509.Certificate {
	t.Helper()
	_, der := someCertificate(t)
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Keys of tickets are used for a day, and with the same authorities: who steals one can
// pose as the nodes that had a ticket meanwhile.
func TestTicketKeysChange(t *testing.T) {
	source := &changing{authorities: []*x509.Certificate{authority(t)}}
	keys := tickets{config: &tls.Config{MinVersion: tls.VersionTLS13}, visitors: visitors{own: source}}
	now := time.Now()
	settings := func() *tls.Config {
		c, err := keys.current(now)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	last := settings()
	changed := func(what string, want bool) {
		t.Helper()
		c := settings()
		if (c != last) != want {
			t.Errorf("%s: the keys changed: %v, want %v", what, c != last, want)
		}
		last = c
	}
	now = now.Add(23 * time.Hour)
	changed("within a day", false)
	source.authorities = []*x509.Certificate{source.authorities[0]}
	changed("the same authorities, read again", false)
	now = now.Add(2 * time.Hour)
	changed("after a day", true)
	now = now.Add(-time.Minute * 90)
	changed("by a clock that is set back", true)
	source.authorities = append([]*x509.Certificate{authority(t)}, source.authorities...)
	changed("one authority more", true)
	source.authorities = source.authorities[:1]
	changed("one authority less", true)
	changed("again", false)
}

// A resumed session is not verified again while nothing changed since it began.
func TestWhatVouchesForASession(t *testing.T) {
	source := &changing{authorities: []*x509.Certificate{authority(t)}}
	v, node, now := visitors{own: source}, []*x509.Certificate{authority(t)}, time.Now()
	before := source.authorities
	for name, c := range map[string]struct {
		now, vouching []*x509.Certificate
		at            time.Time
		want          bool
	}{
		"nothing changed":                    {before, before, now, true},
		"read again":                         {slices.Clone(before), before, now, true},
		"a certificate has ended":            {before, before, node[0].NotAfter.Add(time.Second), false},
		"other authorities":                  {[]*x509.Certificate{authority(t)}, before, now, false},
		"changed while the handshake waited": {before, []*x509.Certificate{authority(t)}, now, false},
		"no ticket's authorities":            {before, nil, now, false},
	} {
		source.authorities = c.now
		if got := v.vouched(node, c.vouching, c.at); got != c.want {
			t.Errorf("%s: vouched for: %v, want %v", name, got, c.want)
		}
	}
}

// A client's session is of one broker, and of the certificate that the client shows.
func TestSessionOfACertificate(t *testing.T) {
	source := &changing{own: &tls.Certificate{Certificate: [][]byte{{1}}}}
	s := &session{own: source}
	shows := func() {
		if _, err := s.shown(); err != nil {
			t.Fatal(err)
		}
	}
	has := func(what, broker string, want bool) {
		t.Helper()
		if _, got := s.Get(broker); got != want {
			t.Errorf("%s: a session: %v, want %v", what, got, want)
		}
	}
	has("before the first", "b", false)
	shows()
	s.Put("b", &tls.ClientSessionState{})
	has("then", "b", true)
	has("for another broker", "c", false)
	source.own = &tls.Certificate{Certificate: [][]byte{{1}}}
	has("with the same certificate, read again", "b", true)
	source.own = &tls.Certificate{Certificate: [][]byte{{2}}}
	has("with a new certificate", "b", false)
	// A ticket of the connection before comes late.
	s.Put("b", &tls.ClientSessionState{})
	has("with a ticket of the old certificate", "b", false)
	shows()
	s.Put("b", &tls.ClientSessionState{})
	has("after a full handshake", "b", true)
	s.Put("b", nil)
	has("dropped", "b", false)
	source.own = nil
	shows()
	s.Put("b", &tls.ClientSessionState{})
	has("of a client without a certificate", "b", true)
}
