// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Adding a version without naming a default keeps the default, even if it moved in the meantime.
func TestApplyKeepsDefault(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	if _, _, err := c.Promote(t.Context(), "b", kb.Ref{Profile: "mitgcm", Version: 1}); err != nil {
		t.Fatal(err)
	}
	next := profile("mitgcm", 3)
	next.DefaultVersion = 0
	p, changed, err := c.Apply(t.Context(), "c", next)
	if err != nil || !changed || p.DefaultVersion != 1 || len(p.Versions) != 3 {
		t.Fatalf("default %d of %d versions, changed %v, %v", p.DefaultVersion, len(p.Versions), changed, err)
	}
	if last := p.History[len(p.History)-1]; last.What != kb.ChangeRegistered || last.Version != 3 {
		t.Errorf("the last change is %+v", last)
	}
	if _, changed, err := c.Apply(t.Context(), "d", next); changed || err != nil {
		t.Errorf("again: changed %v, %v", changed, err)
	}
	// A new profile has no default that could stay.
	none := profile("gromacs", 1)
	none.DefaultVersion = 0
	if _, _, err := c.Apply(t.Context(), "e", none); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "default version 0") {
		t.Errorf("a new profile without a default: %v", err)
	}
}

// Apply and Promote move the default only to a version that jobs may choose. An unchanged default may be quarantined and
// must not keep a profile from getting its replacement.
func TestApplyMovesDefaultToChoosableVersion(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 3))
	two, three := kb.Ref{Profile: "mitgcm", Version: 2}, kb.Ref{Profile: "mitgcm", Version: 3}
	if _, _, err := c.Quarantine(t.Context(), "b", three, "corrupts results"); err != nil {
		t.Fatal(err)
	}
	same := profile("mitgcm", 4)
	same.DefaultVersion = 3
	if p, _, err := c.Apply(t.Context(), "c", same); err != nil || p.DefaultVersion != 3 || len(p.Versions) != 4 {
		t.Errorf("a quarantined default that stays: %d of %d versions, %v", p.DefaultVersion, len(p.Versions), err)
	}
	if _, _, err := c.Promote(t.Context(), "d", kb.Ref{Profile: "mitgcm", Version: 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Retire(t.Context(), "e", two, "too slow"); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[uint32]error{2: kb.ErrRetired, 3: kb.ErrQuarantined} {
		move := profile("mitgcm", 5)
		move.DefaultVersion = version
		if _, _, err := c.Apply(t.Context(), "f", move); !errors.Is(err, want) {
			t.Errorf("moved to version %d: %v", version, err)
		}
	}
	p, err := c.Get(t.Context(), "mitgcm")
	if err != nil || p.DefaultVersion != 1 || len(p.Versions) != 4 {
		t.Errorf("default %d of %d versions, %v", p.DefaultVersion, len(p.Versions), err)
	}
	move := profile("mitgcm", 5)
	move.DefaultVersion = 4
	if p, _, err := c.Apply(t.Context(), "g", move); err != nil || p.DefaultVersion != 4 || p.Previous[len(p.Previous)-1] != 1 {
		t.Errorf("default %d, before it %v, %v", p.DefaultVersion, p.Previous, err)
	}
}
