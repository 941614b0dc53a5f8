// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func what(p kb.Profile) string {
	var words []string
	for _, c := range p.History {
		words = append(words, c.Who+" "+c.What)
	}
	return strings.Join(words, ", ")
}

// A record without signatures and history, from an older broker, stays usable.
func TestRecordOfOlderBroker(t *testing.T) {
	kept := memstore.New()
	c := New(Options{Store: kept})
	if _, _, err := c.Apply(t.Context(), "a", profile("mitgcm", 1)); err != nil {
		t.Fatal(err)
	}
	stored, err := kept.Get(t.Context(), "profiles/mitgcm")
	if err != nil {
		t.Fatal(err)
	}
	from, rest, found := bytes.Cut(stored.Value, []byte(`,"history":[`))
	_, rest, closed := bytes.Cut(rest, []byte("]"))
	if !found || !closed {
		t.Fatalf("record is %s", stored.Value)
	}
	if _, err := kept.Commit(t.Context(), store.Write{Key: stored.Key, Value: append(bytes.Clone(from), rest...), Expect: stored.Revision}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Get(t.Context(), "mitgcm")
	if err != nil || p.History != nil || p.Versions[0].Envelope != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	ctx := kb.WithAuthor(t.Context(), "alice", "why not")
	p, changed, err := c.Sign(ctx, "s", kb.Ref{Profile: "mitgcm", Version: 1}, []byte("signature"))
	if err != nil || !changed || string(p.Versions[0].Envelope) != "signature" || what(p) != "alice signed" || p.History[0].Reason != "why not" {
		t.Errorf("%+v, %v, %v", p, changed, err)
	}
}

// Applying a profile again, without signatures or with others, changes neither its signatures nor its history.
func TestApplyKeepsSignaturesAndHistory(t *testing.T) {
	c := New(Options{Store: memstore.New()})
	p := profile("mitgcm", 1)
	p.Versions[0].Envelope = []byte("first")
	if _, _, err := c.Apply(t.Context(), "a", p); err != nil {
		t.Fatal(err)
	}
	p.Versions[0].Envelope = nil
	p.Description = "another"
	p.History, p.Previous = []kb.Change{{Who: "mallory", What: "nothing"}}, []uint32{7}
	got, changed, err := c.Apply(t.Context(), "b", p)
	if err != nil || !changed || string(got.Versions[0].Envelope) != "first" || got.Previous != nil ||
		what(got) != "kernel-broker registered, kernel-broker changed" {
		t.Errorf("%+v, %v, %v", got, changed, err)
	}
}

func TestSignaturesAreVerified(t *testing.T) {
	bad := errors.New("no key that is trusted")
	c := New(Options{Store: memstore.New(), CheckEnvelope: func(_ kb.Kernel, envelope []byte) error {
		if string(envelope) != "good" {
			return bad
		}
		return nil
	}})
	p := profile("mitgcm", 1)
	if _, _, err := c.Apply(t.Context(), "a", p); !errors.Is(err, kb.ErrFailedPrecondition) || !errors.Is(err, bad) || !strings.Contains(err.Error(), "mitgcm@1") {
		t.Errorf("unsigned: %v", err)
	}
	p.Versions[0].Envelope = []byte("good")
	if _, _, err := c.Apply(t.Context(), "b", p); err != nil {
		t.Fatal(err)
	}
	ref := kb.Ref{Profile: "mitgcm", Version: 1}
	if _, _, err := c.Sign(t.Context(), "c", ref, []byte("bad")); !errors.Is(err, bad) {
		t.Errorf("signed badly: %v", err)
	}
	if got, err := c.Get(t.Context(), "mitgcm"); err != nil || string(got.Versions[0].Envelope) != "good" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPromoteAndRollBack(t *testing.T) {
	c := New(Options{Store: memstore.New()})
	p := profile("mitgcm", 1)
	for n := uint32(2); n <= 3; n++ {
		more := profile("mitgcm", 1).Versions[0]
		more.Kernel.Version, more.Kernel.Arguments = n, []string{"quiet", strings.Repeat("x", int(n))}
		p.Versions = append(p.Versions, more)
	}
	if _, _, err := c.Apply(t.Context(), "a", p); err != nil {
		t.Fatal(err)
	}
	ref := func(n uint32) kb.Ref { return kb.Ref{Profile: "mitgcm", Version: n} }
	for _, step := range []struct {
		id      string
		version uint32
		changed bool
		now     uint32
		err     error
	}{
		{"1", 0, false, 1, kb.ErrFailedPrecondition},
		{"2", 2, true, 2, nil},
		{"2", 2, false, 2, nil}, // the answer was lost
		{"3", 2, false, 2, nil},
		{"2", 3, false, 2, kb.ErrInvalid}, // the id was another's
		{"4", 3, true, 3, nil},
		{"5", 9, false, 3, kb.ErrNotFound},
		{"6", 0, true, 2, nil},
		{"7", 0, true, 1, nil},
		{"8", 0, false, 1, kb.ErrFailedPrecondition},
	} {
		got, changed, err := c.Promote(t.Context(), step.id, ref(step.version))
		if !errors.Is(err, step.err) || changed != step.changed {
			t.Errorf("step %s: %v, %v", step.id, changed, err)
		}
		if got, err = c.Get(t.Context(), "mitgcm"); err != nil || got.DefaultVersion != step.now {
			t.Errorf("step %s: default %d, %v", step.id, got.DefaultVersion, err)
		}
	}
	if _, _, err := c.Quarantine(t.Context(), "q", ref(2), "loses\ndata"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Promote(t.Context(), "9", ref(2)); !errors.Is(err, kb.ErrQuarantined) || !strings.Contains(err.Error(), "loses data") {
		t.Errorf("quarantined: %v", err)
	}
	if _, changed, err := c.Quarantine(t.Context(), "r", ref(2), "again"); changed || err != nil {
		t.Errorf("again: %v, %v", changed, err)
	}
	if _, _, err := c.Quarantine(t.Context(), "s", kb.Ref{Profile: "stock", Version: 1}, "x"); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("stock: %v", err)
	}
}

// A change whose answer from the store was lost is one that this call made, and is made once.
func TestChangeWithALostAnswer(t *testing.T) {
	c, s := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	s.FailCommits(1, memstore.After)
	p, changed, err := c.Quarantine(t.Context(), "q", mitgcm2, "loses data")
	if err != nil || !changed || p.Versions[1].Quarantine == nil {
		t.Errorf("%+v, changed %v, %v", p, changed, err)
	}
	if n := len(p.History); p.History[n-1].What != kb.ChangeQuarantined || n > 1 && p.History[n-2].What == kb.ChangeQuarantined {
		t.Errorf("%+v", p.History)
	}
}
