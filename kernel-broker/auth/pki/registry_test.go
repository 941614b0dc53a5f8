// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

func TestTokensAndWhatTheyAreWorth(t *testing.T) {
	s := newSite(t)
	own, thief := newAsker(t), newAsker(t)
	secret := s.token("n1").Secret
	elsewhere := s.token("n2").Secret
	replaced := s.token("n3").Secret
	s.token("n3")
	for _, c := range []struct {
		name, node, secret string
		who                *asker
		before             time.Duration
		words              string // of the refusal; empty: a certificate
	}{
		{name: "unknown node", node: "n9", secret: secret, who: thief, words: "is unknown"},
		{name: "another node's token", node: "n1", secret: elsewhere, who: thief, words: "is unknown"},
		{name: "a guess", node: "n1", secret: strings.Repeat("A", 43), who: thief, words: "is unknown"},
		{name: "replaced", node: "n3", secret: replaced, who: thief, words: "replaced or revoked"},
		{name: "first use", node: "n1", secret: secret, who: own},
		{name: "the answer was lost", node: "n1", secret: secret, who: own},
		{name: "used, another key", node: "n1", secret: secret, who: thief, words: "was used for another key"},
		{name: "expired, own key", node: "n1", secret: secret, who: own, before: DefaultTokenTTL, words: "expired"},
		{name: "expired, unused", node: "n2", secret: elsewhere, who: own, words: "expired"},
	} {
		s.clock.pass(c.before)
		got, err := s.registry.Enrol(t.Context(), c.node, c.secret, c.who.request)
		if c.words == "" {
			if err != nil || got.Chain[0].URIs[0].String() != "kernel-broker://lab/node/"+c.node {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.Is(err, kb.ErrDenied) || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), c.secret) {
			t.Errorf("%s: %v", c.name, err)
		}
		if got.Chain != nil {
			t.Errorf("%s: refused, and handed out", c.name)
		}
	}
	// Nothing of a secret is in the store.
	records, _, err := s.store.List(t.Context(), "")
	if err != nil || len(records) == 0 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, rec := range records {
		for _, kept := range []string{secret, elsewhere, replaced} {
			if strings.Contains(string(rec.Value), kept) {
				t.Errorf("record %s holds a token", rec.Key)
			}
		}
	}
}

func TestTokensAreRefused(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		node string
		ttl  time.Duration
	}{{"", 0}, {"n 1", 0}, {"n1", time.Millisecond}, {"n1", -time.Hour}, {"n1", MaxTokenTTL + 1}} {
		if _, _, err := s.registry.CreateToken(t.Context(), c.node, c.ttl, "test"); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Of many who come with one token at once, one gets a certificate.
func TestOneTokenOneKey(t *testing.T) {
	s := newSite(t)
	secret := s.token("n1").Secret
	var got atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		a := newAsker(t)
		all.Go(func() {
			_, err := s.registry.Enrol(t.Context(), "n1", secret, a.request)
			if err == nil {
				got.Add(1)
			} else if !errors.Is(err, kb.ErrDenied) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got.Load() != 1 {
		t.Errorf("%d keys got a certificate by one token", got.Load())
	}
}

// failing is a store that does the commit and says that it did not hear of it,
// as one whose server is killed does.
type failing struct {
	store.Store
	after bool // the commit was done
	armed atomic.Bool
}

func (f *failing) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	if !f.armed.CompareAndSwap(true, false) {
		return f.Store.Commit(ctx, writes...)
	}
	if f.after {
		if _, err := f.Store.Commit(ctx, writes...); err != nil {
			return 0, err
		}
	}
	return 0, store.ErrUnavailable
}

// A broker that dies in the use of a token has handed nothing out, and whether
// it is on record or not: the same key may come again, another one only where
// the first has not been recorded.
func TestDeathInTheMiddle(t *testing.T) {
	for name, after := range map[string]bool{"before the record": false, "after the record": true} {
		s := newSite(t)
		fails := &failing{Store: s.store, after: after}
		s.store = fails
		s.open()
		secret := s.token("n1").Secret
		first, second := newAsker(t), newAsker(t)
		fails.armed.Store(true)
		if got, err := s.registry.Enrol(t.Context(), "n1", secret, first.request); !errors.Is(err, kb.ErrUnavailable) || got.Chain != nil {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		s.open()
		if after {
			if _, err := s.registry.Enrol(t.Context(), "n1", secret, second.request); !errors.Is(err, kb.ErrDenied) {
				t.Errorf("%s: another key: %v", name, err)
			}
		}
		if _, err := s.registry.Enrol(t.Context(), "n1", secret, first.request); err != nil {
			t.Errorf("%s: the same key again: %v", name, err)
		}
		if _, err := s.registry.Enrol(t.Context(), "n1", secret, second.request); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("%s: another key after that: %v", name, err)
		}
	}
}

func TestRevocation(t *testing.T) {
	s := newSite(t)
	node, other := s.enrol("n1"), s.enrol("n2")
	unused := s.token("n1").Secret
	var cut []string
	s.registry.OnVoid(func(name string) {
		if s.registry.Accept(node.peer(t)) == nil {
			t.Error("connections are cut before new ones are refused")
		}
		cut = append(cut, name)
	})
	if err := s.registry.Revoke(t.Context(), "n1", "test", "stolen"); err != nil {
		t.Fatal(err)
	}
	if len(cut) != 1 || cut[0] != "n1" {
		t.Errorf("cut %q", cut)
	}
	for i := range 2 { // the second time as after a restart
		if _, serverErr, _ := shake(t, s.server(), mtls.ClientConfig(node, "lab")); !errors.Is(serverErr, kb.ErrDenied) {
			t.Errorf("round %d: its certificate: %v", i, serverErr)
		}
		if _, err := s.registry.Renew(t.Context(), node.peer(t), newAsker(t).request); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("round %d: its renewal: %v", i, err)
		}
		if _, err := s.registry.Enrol(t.Context(), "n1", unused, newAsker(t).request); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("round %d: its token: %v", i, err)
		}
		if _, serverErr, clientErr := shake(t, s.server(), mtls.ClientConfig(other, "lab")); serverErr != nil || clientErr != nil {
			t.Errorf("round %d: another node: %v, %v", i, serverErr, clientErr)
		}
		s.open()
	}
	list, err := s.registry.List(t.Context(), "n1")
	if err != nil || len(list) != 1 || list[0].Revoked.Reason != "stolen" || len(list[0].Issued) != 1 || !list[0].Revoked.Voids(list[0].Issued[0].NotBefore) {
		t.Errorf("on record is %+v, %v", list, err)
	}
	// Even in the same second a new token lets it in again, and the old
	// certificate stays out.
	back := s.enrol("n1")
	if err := s.registry.Accept(back.peer(t)); err != nil {
		t.Errorf("after a new token: %v", err)
	}
	if err := s.registry.Accept(node.peer(t)); !errors.Is(err, kb.ErrDenied) {
		t.Errorf("the certificate from before: %v", err)
	}
}

