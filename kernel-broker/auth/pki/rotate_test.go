// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// What docs/ops/trust.md says of a key in somebody's hands (rotate, remove all
// but the newest one, restart), and the rotation that comes after it.
func TestRotationAfterARemoval(t *testing.T) {
	for rotations := 1; rotations <= 3; rotations++ {
		s := newSite(t)
		old := s.enrol("n0")
		for range rotations {
			if _, err := s.registry.Rotate(t.Context(), "test"); err != nil {
				t.Fatal(err)
			}
		}
		names := s.generations()
		s.remove(names[:len(names)-1]...)
		s.open()
		before := s.enrol("n1")
		fresh, err := s.registry.Rotate(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		after := s.enrol("n2")
		for i := range 2 { // the second time as after a restart
			if got := s.generations(); len(got) != 2 || got[0] != names[len(names)-1] {
				t.Errorf("%d rotations, round %d: the store has %q", rotations, i, got)
			}
			if s.authority.Fingerprint() != fresh {
				t.Errorf("%d rotations, round %d: the new key does not sign", rotations, i)
			}
			for name, node := range map[string]*source{"before": before, "after": after} {
				if _, serverErr, clientErr := shake(t, s.server(), mtls.ClientConfig(node, "lab")); serverErr != nil || clientErr != nil {
					t.Errorf("%d rotations, round %d: a node from %s: %v, %v", rotations, i, name, serverErr, clientErr)
				}
			}
			if _, serverErr, _ := shake(t, s.server(), mtls.ClientConfig(old, "lab")); serverErr == nil {
				t.Errorf("%d rotations, round %d: the removed key is believed", rotations, i)
			}
			s.open()
		}
	}
}

// Brokers of one store make one authority when they start, and lose no
// generation when they rotate it at once.
func TestBrokersShareAStore(t *testing.T) {
	const brokers, each = 4, 3
	s := newSite(t)
	s.remove(s.generations()...)
	var group sync.WaitGroup
	for range brokers {
		group.Go(func() {
			if _, err := Found(t.Context(), s.options(), ""); err != nil && !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	all := make([]*Authority, brokers)
	for i := range all {
		var err error
		if all[i], err = OpenAuthority(t.Context(), s.options()); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	seen := map[string]bool{all[0].Fingerprint(): true}
	for _, a := range all {
		group.Go(func() {
			for range each {
				fingerprint, err := a.Rotate(t.Context(), time.Time{})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[fingerprint] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	keys, err := readKeys(t.Context(), s.secrets)
	if err != nil || len(keys) != 1+brokers*each || len(seen) != len(keys) {
		t.Fatalf("%d generations on record, %d announced, %v", len(keys), len(seen), err)
	}
	for i, k := range keys {
		if !seen[mtls.Fingerprint(k.certificate)] {
			t.Errorf("generation %d is nobody's", i)
		}
		if i == 0 {
			continue
		}
		if err := k.crossed.CheckSignatureFrom(keys[i-1].certificate); err != nil {
			t.Errorf("generation %d is not vouched for by the one before it: %v", i, err)
		}
	}
}

// Keys that were taken away under a broker that runs: it does not begin anew,
// which no node would follow.
func TestNoRotationWithoutTheKeys(t *testing.T) {
	s := newSite(t)
	s.remove(s.generations()...)
	if _, err := s.registry.Rotate(t.Context(), "test"); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if names := s.generations(); len(names) != 0 {
		t.Errorf("the store has %q", names)
	}
}
