// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newCatalog(t *testing.T) (*Catalog, *memstore.Store) {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }}), s
}

// profile returns a valid profile with versions 1 to n, the last one default.
func profile(name string, n uint32) kb.Profile {
	p := kb.Profile{
		Name: name, Application: "MITgcm", Description: "an ocean model", DefaultVersion: n,
		Reuse: kb.ReuseSameProfile, Fallback: kb.FallbackHold,
		BootAttempts: 2, BootTimeout: time.Minute,
	}
	for v := uint32(1); v <= n; v++ {
		p.Versions = append(p.Versions, kb.ProfileVersion{Kernel: kernel(name, v)})
	}
	return p
}

func kernel(name string, v uint32) kb.Kernel {
	return kb.Kernel{
		Profile: name, Version: v,
		ImageDigest: "sha256:" + strings.Repeat(fmt.Sprintf("%02x", v), 32), ImageSize: 4096,
		Arguments: []string{"quiet"}, BuildID: strings.Repeat("ab", 20), Release: "6.1.0-" + name,
		Architecture: "x86_64", Drivers: []string{"virtio_net"},
	}
}

func apply(t *testing.T, c *Catalog, id string, p kb.Profile) bool {
	t.Helper()
	_, changed, err := c.Apply(t.Context(), id, p)
	if err != nil {
		t.Fatalf("Apply(%s, %s) = %v", id, p.Name, err)
	}
	return changed
}

func TestApplyThenCheck(t *testing.T) {
	c, _ := newCatalog(t)
	if !apply(t, c, "a", profile("mitgcm", 3)) {
		t.Error("a new profile is no change")
	}
	apply(t, c, "b", profile("stock", 1))
	for text, want := range map[string]uint32{"mitgcm": 3, "mitgcm@1": 1, "stock": 1} {
		ref, err := kb.ParseRef(text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Check(t.Context(), ref)
		if err != nil || v.Kernel.Version != want || !v.RegisteredAt.Equal(noon) {
			t.Errorf("Check(%s) = %+v, %v", text, v, err)
		}
	}
	profiles, err := c.List(t.Context())
	if err != nil || len(profiles) != 2 || profiles[0].Name != "mitgcm" || profiles[1].Name != "stock" {
		t.Errorf("List = %v, %v", profiles, err)
	}
}

func TestUnknownNamesGetNearMisses(t *testing.T) {
	c, _ := newCatalog(t)
	for _, name := range []string{"mitgcm", "mitgcm-ad", "stock", "gromacs"} {
		apply(t, c, name, profile(name, 1))
	}
	for name, want := range map[string]string{
		"mitgmc":  `unknown kernel profile "mitgmc"; did you mean "mitgcm"?`,
		"stok":    `unknown kernel profile "stok"; did you mean "stock"?`,
		"grom":    `unknown kernel profile "grom"; did you mean "gromacs"?`,
		"mitgc":   `unknown kernel profile "mitgc"; did you mean "mitgcm" or "mitgcm-ad"?`,
		"unheard": `unknown kernel profile "unheard"`,
	} {
		_, err := c.Check(t.Context(), kb.Ref{Profile: name})
		if err == nil || err.Error() != want || !errors.Is(err, kb.ErrNotFound) {
			t.Errorf("Check(%s) = %v, want %s", name, err, want)
		}
	}
	_, err := c.Check(t.Context(), kb.Ref{Profile: "mitgcm", Version: 9})
	if !errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), "no version 9") {
		t.Errorf("Check(mitgcm@9) = %v", err)
	}
	if _, err = c.Get(t.Context(), "No Name"); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("Get(No Name) = %v", err)
	}
}

func TestVersionsAreImmutable(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))

	other := profile("mitgcm", 2)
	other.Versions[1].Kernel.Arguments = []string{"loglevel=3"}
	_, _, err := c.Apply(t.Context(), "b", other)
	if !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), `kernel "mitgcm@2" exists`) ||
		!strings.Contains(err.Error(), "arguments: [quiet], not [loglevel=3]") {
		t.Errorf("changed content = %v", err)
	}

	fewer := profile("mitgcm", 1)
	fewer.Description = "better described"
	if !apply(t, c, "c", fewer) {
		t.Error("a new description is no change")
	}
	got, err := c.Get(t.Context(), "mitgcm")
	if err != nil || len(got.Versions) != 2 || got.DefaultVersion != 1 || got.Description != "better described" {
		t.Errorf("after applying fewer versions: %+v, %v", got, err)
	}
}

func TestApplyRepeated(t *testing.T) {
	c, _ := newCatalog(t)
	first, second := profile("mitgcm", 1), profile("mitgcm", 1)
	second.Description = "second"
	if !apply(t, c, "one", first) || apply(t, c, "one", first) || apply(t, c, "same", first) {
		t.Error("only the first of equal applications is a change")
	}
	apply(t, c, "two", second)
	if apply(t, c, "one", first) || apply(t, c, "same", first) {
		t.Error("a late repeat changed something")
	}
	if got, err := c.Get(t.Context(), "mitgcm"); err != nil || got.Description != "second" {
		t.Errorf("a late repeat undid a newer change: %+v, %v", got, err)
	}
	if _, _, err := c.Apply(t.Context(), "one", second); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("an id for two requests = %v", err)
	}
	for _, id := range []string{"", "a b", strings.Repeat("x", 65), "é"} {
		if _, _, err := c.Apply(t.Context(), id, first); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("request id %q = %v", id, err)
		}
	}
}

func TestApplyIgnoresLifecycleInRequest(t *testing.T) {
	c, _ := newCatalog(t)
	p := profile("mitgcm", 1)
	p.Versions[0].Quarantine = &kb.Quarantine{Reason: "forged"}
	p.Versions[0].BootFailures = 7
	apply(t, c, "a", p)
	v, err := c.Check(t.Context(), kb.Ref{Profile: "mitgcm"})
	if err != nil || v.BootFailures != 0 {
		t.Errorf("Check = %+v, %v", v, err)
	}
}

func TestApplyNeedsArtifacts(t *testing.T) {
	c, _ := newCatalog(t)
	broken := errors.New("disk broken")
	for _, step := range []struct {
		has  bool
		err  error
		want error
	}{{false, nil, kb.ErrFailedPrecondition}, {false, broken, broken}, {true, nil, nil}} {
		c.o.HasArtifact = func(string, uint64) (bool, error) { return step.has, step.err }
		if _, _, err := c.Apply(t.Context(), "a", profile("mitgcm", 1)); !errors.Is(err, step.want) {
			t.Errorf("has %v, %v: Apply = %v", step.has, step.err, err)
		}
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	c, s := newCatalog(t)
	value := []byte(`{"format":2,"profile":{"name":"mitgcm"},"writes":[]}`)
	if _, err := s.Commit(t.Context(), store.Write{Key: "profiles/mitgcm", Value: value}); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"List":  func() error { _, err := c.List(t.Context()); return err },
		"Get":   func() error { _, err := c.Get(t.Context(), "mitgcm"); return err },
		"Apply": func() error { _, _, err := c.Apply(t.Context(), "a", profile("mitgcm", 1)); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "format 2") {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func TestUnreachableStore(t *testing.T) {
	c, s := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 1))
	s.FailReads(1)
	if _, err := c.Get(t.Context(), "mitgcm"); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("Get = %v", err)
	}
	s.FailReads(1000)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.RecordBootFailure(ctx, BootFailure{ID: "boot", Ref: kb.Ref{Profile: "mitgcm", Version: 1}, Cause: "x", Only: true, Threshold: 9}); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("RecordBootFailure = %v", err)
	}
}