func TestADamagedRecordLetsNobodyIn(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	for _, text := range []string{"{", `{"node":"n2"}`} {
		if _, err := s.store.Commit(t.Context(), store.Write{Key: recordPrefix + "n1", Value: []byte(text), Expect: store.AnyRevision}); err != nil {
			t.Fatal(err)
		}
		s.open()
		if err := s.registry.Accept(node.peer(t)); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRenewal(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	s.clock.pass(20 * 24 * time.Hour)
	a := newAsker(t)
	c, err := s.registry.Renew(t.Context(), node.peer(t), a.request)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.registry.List(t.Context(), "n1")
	if err != nil || len(list[0].Issued) != 2 || list[0].Issued[1].From != "renewal" || !c.Chain[0].NotAfter.After(node.pair.Leaf.NotAfter) {
		t.Errorf("%+v, %v", list, err)
	}
	// What has ended is forgotten.
	s.clock.pass(lifetime - time.Hour)
	if _, err := s.registry.Renew(t.Context(), a.got(c).peer(t), newAsker(t).request); err != nil {
		t.Fatal(err)
	}
	if list, err = s.registry.List(t.Context(), ""); err != nil || len(list) != 1 || len(list[0].Issued) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.registry.List(t.Context(), "n9"); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("a node that never was: %v", err)
	}
}

// Where the site signs, nodes can be revoked all the same, and nothing else.
func TestWithoutAnAuthority(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	r, err := OpenRegistry(t.Context(), RegistryOptions{Store: s.store, Cluster: "lab", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, _, tokenErr := r.CreateToken(t.Context(), "n1", 0, "test")
	_, enrolErr := r.Enrol(t.Context(), "n1", "x", nil)
	_, renewErr := r.Renew(t.Context(), node.peer(t), nil)
	_, rotateErr := r.Rotate(t.Context(), "test")
	for _, err := range []error{tokenErr, enrolErr, renewErr, rotateErr} {
		if !errors.Is(err, kb.ErrFailedPrecondition) {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(r.Accept(node.peer(t)), r.Revoke(t.Context(), "n1", "test", "")); err != nil {
		t.Fatal(err)
	}
	if err := r.Accept(node.peer(t)); !errors.Is(err, kb.ErrDenied) {
		t.Errorf("revoked: %v", err)
	}
}
