// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// measured is what the report document says.
func measured(change func(*kb.Measurement)) *kb.Measurement {
	m := &kb.Measurement{
		Outcome: kb.OutcomeBenefit, Reason: "fewer", Workload: "w", Metric: "kernel_instructions", Report: document("report", "1").Digest,
		ToSlim: &kb.Gain{Kernel: kb.Estimate{Percent: -13.3, Low: -13.4, High: -13.1}},
		ToStock: &kb.Gain{Kernel: kb.Estimate{Percent: -32.4, Low: -32.5, High: -32.3}, Share: &kb.Estimate{Percent: 10, Low: 9, High: 11},
			Whole: &kb.Estimate{Percent: -3.24, Low: -3.6, High: -2.9}, Source: kb.ShareOfRuns, Runs: []uint64{3}},
	}
	change(m)
	return m
}

func TestMeasurementOfAVersion(t *testing.T) {
	c, _ := newCatalog(t)
	with := func(m *kb.Measurement, documents ...kb.Document) kb.Profile {
		p := profile("mitgcm", 2)
		p.Versions[1].Documents, p.Versions[1].Measured = documents, m
		return p
	}
	now := func() *kb.Measurement {
		p, err := c.Get(t.Context(), "mitgcm")
		if err != nil {
			t.Fatal(err)
		}
		return p.Versions[1].Measured
	}
	apply(t, c, "none", with(nil))
	if now() != nil {
		t.Errorf("measured %+v", now())
	}
	// It is refused before anything is kept of it.
	for words, c2 := range map[string]struct {
		m         *kb.Measurement
		documents []kb.Document
	}{
		"NaN % with a spread":                       {measured(func(m *kb.Measurement) { m.ToSlim.Kernel.Percent = math.NaN() }), []kb.Document{document("report", "1")}},
		"is not one of the version's documents":     {measured(func(*kb.Measurement) {}), []kb.Document{document("report", "2")}},
		`"mitgcm@2": measurement: outcome "splendi`: {measured(func(m *kb.Measurement) { m.Outcome = "splendid" }), []kb.Document{document("report", "1")}},
		"1111 is not one of the version's":          {measured(func(*kb.Measurement) {}), nil},
	} {
		_, _, err := c.Apply(t.Context(), "wrong", with(c2.m, c2.documents...))
		if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) || now() != nil {
			t.Errorf("%v, want %q; kept %+v", err, words, now())
		}
		fresh := with(c2.m, c2.documents...)
		fresh.Name = "fresh"
		for i := range fresh.Versions {
			fresh.Versions[i].Kernel.Profile = "fresh"
		}
		if _, _, err := c.Apply(t.Context(), "fresh", fresh); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("a new profile with it: %v", err)
		}
	}
	// It comes with the documents of a version that had none, its reason as one line.
	want := measured(func(*kb.Measurement) {})
	sent := measured(func(m *kb.Measurement) { m.Reason = "fewer\n" })
	if !apply(t, c, "with", with(sent, document("report", "1"))) || !reflect.DeepEqual(now(), want) {
		t.Errorf("kept %+v", now())
	}
	// It stays as they do.
	better := measured(func(m *kb.Measurement) { m.ToSlim.Kernel.Low = -50 })
	if apply(t, c, "better", with(better, document("report", "1"))) || apply(t, c, "gone", with(nil)) || !reflect.DeepEqual(now(), want) {
		t.Errorf("became %+v", now())
	}
	// Changes of the lifecycle leave it.
	if _, _, err := c.Quarantine(t.Context(), "q", mitgcm2, "x"); err != nil || !reflect.DeepEqual(now(), want) {
		t.Errorf("quarantined: %+v, %v", now(), err)
	}
}

