// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A dry run answers what the call answers, and leaves everything as it is.
func TestDryRunIsTheCall(t *testing.T) {
	other, toQuarantined, larger := profile("mitgcm", 1), profile("mitgcm", 3), profile("mitgcm", 3)
	other.Versions[0].Kernel.BuildID = "cd" + other.Versions[0].Kernel.BuildID[2:]
	toQuarantined.DefaultVersion = 2
	larger.Versions = append(larger.Versions, kb.ProfileVersion{Kernel: kernel("mitgcm", 4)})
	invalid := profile("mitgcm", 3)
	invalid.BootAttempts = 0
	retire := func(ref string) func(context.Context, *Catalog, string) (kb.Profile, bool, error) {
		return func(ctx context.Context, c *Catalog, id string) (kb.Profile, bool, error) {
			r, err := kb.ParseRef(ref)
			if err != nil {
				t.Fatal(err)
			}
			return c.Retire(ctx, id, r, "old")
		}
	}
	release := func(version uint32) func(context.Context, *Catalog, string) (kb.Profile, bool, error) {
		return func(ctx context.Context, c *Catalog, id string) (kb.Profile, bool, error) {
			return kb.Profile{}, true, c.ReleaseQuarantine(ctx, id, kb.Ref{Profile: "mitgcm", Version: version})
		}
	}
	put := func(p kb.Profile) func(context.Context, *Catalog, string) (kb.Profile, bool, error) {
		return func(ctx context.Context, c *Catalog, id string) (kb.Profile, bool, error) { return c.Apply(ctx, id, p) }
	}
	for name, c := range map[string]struct {
		call func(ctx context.Context, c *Catalog, id string) (kb.Profile, bool, error)
		err  error
	}{
		"retire stock":                     {retire("stock"), kb.ErrFailedPrecondition},
		"retire a version of stock":        {retire("stock@1"), kb.ErrFailedPrecondition},
		"retire the default":               {retire("mitgcm@3"), kb.ErrFailedPrecondition},
		"retire no profile":                {retire("lammps"), kb.ErrNotFound},
		"retire no version":                {retire("mitgcm@9"), kb.ErrNotFound},
		"retire a version":                 {retire("mitgcm@1"), nil},
		"retire a profile":                 {retire("mitgcm"), nil},
		"release":                          {release(2), nil},
		"release what is not quarantined":  {release(1), kb.ErrFailedPrecondition},
		"release no version":               {release(9), kb.ErrNotFound},
		"apply other content":              {put(other), kb.ErrFailedPrecondition},
		"apply with a quarantined default": {put(toQuarantined), kb.ErrQuarantined},
		"apply what is invalid":            {put(invalid), kb.ErrInvalid},
		"apply a version more":             {put(larger), nil},
		"apply what is there":              {put(profile("mitgcm", 3)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			cat, _ := newCatalog(t)
			apply(t, cat, "a", profile("mitgcm", 3))
			apply(t, cat, "b", profile("stock", 1))
			if _, _, err := cat.Quarantine(t.Context(), "q", mitgcm2, "panics"); err != nil {
				t.Fatal(err)
			}
			before, err := cat.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			would, wouldChange, dry := c.call(kb.WithDryRun(t.Context()), cat, "")
			if after, err := cat.List(t.Context()); err != nil || !reflect.DeepEqual(before, after) {
				t.Errorf("the dry run changed something: %v\n%+v\n%+v", err, before, after)
			}
			is, changed, call := c.call(t.Context(), cat, "id")
			if fmt.Sprint(dry) != fmt.Sprint(call) || !errors.Is(call, c.err) || c.err == nil && call != nil {
				t.Errorf("the dry run: %v\nthe call: %v, want %v", dry, call, c.err)
			}
			if wouldChange != changed || !reflect.DeepEqual(would, is) {
				t.Errorf("the dry run: %v %+v\nthe call: %v %+v", wouldChange, would, changed, is)
			}
		})
	}
}

// Before a dry run nothing is uploaded or signed; what is signed is checked.
func TestDryRunBeforeTheUpload(t *testing.T) {
	c, _ := newCatalog(t)
	c.o.HasArtifact = func(string, uint64) (bool, error) { return false, nil }
	c.o.CheckEnvelope = func(_ kb.Kernel, envelope []byte) error {
		if string(envelope) != "good" {
			return kb.ErrDenied
		}
		return nil
	}
	ctx := kb.WithDryRun(t.Context())
	p := profile("mitgcm", 1)
	if _, changed, err := c.Apply(ctx, "", p); err != nil || !changed {
		t.Errorf("unsigned: %v, %v", changed, err)
	}
	p.Versions[0].Envelope = []byte("bad")
	if _, _, err := c.Apply(ctx, "", p); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("with a bad signature: %v", err)
	}
	// Without the mark of a dry run an empty id is refused: so does a broker that knows none.
	if _, _, err := c.Apply(t.Context(), "", profile("mitgcm", 1)); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("without an id: %v", err)
	}
}
