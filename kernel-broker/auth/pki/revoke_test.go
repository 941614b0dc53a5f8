// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// out checks that a revoked node is out: refused now, later and after a restart,
// its connections cut, and let in again by a new token.
func (s *site) out(name string, node *source) {
	s.t.Helper()
	cut := 0
	s.registry.OnVoid(func(string) { cut++ })
	if err := s.registry.Revoke(s.t.Context(), "n1", "test", "stolen"); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if cut != 1 {
		s.t.Errorf("%s: connections were cut %d times", name, cut)
	}
	for i := range 2 { // the second time as after a restart
		if err := s.registry.Accept(node.peer(s.t)); !errors.Is(err, kb.ErrDenied) {
			s.t.Errorf("%s, round %d: accepted: %v", name, i, err)
		}
		if _, err := s.registry.Renew(s.t.Context(), node.peer(s.t), newAsker(s.t).request); !errors.Is(err, kb.ErrDenied) {
			s.t.Errorf("%s, round %d: renewed: %v", name, i, err)
		}
		s.open()
	}
	// A clock that is far behind has to be set right before that.
	if ahead := node.pair.Leaf.NotBefore.Sub(s.clock.Now()); ahead > maxAhead {
		s.clock.pass(ahead)
	}
	if err := s.registry.Accept(s.enrol("n1").peer(s.t)); err != nil {
		s.t.Errorf("%s: after a new token: %v", name, err)
	}
}

// A revocation that was acknowledged holds, whatever the clocks say.
func TestRevokedWhateverTheClockSays(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	s.clock.pass(-20 * time.Second)
	s.out("the clock was set back", node)

	s = newSite(t)
	node = s.enrol("n1")
	s.clock = &clock{now: s.clock.Now().Add(-30 * time.Second)}
	s.open()
	s.out("another broker, whose clock is behind", node)

	s = newSite(t)
	s.clock.now = s.clock.now.Truncate(time.Second).Add(100 * time.Millisecond)
	s.enrol("n1")
	s.out("once", s.enrol("n1"))
	node = s.enrol("n1") // begins with the next second
	s.clock.pass(500 * time.Millisecond)
	s.out("again within the second", node)

	// An older certificate, renewed while the clock was behind: the renewal is
	// the last on record, and begins first.
	s = newSite(t)
	node = s.enrol("n1")
	s.clock.pass(-time.Hour)
	if _, err := s.registry.Renew(t.Context(), node.peer(t), newAsker(t).request); err != nil {
		t.Fatal(err)
	}
	s.out("renewed while the clock was behind", node)
}

// However many certificates were signed while the clock was behind, the one from
// before is void with a revocation.
func TestRevokedAfterManyCertificates(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	s.clock.pass(-2 * time.Minute)
	for range 3 * keepIssued {
		s.enrol("n1")
	}
	s.out("after many", node)
}

// A certificate from a clock that was far ahead is void with a revocation. Until
// it would begin none can be told from it, so none is signed, and it is said why.
func TestRevokedFromAClockFarAhead(t *testing.T) {
	s := newSite(t)
	s.clock.pass(time.Hour)
	node := s.enrol("n1")
	s.clock.pass(-time.Hour)
	if err := s.registry.Revoke(t.Context(), "n1", "test", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.registry.Accept(node.peer(t)); !errors.Is(err, kb.ErrDenied) {
		t.Errorf("accepted: %v", err)
	}
	token := s.token("n1")
	_, err := s.registry.Enrol(t.Context(), "n1", token.Secret, newAsker(t).request)
	if !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "clock") {
		t.Errorf("before that time: %v", err)
	}
	s.clock.pass(time.Hour - time.Minute)
	c, err := s.registry.Enrol(t.Context(), "n1", token.Secret, newAsker(t).request)
	if err != nil || !c.Chain[0].NotBefore.After(node.pair.Leaf.NotBefore) {
		t.Errorf("with the same token, when it is time: %v", err)
	}
}

// A broker that remembers a revocation from a clock ahead of this one's learns
// of the next one all the same.
func TestRevokedAgainByAClockThatIsBehind(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	s.clock.pass(10 * time.Second)
	if err := s.registry.Revoke(t.Context(), "n1", "test", ""); err != nil {
		t.Fatal(err)
	}
	first := s.enrol("n1")
	s.clock.pass(-10 * time.Second)
	s.out("revoked again", first)
	if err := s.registry.Accept(node.peer(t)); !errors.Is(err, kb.ErrDenied) {
		t.Errorf("the certificate from before: %v", err)
	}
}
