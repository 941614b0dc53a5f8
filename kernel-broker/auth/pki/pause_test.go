// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// size is what the record of a node takes in the store.
func (s *site) size(node string) (bytes int, revision int64) {
	s.t.Helper()
	rec, err := s.store.Get(s.t.Context(), recordPrefix+node)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(rec.Value), rec.Revision
}

func (s *site) issued(node string) []Issued {
	s.t.Helper()
	list, err := s.registry.List(s.t.Context(), node)
	if err != nil {
		s.t.Fatal(err)
	}
	return list[0].Issued
}

// wantLater checks that a call was refused for a while, and returns for how long.
func wantLater(t *testing.T, what string, err error) time.Duration {
	t.Helper()
	var later *kb.RetryableError
	if !errors.As(err, &later) || !errors.Is(err, kb.ErrExhausted) {
		t.Fatalf("%s: %v", what, err)
	}
	if later.Wait <= 0 {
		t.Fatalf("%s: come back in %v", what, later.Wait)
	}
	return later.Wait
}

// A node that renews without end has its record written a few times, and what
// stays in it is bounded; nobody else notices.
func TestAThousandRenewals(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	_, before := s.size("n1")
	for range 1000 {
		_, err := s.registry.Renew(t.Context(), node.peer(t), newAsker(t).request)
		if wait := wantLater(t, "a renewal at once", err); wait > lifetime/pausePart {
			t.Fatalf("come back in %v", wait)
		}
	}
	if _, after := s.size("n1"); after != before {
		t.Errorf("refusals moved the store from revision %d to %d", before, after)
	}
	// As often as it may, for a year and at the end with every certificate.
	most := 0
	for range 365 * 24 * time.Hour / (lifetime / pausePart) {
		s.clock.pass(lifetime / pausePart)
		a := newAsker(t)
		c, err := s.registry.Renew(t.Context(), node.peer(t), a.request)
		if err != nil {
			t.Fatal(err)
		}
		node = a.got(c)
		bytes, _ := s.size("n1")
		most = max(most, bytes)
	}
	if kept := len(s.issued("n1")); kept > keepIssued || most > 4096 {
		t.Errorf("%d certificates on record, and up to %d bytes", kept, most)
	}
	t.Logf("the record takes up to %d bytes", most)
	s.enrol("n2")
}

