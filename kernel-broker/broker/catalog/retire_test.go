// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var (
	mitgcm  = kb.Ref{Profile: "mitgcm"}
	mitgcm1 = kb.Ref{Profile: "mitgcm", Version: 1}
)

func retired(t *testing.T, c *Catalog, id string, ref kb.Ref, reason string) bool {
	t.Helper()
	_, changed, err := c.Retire(t.Context(), id, ref, reason)
	if err != nil {
		t.Fatalf("Retire(%s, %s) = %v", id, ref, err)
	}
	return changed
}

func TestRetireVersion(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 3))
	if !retired(t, c, "r", mitgcm1, "slow\non reads") || retired(t, c, "r", mitgcm1, "slow\non reads") || retired(t, c, "s", mitgcm1, "again") {
		t.Error("retiring twice has an effect")
	}
	fail(t, c, mitgcm2, "a")
	fail(t, c, mitgcm2, "b") // in quarantine: not to be recommended
	_, err := c.Check(t.Context(), mitgcm1)
	want := `kernel "mitgcm@1" is retired since 2026-11-20T12:00:00Z: slow on reads; you can choose "mitgcm@3"`
	if !errors.Is(err, kb.ErrRetired) || err.Error() != want {
		t.Errorf("Check = %v\nwant %s", err, want)
	}
	if _, err := c.Check(t.Context(), mitgcm2); !errors.Is(err, kb.ErrQuarantined) || strings.Contains(err.Error(), "mitgcm@1") {
		t.Errorf("Check = %v", err)
	}
	if v, err := c.Check(t.Context(), mitgcm); err != nil || v.Kernel.Version != 3 {
		t.Errorf("Check of the name = %+v, %v", v, err)
	}
	if text, err := c.Snapshot(t.Context()); err != nil || !strings.Contains(text, "\nprofile mitgcm 3 2,3 quarantined\n") {
		t.Errorf("Snapshot = %q, %v", text, err)
	}
	// A late boot failure is still counted, and the record stays.
	fail(t, c, mitgcm1, "late")
	if p, err := c.Get(t.Context(), "mitgcm"); err != nil || len(p.Versions) != 3 || p.Versions[0].Retired == nil || p.Versions[0].Kernel.ImageDigest == "" {
		t.Errorf("Get = %+v, %v", p, err)
	}
}

func TestRetireProfile(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	apply(t, c, "b", profile("stock", 1))
	if !retired(t, c, "r", mitgcm, "") {
		t.Error("nothing changed")
	}
	_, err := c.Check(t.Context(), mitgcm)
	if want := `kernel "mitgcm@2" is retired since 2026-11-20T12:00:00Z`; !errors.Is(err, kb.ErrRetired) || err.Error() != want {
		t.Errorf("Check = %v\nwant %s", err, want)
	}
	text, err := c.Snapshot(t.Context())
	if err != nil || strings.Contains(text, "mitgcm") || !strings.Contains(text, "profile stock") {
		t.Errorf("Snapshot = %q, %v", text, err)
	}
	// Applying the same definition again changes nothing; a new version makes the name usable again once it is the
	// default.
	if apply(t, c, "c", profile("mitgcm", 2)) {
		t.Error("an old definition changed something")
	}
	next := profile("mitgcm", 3)
	next.DefaultVersion = 2
	if _, _, err := c.Apply(t.Context(), "d", next); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), `"mitgcm@2"`) {
		t.Errorf("Apply with a retired default = %v", err)
	}
	apply(t, c, "e", profile("mitgcm", 3))
	if v, err := c.Check(t.Context(), mitgcm); err != nil || v.Kernel.Version != 3 {
		t.Errorf("Check = %+v, %v", v, err)
	}
	if _, err := c.Check(t.Context(), mitgcm2); !errors.Is(err, kb.ErrRetired) {
		t.Errorf("Check = %v", err)
	}
	if text, err := c.Snapshot(t.Context()); err != nil || !strings.Contains(text, "\nprofile mitgcm 3 3 available\n") {
		t.Errorf("Snapshot = %q, %v", text, err)
	}
}

func TestRetireRefused(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	apply(t, c, "b", profile("stock", 1))
	for _, step := range []struct {
		ref  kb.Ref
		want error
		text string
	}{
		{mitgcm2, kb.ErrFailedPrecondition, `"mitgcm@2" is the default version`},
		{kb.Ref{Profile: "stock"}, kb.ErrFailedPrecondition, `"stock"`},
		{kb.Ref{Profile: "stock", Version: 1}, kb.ErrFailedPrecondition, `"stock"`},
		{kb.Ref{Profile: "mitgcm", Version: 7}, kb.ErrNotFound, "no version 7"},
		{kb.Ref{Profile: "mitgmc"}, kb.ErrNotFound, `did you mean "mitgcm"?`},
		{kb.Ref{Profile: "../x"}, kb.ErrInvalid, "character"},
	} {
		_, _, err := c.Retire(t.Context(), "r", step.ref, "")
		if !errors.Is(err, step.want) || !strings.Contains(err.Error(), step.text) {
			t.Errorf("Retire(%v) = %v, want %v, %q", step.ref, err, step.want, step.text)
		}
	}
	if _, _, err := c.Retire(t.Context(), "", mitgcm1, ""); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("without a request id: %v", err)
	}
	retired(t, c, "id", mitgcm1, "x")
	if _, _, err := c.Retire(t.Context(), "id", mitgcm1, "y"); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("one request id, two requests: %v", err)
	}
	if retired(t, c, "last", mitgcm1, "") || !retired(t, c, "all", mitgcm, "") {
		t.Error("the rest cannot be retired with the profile")
	}
}
