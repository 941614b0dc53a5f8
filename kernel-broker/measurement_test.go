// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func aMeasurement() Measurement {
	whole := func() *Estimate { return &Estimate{-1.66, -1.7, -1.6} }
	return Measurement{
		Outcome: OutcomeBenefit, Reason: "kernel instructions -13.3 % on write8", Workload: "write8", Metric: "kernel_instructions",
		ToSlim:  &Gain{Kernel: Estimate{-13.3, -13.4, -13.1}, Share: &Estimate{12.5, 12, 13}, Whole: whole(), Source: ShareOfRuns, Runs: []uint64{3, 8}},
		ToStock: &Gain{Kernel: Estimate{-32.4, -32.4, -32.4}, Chance: true, Unequal: true, Share: &Estimate{0, 0, 100}, Whole: whole(), Source: ShareOfWorkload},
		Report:  "sha256:" + strings.Repeat("7", 64),
	}
}

func TestMeasurementValidate(t *testing.T) {
	for words, change := range map[string]func(*Measurement){
		`outcome "" is not`:            func(m *Measurement) { m.Outcome = "" },
		`outcome "failed" is not`:      func(m *Measurement) { m.Outcome = "failed" },
		"reason is not one line":       func(m *Measurement) { m.Reason = "a\nb" },
		"at most 200 printable":        func(m *Measurement) { m.Reason = strings.Repeat("x", 201) },
		`workload "a b" is not a name`: func(m *Measurement) { m.Workload = "a b" },
		`workload "" is not a name`:    func(m *Measurement) { m.Workload = "" },
		`metric "a/b" is not`:          func(m *Measurement) { m.Metric = "a/b" },
		`metric "" is not a name`:      func(m *Measurement) { m.Metric = "" },
		"slim: kernel: NaN % with":     func(m *Measurement) { m.ToSlim.Kernel.Percent = math.NaN() },
		"spread of NaN":                func(m *Measurement) { m.ToSlim.Kernel.Low = math.NaN() },
		"to +Inf is not in order":      func(m *Measurement) { m.ToSlim.Kernel.High = math.Inf(1) },
		"-101 to -13.1 is not":         func(m *Measurement) { m.ToSlim.Kernel.Low = -101 },
		"to 1.000001e+06 is":           func(m *Measurement) { m.ToSlim.Kernel.High = 1000001 },
		"stock: kernel: 5 % with":      func(m *Measurement) { m.ToStock.Kernel.Percent = 5 },
		"stock: kernel share: 0 %":     func(m *Measurement) { m.ToStock.Share.High = 101 },
		"kernel share: -1 %":           func(m *Measurement) { m.ToStock.Share = &Estimate{-1, -1, 2} },
		"whole: -1.66 %":               func(m *Measurement) { m.ToStock.Whole.High = -1.67 },
		"belong together":              func(m *Measurement) { m.ToStock.Share = nil },
		"whole belong together":        func(m *Measurement) { m.ToStock.Whole = nil },
		"where it is from and":         func(m *Measurement) { m.ToStock.Source = "" },
		`share source "guess" is`:      func(m *Measurement) { m.ToStock.Source = "guess" },
		"0 profiling runs":             func(m *Measurement) { m.ToSlim.Runs = nil },
		"1 profiling runs":             func(m *Measurement) { m.ToStock.Runs = []uint64{1} },
		"65 profiling runs":            func(m *Measurement) { m.ToSlim.Runs = make([]uint64, 65) },
		"report: digest":               func(m *Measurement) { m.Report = "7" },
	} {
		m := aMeasurement()
		change(&m)
		if err := m.Validate(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	for name, m := range map[string]Measurement{
		"all of it": aMeasurement(), "without figures": {Outcome: OutcomeRefused, Report: aMeasurement().Report},
	} {
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A measurement names the report that it is from, and comes with it.
func TestMeasurementNeedsItsReport(t *testing.T) {
	m := aMeasurement()
	v := ProfileVersion{Measured: &m}
	if err := v.ValidateMeasured(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "is not one of the version's documents") {
		t.Error(err)
	}
	v.Documents = []Document{{Name: "report", Digest: m.Report}}
	if err := v.ValidateMeasured(); err != nil {
		t.Error(err)
	}
	m.Report = "x"
	if err := v.ValidateMeasured(); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := (ProfileVersion{}).ValidateMeasured(); err != nil {
		t.Error(err)
	}
}

// Figures of a record say what they are in, and come back as they were.
func TestMeasurementInRecords(t *testing.T) {
	m := aMeasurement()
	text, err := json.Marshal(ProfileVersion{Measured: &m})
	if err != nil {
		t.Fatal(err)
	}
	var back ProfileVersion
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(*back.Measured, m) {
		t.Errorf("%s became %+v, %v", text, back.Measured, err)
	}
	for _, words := range []string{`"outcome":"benefit"`, `"kernel":{"percent":-13.3,"low_percent":-13.4,"high_percent":-13.1}`, `"share_runs":[3,8]`} {
		if !strings.Contains(string(text), words) {
			t.Errorf("no %s in %s", words, text)
		}
	}
	// A version from before has none.
	plain, err := json.Marshal(ProfileVersion{})
	if err != nil || slices.Contains(strings.Split(string(plain), `"`), "measured") {
		t.Errorf("%s, %v", plain, err)
	}
}

func FuzzMeasurement(f *testing.F) {
	text, err := json.Marshal(aMeasurement())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"outcome":"benefit","to_slim":{"kernel":{"percent":1e308}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m Measurement
		if json.Unmarshal(text, &m) != nil || m.Validate() != nil {
			return
		}
		// What is valid is short, and can be written.
		again, err := json.Marshal(m)
		if err != nil || len(again) > 6000 {
			t.Errorf("%d bytes, %v", len(again), err)
		}
	})
}