// An agent whose renewal was answered, and who did not receive the answer, asks again
// with the key that it made: it gets what was signed, and nothing is written.
func TestARenewalThatWasNotAcknowledged(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	s.clock.pass(20 * 24 * time.Hour)
	a := newAsker(t)
	first, err := s.registry.Renew(t.Context(), node.peer(t), a.request)
	if err != nil {
		t.Fatal(err)
	}
	_, before := s.size("n1")
	// Also when the authority was rotated meanwhile, and the broker restarted.
	if _, err := s.registry.Rotate(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	s.open()
	for range 3 {
		s.clock.pass(time.Minute)
		again, err := s.registry.Renew(t.Context(), node.peer(t), a.request)
		if err != nil {
			t.Fatal(err)
		}
		if !again.Chain[0].Equal(first.Chain[0]) || len(again.Authorities) != 2 || again.Chain[0].CheckSignatureFrom(again.Chain[1]) != nil {
			t.Errorf("another certificate, or one whose chain does not lead to its authority: %d links", len(again.Chain))
		}
	}
	if _, after := s.size("n1"); after != before {
		t.Errorf("answers that are given again moved the store from revision %d to %d", before, after)
	}
	// With another key, as one that lost its own: after the pause, with the
	// certificate from before, which lasts for long enough.
	b := newAsker(t)
	_, err = s.registry.Renew(t.Context(), node.peer(t), b.request)
	s.clock.pass(wantLater(t, "another key", err))
	if _, err = s.registry.Renew(t.Context(), node.peer(t), b.request); err != nil || s.clock.Now().After(node.pair.Leaf.NotAfter) {
		t.Errorf("when it was sent away for a while: %v", err)
	}
}

// A token is an administrator's word: it is good at once, whatever was signed
// before, but for one certificate. Shown again by the same key it gives the same.
func TestTokensKnowNoPause(t *testing.T) {
	s := newSite(t)
	for range 3 {
		s.enrol("n1") // as a node that is installed again and again
	}
	a, secret := newAsker(t), s.token("n1").Secret
	first, err := s.registry.Enrol(t.Context(), "n1", secret, a.request)
	if err != nil {
		t.Fatal(err)
	}
	_, before := s.size("n1")
	for range 100 {
		again, err := s.registry.Enrol(t.Context(), "n1", secret, a.request)
		if err != nil || !again.Chain[0].Equal(first.Chain[0]) {
			t.Fatalf("the same token and key: %v", err)
		}
	}
	if _, after := s.size("n1"); after != before {
		t.Errorf("a used token moved the store from revision %d to %d", before, after)
	}
	// After a renewal, what it gave is not the newest any more.
	s.clock.pass(lifetime / pausePart)
	if secret = s.token("n1").Secret; err != nil {
		t.Fatal(err)
	}
	if first, err = s.registry.Enrol(t.Context(), "n1", secret, a.request); err != nil {
		t.Fatal(err)
	}
	b := newAsker(t)
	s.clock.pass(lifetime / pausePart)
	record := s.record("n1")
	record.Token.Expires = s.clock.Now().Add(time.Hour)
	s.put(record)
	if _, err = s.registry.Renew(t.Context(), a.got(first).peer(t), b.request); err != nil {
		t.Fatal(err)
	}
	_, err = s.registry.Enrol(t.Context(), "n1", secret, a.request)
	wantLater(t, "a used token after a renewal", err)
	// A revocation leaves nothing of what was signed before, and a new token
	// with the old key gives another certificate.
	if err := s.registry.Revoke(t.Context(), "n1", "test", ""); err != nil {
		t.Fatal(err)
	}
	back, err := s.registry.Enrol(t.Context(), "n1", s.token("n1").Secret, b.request)
	if err != nil || s.registry.Accept(b.got(back).peer(t)) != nil {
		t.Errorf("after a revocation: %v", err)
	}
}

func (s *site) record(node string) Record {
	s.t.Helper()
	record, _, err := s.registry.get(s.t.Context(), node)
	if err != nil {
		s.t.Fatal(err)
	}
	return record
}

func (s *site) put(record Record) {
	s.t.Helper()
	if err := s.registry.change(s.t.Context(), record.Node, func(r *Record) error { *r = record; return nil }); err != nil {
		s.t.Fatal(err)
	}
}

// What is dropped from the record is revoked all the same: a revocation is
// judged by when a certificate begins, and not by its number.
func TestRevocationCoversWhatIsNotOnRecord(t *testing.T) {
	s := newSite(t)
	var all []*source
	for range 3 * keepIssued {
		all = append(all, s.enrol("n1"))
	}
	if kept := len(s.issued("n1")); kept != keepIssued {
		t.Fatalf("%d on record", kept)
	}
	if err := s.registry.Revoke(t.Context(), "n1", "test", ""); err != nil {
		t.Fatal(err)
	}
	for i, node := range all {
		if err := s.registry.Accept(node.peer(t)); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("certificate %d: %v", i, err)
		}
	}
}

// The one that ends last stays on record: by it a rotation knows for how long
// the old authority is trusted.
func TestTheLastToEndStaysOnRecord(t *testing.T) {
	s := newSite(t)
	long := s.enrol("n1").pair.Leaf
	s.authority.o.Lifetime = time.Hour
	for range 2 * keepIssued {
		s.enrol("n1")
	}
	issued := s.issued("n1")
	if len(issued) != keepIssued || !issued[0].NotAfter.Equal(long.NotAfter) {
		t.Errorf("on record are %+v", issued)
	}
	if _, err := s.registry.Rotate(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	s.clock.pass(lifetime - time.Hour)
	list, err := s.authority.Authorities()
	if err != nil || len(list) != 2 {
		t.Errorf("%d authorities while a certificate of the first lasts, %v", len(list), err)
	}
}

// So does the one that begins last, by which a revocation voids them all, though
// the clock was put back since.
func TestTheLastToBeginStaysOnRecord(t *testing.T) {
	s := newSite(t)
	ahead := s.enrol("n1")
	s.clock.pass(-time.Hour)
	for range 2 * keepIssued {
		s.enrol("n1")
	}
	s.out("the clock was put back", ahead)
}

// A clock that was far ahead and is put right does not shut a node out.
func TestACertificateFromTheFuture(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	record := s.record("n1")
	ahead := Issued{Serial: "1", NotBefore: s.clock.Now().AddDate(3, 0, 0), NotAfter: s.clock.Now().AddDate(3, 1, 0), From: fromRenewal}
	record.Issued = append(record.Issued, ahead)
	s.put(record)
	if _, err := s.registry.Renew(t.Context(), node.peer(t), newAsker(t).request); err != nil {
		t.Error(err)
	}
}
