// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// size is what the record of a node takes in the store.
func (s *site) size(node string) int {
	s.t.Helper()
	rec, err := s.store.Get(s.t.Context(), recordPrefix+node)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(rec.Value)
}

func (s *site) issued(node string) []Issued {
	s.t.Helper()
	list, err := s.registry.List(s.t.Context(), node)
	if err != nil {
		s.t.Fatal(err)
	}
	return list[0].Issued
}

// What stays of a node that renews without end is bounded, for a year and at the
// end with every certificate; nobody else notices.
func TestAThousandRenewals(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	most := 0
	renew := func() {
		t.Helper()
		a := newAsker(t)
		c, err := s.registry.Renew(t.Context(), node.peer(t), a.request)
		if err != nil {
			t.Fatal(err)
		}
		node = a.got(c)
		most = max(most, s.size("n1"))
	}
	for range 1000 {
		renew()
	}
	for range 365 * 24 * time.Hour / (lifetime / 10) {
		s.clock.pass(lifetime / 10)
		renew()
	}
	if kept := len(s.issued("n1")); kept > keepIssued || most > 4096 {
		t.Errorf("%d certificates on record, and up to %d bytes", kept, most)
	}
	t.Logf("the record takes up to %d bytes", most)
	s.enrol("n2")
}

// An agent whose renewal was answered, and who did not receive the answer, asks
// again with the key that it made, or with another one, and gets a certificate.
func TestARenewalThatWasNotAcknowledged(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	s.clock.pass(20 * 24 * time.Hour)
	a := newAsker(t)
	if _, err := s.registry.Renew(t.Context(), node.peer(t), a.request); err != nil {
		t.Fatal(err)
	}
	// Also when the authority was rotated meanwhile, and the broker restarted.
	if _, err := s.registry.Rotate(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	s.open()
	for _, request := range [][]byte{a.request, newAsker(t).request} {
		again, err := s.registry.Renew(t.Context(), node.peer(t), request)
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Authorities) != 2 || again.Chain[0].CheckSignatureFrom(again.Chain[1]) != nil {
			t.Errorf("a certificate whose chain does not lead to its authority: %d links", len(again.Chain))
		}
	}
}

// A token is an administrator's word, whatever was signed before. A revocation
// leaves nothing of that: a new token with an old key gives a certificate that holds.
func TestTokensAfterCertificates(t *testing.T) {
	s := newSite(t)
	for range 3 {
		s.enrol("n1") // as a node that is installed again and again
	}
	a, secret := newAsker(t), s.token("n1").Secret
	for range 2 {
		if _, err := s.registry.Enrol(t.Context(), "n1", secret, a.request); err != nil {
			t.Fatalf("the same token and key: %v", err)
		}
	}
	if err := s.registry.Revoke(t.Context(), "n1", "test", ""); err != nil {
		t.Fatal(err)
	}
	back, err := s.registry.Enrol(t.Context(), "n1", s.token("n1").Secret, a.request)
	if err != nil || s.registry.Accept(a.got(back).peer(t)) != nil {
		t.Errorf("after a revocation: %v", err)
	}
}

// A record of an earlier version, which kept the last certificate itself, is read.
func TestRecordWithTheLastCertificate(t *testing.T) {
	s := newSite(t)
	text := `{"node":"n1","issued":[{"serial":"1","not_before":"2026-01-01T00:00:00Z","not_after":"2999-01-01T00:00:00Z","from":"token"}],"last":{"key":"sha256:00","leaf":"AAAA"}}`
	if _, err := s.store.Commit(t.Context(), store.Write{Key: recordPrefix + "n1", Value: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	s.enrol("n1")
	if kept := len(s.issued("n1")); kept != 2 {
		t.Errorf("%d certificates on record", kept)
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