// A version of which nothing was measured gets that later, with its report, and with a
// note of who said so. Another report under the name of one that is there it does not get.
func TestMeasurementLater(t *testing.T) {
	provenance, report, page := document("provenance", "5"), document("report", "1"), document("page", "2")
	for name, c := range map[string]struct {
		had, sent []kb.Document
		want      string // the names then, with a digit of each digest
		measured  bool
	}{
		"nothing":        {nil, []kb.Document{provenance, report}, "provenance5 report1", true},
		"its origin":     {[]kb.Document{provenance}, []kb.Document{provenance, report, page}, "provenance5 report1", true},
		"this report":    {[]kb.Document{provenance, report}, []kb.Document{report}, "provenance5 report1", true},
		"another report": {[]kb.Document{document("report", "9")}, []kb.Document{report}, "report9", false},
	} {
		catalog, _ := newCatalog(t)
		p := profile("mitgcm", 1)
		p.Versions[0].Documents = c.had
		apply(t, catalog, "before", p)
		p.Versions[0].Documents, p.Versions[0].Measured = c.sent, measured(func(*kb.Measurement) {})
		ctx := kb.WithAuthor(t.Context(), "ann", "at last")
		if _, changed, err := catalog.Apply(ctx, "later", p); err != nil || changed != c.measured {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
		now, err := catalog.Get(t.Context(), "mitgcm")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range now.Versions[0].Documents {
			names = append(names, d.Name+d.Digest[7:8])
		}
		if strings.Join(names, " ") != c.want || (now.Versions[0].Measured != nil) != c.measured {
			t.Errorf("%s: %v, measured %+v", name, names, now.Versions[0].Measured)
		}
		last := now.History[len(now.History)-1]
		if c.measured && (last.Who != "ann" || last.What != kb.ChangeChanged || last.Version != 1 || last.Reason != "measured: benefit") {
			t.Errorf("%s: the history ends with %+v", name, last)
		}
	}
}

// A kernel without a benefit is an entry like others, and may be the default.
func TestNoBenefitIsAnEntry(t *testing.T) {
	c, _ := newCatalog(t)
	p := profile("mitgcm", 1)
	p.Versions[0].Documents = []kb.Document{document("report", "1")}
	p.Versions[0].Measured = measured(func(m *kb.Measurement) {
		m.Outcome, m.ToSlim.Kernel = kb.OutcomeNoBenefit, kb.Estimate{Percent: 2, Low: 1, High: 3}
	})
	apply(t, c, "none", p)
	v, err := c.Check(t.Context(), kb.Ref{Profile: "mitgcm"})
	if err != nil || v.Measured == nil || v.Measured.Outcome != kb.OutcomeNoBenefit {
		t.Errorf("%+v, %v", v, err)
	}
}

// A record of an earlier release has no measurement, and is written back without.
func TestRecordBeforeMeasurements(t *testing.T) {
	c, kept := newCatalog(t)
	old := `{"format":1,"profile":{"name":"mitgcm","application":"MITgcm","description":"x","default_version":1,"versions":[` +
		`{"kernel":{"profile":"mitgcm","version":1,"image_digest":"` + kernel("mitgcm", 1).ImageDigest + `","image_size":4096,"arguments":["quiet"],` +
		`"build_id":"` + kernel("mitgcm", 1).BuildID + `","release":"6.1.0-mitgcm","architecture":"x86_64","drivers":["virtio_net"]},` +
		`"registered_at":"2026-11-20T12:00:00Z","documents":[{"name":"report","digest":"` + document("report", "1").Digest + `","size":10}]}],` +
		`"reuse":"same-profile","fallback":"hold","boot_attempts":2,"boot_timeout":60000000000},"writes":["0"]}`
	if _, err := kept.Commit(context.Background(), store.Write{Key: key("mitgcm"), Value: []byte(old)}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Get(t.Context(), "mitgcm")
	if err != nil || p.Versions[0].Measured != nil || len(p.Versions[0].Documents) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	p.Versions = append(p.Versions, kb.ProfileVersion{Kernel: kernel("mitgcm", 2), Documents: []kb.Document{document("report", "1")}, Measured: measured(func(*kb.Measurement) {})})
	if !apply(t, c, "next", p) {
		t.Error("the next version is no change")
	}
	stored, err := kept.Get(t.Context(), key("mitgcm"))
	if err != nil || strings.Count(string(stored.Value), `"measured":`) != 1 || strings.Index(string(stored.Value), `"measured":`) < strings.Index(string(stored.Value), `"version":2`) {
		t.Errorf("%s, %v", stored.Value, err)
	}
}
