// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// generations are the names in the folder.
func (s *site) generations() []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// What docs/ops/trust.md says of a key in somebody's hands (rotate, remove all
// but the newest file, restart), and the rotation that comes after it.
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
		for _, name := range names[:len(names)-1] {
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		s.open()
		before := s.enrol("n1")
		fresh, err := s.registry.Rotate(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		after := s.enrol("n2")
		for i := range 2 { // the second time as after a restart
			if got := s.generations(); len(got) != 2 || got[0] != names[len(names)-1] {
				t.Errorf("%d rotations, round %d: the folder has %q", rotations, i, got)
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

// The number decides which key signs, not how the name sorts.
func TestTheHighestNumberSigns(t *testing.T) {
	s := newSite(t)
	if err := os.Rename(filepath.Join(s.dir, "ca-0000.pem"), filepath.Join(s.dir, "ca-9999.pem")); err != nil {
		t.Fatal(err)
	}
	s.open()
	fresh, err := s.registry.Rotate(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	s.open()
	if s.authority.Fingerprint() != fresh {
		t.Errorf("after a restart the old key signs; the folder has %q", s.generations())
	}
	stray := filepath.Join(s.dir, "ca-0001.old.pem")
	if err := os.Rename(filepath.Join(s.dir, "ca-9999.pem"), stray); err != nil {
		t.Fatal(err)
	}
	_, err = OpenAuthority(Options{Dir: s.dir, Cluster: "lab", Host: "ctl", Lifetime: lifetime})
	if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), stray) {
		t.Errorf("a file without a number: %v", err)
	}
}

// Brokers with one folder make one authority when they start, and lose no
// generation when they rotate it at once.
func TestBrokersShareAFolder(t *testing.T) {
	const brokers, each = 4, 3
	dir := filepath.Join(t.TempDir(), "ca")
	open := func() *Authority {
		a, err := OpenAuthority(Options{Dir: dir, Cluster: "lab", Host: "ctl", Lifetime: lifetime})
		if err != nil {
			t.Error(err)
		}
		return a
	}
	all := make([]*Authority, brokers)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() { all[i] = open() })
	}
	group.Wait()
	for _, a := range all {
		if a == nil || a.Fingerprint() != all[0].Fingerprint() {
			t.Fatal("brokers that start at once have different authorities")
		}
	}
	var mu sync.Mutex
	seen := map[string]bool{all[0].Fingerprint(): true}
	for _, a := range all {
		group.Go(func() {
			for range each {
				fingerprint, err := a.Rotate(time.Time{})
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
	keys, err := readKeys(dir)
	if err != nil || len(keys) != 1+brokers*each || len(seen) != len(keys) {
		t.Fatalf("%d generations on disk, %d announced, %v", len(keys), len(seen), err)
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
	if err := os.Remove(filepath.Join(s.dir, "ca-0000.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.Rotate(t.Context(), "test"); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), s.dir) {
		t.Errorf("%v", err)
	}
	if names := s.generations(); len(names) != 0 {
		t.Errorf("the folder has %q", names)
	}
}
