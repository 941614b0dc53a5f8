// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

var mitgcm2 = kb.Ref{Profile: "mitgcm", Version: 2}

var boots atomic.Uint32

func nextBoot() string { return fmt.Sprintf("boot-%d", boots.Add(1)) }

func fail(t *testing.T, c *Catalog, ref kb.Ref, cause string) bool {
	t.Helper()
	quarantined, err := c.RecordBootFailure(t.Context(), BootFailure{ID: nextBoot(), Ref: ref, Cause: cause, Only: true, Threshold: 2})
	if err != nil {
		t.Fatal(err)
	}
	return quarantined
}

func TestQuarantineAndRelease(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	if fail(t, c, mitgcm2, "n1: silent") {
		t.Error("quarantined by the first failure")
	}
	if _, err := c.Check(t.Context(), mitgcm2); err != nil {
		t.Errorf("Check after one failure = %v", err)
	}
	if !fail(t, c, mitgcm2, "n2:\x1b[31m panic\n\tagain") || !fail(t, c, mitgcm2, "n3: late") {
		t.Error("not quarantined by the second failure")
	}
	_, err := c.Check(t.Context(), kb.Ref{Profile: "mitgcm"})
	want := `kernel "mitgcm@2" is quarantined since 2026-11-20T12:00:00Z: failed to boot 2 times, last: n2: [31m panic again; you can choose "mitgcm@1"`
	if !errors.Is(err, kb.ErrQuarantined) || err.Error() != want {
		t.Errorf("Check = %v\nwant %s", err, want)
	}
	if err := c.ReleaseQuarantine(t.Context(), "r", mitgcm2); err != nil {
		t.Errorf("ReleaseQuarantine = %v", err)
	}
	if err := c.ReleaseQuarantine(t.Context(), "r", mitgcm2); err != nil {
		t.Errorf("repeated ReleaseQuarantine = %v", err)
	}
	if v, err := c.Check(t.Context(), mitgcm2); err != nil || v.BootFailures != 0 {
		t.Errorf("Check after release = %+v, %v", v, err)
	}
	if fail(t, c, mitgcm2, "again") {
		t.Error("failures before the release count")
	}
	fail(t, c, mitgcm2, "again")
	if err := c.ReleaseQuarantine(t.Context(), "r", mitgcm2); err != nil {
		t.Errorf("late repeat = %v", err)
	}
	if _, err := c.Check(t.Context(), mitgcm2); !errors.Is(err, kb.ErrQuarantined) {
		t.Errorf("a late repeat released a new quarantine: %v", err)
	}
}

func TestReleaseRefused(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	for _, step := range []struct {
		ref  kb.Ref
		want error
		text string
	}{
		{mitgcm2, kb.ErrFailedPrecondition, `"mitgcm@2" is not quarantined`},
		{kb.Ref{Profile: "mitgcm", Version: 7}, kb.ErrNotFound, "no version 7"},
		{kb.Ref{Profile: "mitgcm"}, kb.ErrInvalid, "names no version"},
		{kb.Ref{Profile: "mitgmc", Version: 2}, kb.ErrNotFound, `did you mean "mitgcm"?`},
		{kb.Ref{Profile: "../x", Version: 2}, kb.ErrInvalid, "character"},
	} {
		err := c.ReleaseQuarantine(t.Context(), "r", step.ref)
		if !errors.Is(err, step.want) || !strings.Contains(err.Error(), step.text) {
			t.Errorf("ReleaseQuarantine(%v) = %v, want %v, %q", step.ref, err, step.want, step.text)
		}
	}
}

func TestStockIsNeverQuarantined(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("stock", 1))
	stock := kb.Ref{Profile: "stock", Version: 1}
	for range 5 {
		if fail(t, c, stock, "no word") {
			t.Fatal("stock is quarantined")
		}
	}
	if v, err := c.Check(t.Context(), stock); err != nil || v.BootFailures != 5 {
		t.Errorf("Check = %+v, %v", v, err)
	}
}

func TestOnlyVersionQuarantined(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("broken", 1))
	ref := kb.Ref{Profile: "broken", Version: 1}
	fail(t, c, ref, "a")
	fail(t, c, ref, "b")
	_, err := c.Check(t.Context(), ref)
	if err == nil || !strings.HasSuffix(err.Error(), "; an administrator can release it") {
		t.Errorf("Check = %v", err)
	}
}

// A broker that was killed after it counted a boot counts it again.
func TestOneBootIsCountedOnce(t *testing.T) {
	c, _ := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	for range 3 {
		if quarantined, err := c.RecordBootFailure(t.Context(), BootFailure{ID: "token", Ref: mitgcm2, Cause: "panic", Only: true, Threshold: 2}); err != nil || quarantined {
			t.Fatalf("RecordBootFailure = %v, %v", quarantined, err)
		}
	}
	if v, err := c.Check(t.Context(), mitgcm2); err != nil || v.BootFailures != 1 {
		t.Errorf("one boot counts as %d (%v)", v.BootFailures, err)
	}
	for range 2 {
		if quarantined, err := c.RecordBootFailure(t.Context(), BootFailure{ID: "another", Ref: mitgcm2, Cause: "panic", Only: true, Threshold: 2}); err != nil || !quarantined {
			t.Errorf("RecordBootFailure = %v, %v", quarantined, err)
		}
	}
	if _, err := c.RecordBootFailure(t.Context(), BootFailure{ID: "", Ref: mitgcm2, Cause: "panic", Only: true, Threshold: 2}); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a boot without an id: %v", err)
	}
}

// Every failure counts once, despite concurrent writers and lost answers.
func TestConcurrentFailuresAreCountedOnce(t *testing.T) {
	c, s := newCatalog(t)
	apply(t, c, "a", profile("mitgcm", 2))
	s.FailCommits(3, memstore.After)
	s.FailCommits(3, memstore.Before)
	const writers = 6
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			if _, err := c.RecordBootFailure(t.Context(), BootFailure{ID: nextBoot(), Ref: mitgcm2, Cause: "x", Only: true, Threshold: 100}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	v, err := c.Check(t.Context(), mitgcm2)
	if err != nil || v.BootFailures != writers {
		t.Errorf("%d failures were counted, want %d (%v)", v.BootFailures, writers, err)
	}
}

// Failures of a single node count as that node's fault if another node could have had any.
func TestOneNodeDoesNotQuarantine(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []string
		only  bool
		want  bool
	}{
		{"one node, again and again", []string{"n1", "n1", "n1", "n1"}, false, false},
		{"the only node", []string{"n1", "n1"}, true, true},
		{"two nodes", []string{"n1", "n2"}, false, true},
		{"a second node, late", []string{"n1", "n1", "n1", "n2"}, false, true},
		{"one failure", []string{"n1"}, true, false},
		{"by a broker that named no nodes", []string{"", ""}, false, false},
	} {
		c1, _ := newCatalog(t)
		apply(t, c1, "a", profile("mitgcm", 2))
		got := false
		for _, node := range c.nodes {
			var err error
			f := BootFailure{ID: nextBoot(), Ref: mitgcm2, Node: node, Cause: "panic", Only: c.only, Threshold: 2}
			if got, err = c1.RecordBootFailure(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		if got != c.want {
			t.Errorf("%s: quarantined %v", c.name, got)
		}
	}
}
