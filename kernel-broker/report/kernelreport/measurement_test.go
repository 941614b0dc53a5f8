// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

func written(t testing.TB, f Facts) []byte {
	t.Helper()
	r, err := Make(f)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// aKernel is the one that the fixture is about, by its image alone.
var aKernel = build.Manifest{Image: build.File{Digest: digestOf("c")}}

// A report counts for what the same recipe, profile and compiler made of another
// version of the source, and says of which it is.
func TestReadMeasurementOfAnotherVersion(t *testing.T) {
	f := fixture()
	f.Kernels[4].Provenance.Patches = []build.Patch{{Name: "p", Digest: digestOf("9")}}
	text := written(t, f)
	made := func() build.Manifest {
		m := aKernel
		m.Name, m.Image.Digest = "io-kernel", digestOf("8")
		m.Source = build.Source{Package: "linux-source-6.1", Version: "6.1.200-1", Digest: digestOf("7"), Patches: []build.Patch{{Name: "p", Digest: digestOf("9")}}}
		m.Fragments = []build.Part{{Name: "base", Digest: digestOf("1")}, {Name: "hardening", Digest: digestOf("2")}}
		m.Compiler, m.Flags = &build.Compiler{Name: "gcc-12", Version: "12.2.0-14+deb12u1"}, []string{"-O2"}
		m.Profile = &build.Use{Digest: digestOf("e")}
		return m
	}
	got, err := ReadMeasurement(text, made())
	if err != nil || got.MeasuredOn != "6.1.192-1" || got.Outcome != kb.OutcomeBenefit || got.ToStock == nil {
		t.Errorf("another version: %+v, %v", got, err)
	}
	for name, change := range map[string]func(*build.Manifest){
		"another image of the same version": func(m *build.Manifest) { m.Source.Version = "6.1.192-1" },
		"another package":                   func(m *build.Manifest) { m.Source.Package = "linux-source-6.12" },
		"another recipe":                    func(m *build.Manifest) { m.Name = "net" },
		"another fragment":                  func(m *build.Manifest) { m.Fragments[1].Digest = digestOf("3") },
		"one fragment less":                 func(m *build.Manifest) { m.Fragments = m.Fragments[:1] },
		"other patches":                     func(m *build.Manifest) { m.Source.Patches = nil },
		"other flags":                       func(m *build.Manifest) { m.Flags = []string{"-O3"} },
		"another compiler":                  func(m *build.Manifest) { m.Compiler.Version = "12.2.0-15" },
		"no compiler":                       func(m *build.Manifest) { m.Compiler = nil },
		"another profile":                   func(m *build.Manifest) { m.Profile.Digest = digestOf("d") },
		"without its profile":               func(m *build.Manifest) { m.Profile = nil },
	} {
		m := made()
		change(&m)
		if got, err := ReadMeasurement(text, m); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	f.Kernels[4].Provenance.ProfileDigest = ""
	m := made()
	m.Profile = nil
	if got, err := ReadMeasurement(written(t, f), m); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("neither has a profile: %+v, %v", got, err)
	}
}

// The fixture's kernel needs 0.955 of what slim needs, and 0.955/1.4 of stock; a
// program's own instructions are a fifth of the kernel's. The spread is the resolution.
func TestReadMeasurement(t *testing.T) {
	text := written(t, fixture())
	got, err := ReadMeasurement(text, aKernel)
	if err != nil {
		t.Fatal(err)
	}
	share, slim, stock := kb.Estimate{Percent: 83.3333, Low: 83.3333, High: 83.3333}, kb.Estimate{Percent: -3.75, Low: -3.8296, High: -3.6704}, kb.Estimate{Percent: -26.4881, Low: -26.5449, High: -26.4313}
	want := &kb.Measurement{
		Outcome: kb.OutcomeBenefit, Reason: "kernel instructions (strings weighed) -4.5 % on io-write8 (exact counts, and fewer)",
		Workload: "io-write8", Metric: "kernel_weighed_instructions", Report: digest.Of(text),
		ToSlim:  &kb.Gain{Kernel: kb.Estimate{Percent: -4.5, Low: -4.5955, High: -4.4045}, Share: &share, Whole: &slim, Source: kb.ShareOfWorkload},
		ToStock: &kb.Gain{Kernel: kb.Estimate{Percent: -31.7857, Low: -31.8539, High: -31.7175}, Share: &share, Whole: &stock, Source: kb.ShareOfWorkload},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %+v %+v,\nwant %+v %+v %+v", got, got.ToSlim, got.ToStock, want, want.ToSlim, want.ToStock)
	}
	f := fixture()
	f.RunShares = []verdict.RunShare{{Run: 3, Kernel: "stock@1", Share: 0.02}, {Run: 8, Kernel: "stock@1", Share: 0.04}}
	f.Kernels[0].Mitigations = nil
	if got, err = ReadMeasurement(written(t, f), aKernel); err != nil {
		t.Fatal(err)
	}
	if s := got.ToSlim; s.Source != kb.ShareOfRuns || !reflect.DeepEqual(s.Runs, []uint64{3, 8}) || *s.Share != (kb.Estimate{Percent: 3, Low: 2, High: 4}) ||
		*s.Whole != (kb.Estimate{Percent: -0.135, Low: -0.1838, High: -0.0881}) || s.Unequal {
		t.Errorf("with runs: %+v %v %v", s, s.Share, s.Whole)
	}
	if !got.ToStock.Unequal {
		t.Error("other mitigations of stock are not told")
	}
}

// A report of before strings were weighed says by its metric what its gains are in.
func TestReadMeasurementOfPlainCounts(t *testing.T) {
	f := fixture()
	f.Samples = slices.DeleteFunc(f.Samples, func(s verdict.Sample) bool {
		return s.Metric == verdict.KernelWeighed || s.Metric == verdict.UserWeighed
	})
	got, err := ReadMeasurement(written(t, f), aKernel)
	if err != nil || got.Metric != "kernel_instructions" || got.Reason != "kernel instructions -4.5 % on io-write8 (exact counts, and fewer)" ||
		got.ToSlim.Kernel.Percent != -4.5 || got.ToStock.Share == nil {
		t.Errorf("%+v, %v", got, err)
	}
	has(t, "the tables", rows(mustMake(t, f)), "Kernel instructions for each operation | io-write8 | 1,344 | 960 |")
}

// A kernel that is no better is described, too, and one without figures.
func TestReadMeasurementOfNoBenefit(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Facts)
		outcome kb.Outcome
		gains   bool
	}{
		"slower":   {func(f *Facts) { f.Subject, f.Application = "net", "io" }, kb.OutcomeNoBenefit, true},
		"wrong":    {func(f *Facts) { f.Checks[0].Passed, f.Samples = false, nil }, kb.OutcomeNoBenefit, false},
		"no check": {func(f *Facts) { f.Checks = nil }, kb.OutcomeRefused, true},
	} {
		f := fixture()
		c.change(&f)
		f.Checks = append(f.Checks, verdict.CheckRun{Workload: "fsx", Kernel: "net", Passed: true})
		got, err := ReadMeasurement(written(t, f), aKernel)
		if err != nil || got.Outcome != c.outcome || (got.ToSlim != nil) != c.gains || got.Reason == "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// The catalog names some of many runs; the report has them all.
func TestReadMeasurementOfManyRuns(t *testing.T) {
	f := fixture()
	for i := range 100 {
		f.RunShares = append(f.RunShares, verdict.RunShare{Run: uint64(i + 1), Kernel: "stock", Share: 0.1})
	}
	got, err := ReadMeasurement(written(t, f), aKernel)
	if err != nil || len(got.ToStock.Runs) != kb.MaxShareRuns || got.ToStock.Runs[0] != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestReadMeasurementRefuses(t *testing.T) {
	good := string(written(t, fixture()))
	for words, text := range map[string]string{
		"report: unexpected end":                          good[:len(good)/2],
		"format 2, only 1 is known":                       strings.Replace(good, `"format": 1`, `"format": 2`, 1),
		"it has no verdict":                               string(written(t, bench())),
		`it is about kernel "io-kernel" with image "sha2`: strings.ReplaceAll(good, digestOf("c"), digestOf("9")),
		`it is about kernel "gone" with image ""`:         strings.Replace(good, `"subject": "io-kernel"`, `"subject": "gone"`, 1),
		`outcome "splendid" is not`:                       strings.Replace(good, `"outcome": "benefit"`, `"outcome": "splendid"`, 1),
		"is not in order or not within":                   strings.Replace(good, `"low": -`, `"low": `, 1),
	} {
		if text == good {
			t.Fatalf("%s: nothing is changed", words)
		}
		if m, err := ReadMeasurement([]byte(text), aKernel); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v, %v, want %q", m, err, words)
		}
	}
}

// Whatever a report holds, what is taken from it is valid.
func FuzzReadMeasurement(f *testing.F) {
	// A whole report is too large for the fuzzer to get anywhere.
	seed := []byte(`{"format":1,"facts":{"subject":"k","application":"a","applications":[{"name":"a","test":{"workload":"w"}}],` +
		`"kernels":[{"name":"k","provenance":{"image_digest":"` + digestOf("c") + `"}}]},"figures":{"verdict":{"outcome":"benefit","reason":"fewer","gains":[` +
		`{"baseline":"stock","metric":"m","change":{"value":-0.1,"low":-0.2,"high":0},"standing":"better","kernel_share":{"value":0.5,"low":0.4,"high":0.6,` +
		`"source":"runs","runs":[{"run":3,"kernel":"stock@1","share":0.5}]},"whole":{"value":-0.05,"low":-0.12,"high":0}}]}}}`)
	if m, err := ReadMeasurement(seed, aKernel); err != nil || m.ToStock.Runs[0] != 3 {
		f.Fatalf("%+v, %v", m, err)
	}
	f.Add(seed)
	f.Add([]byte(`{"format":1,"figures":{"verdict":{"outcome":"benefit","gains":[{"baseline":"slim","kernel_share":null,"whole":{}}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ReadMeasurement(text, aKernel)
		if err == nil && m.Validate() != nil {
			t.Errorf("%+v: %v", m, m.Validate())
		}
	})
}
