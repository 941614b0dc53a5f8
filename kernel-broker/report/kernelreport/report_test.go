// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

func mustMake(t *testing.T, f Facts) Report {
	t.Helper()
	r, err := Make(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReadBack(t *testing.T) {
	for _, facts := range []Facts{fixture(), bench()} {
		r := mustMake(t, facts)
		var text bytes.Buffer
		if err := r.WriteJSON(&text); err != nil {
			t.Fatal(err)
		}
		back, err := Read(&text)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, r) {
			t.Error("a report that was read is not what was written")
		}
	}
}

func TestReadRefuses(t *testing.T) {
	var out bytes.Buffer
	if err := mustMake(t, fixture()).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, c := range []struct {
		name, from, to string
		is             error
		says           string
	}{
		{"another format", `"format": 1`, `"format": 2`, ErrFormat, "format 2"},
		{"an unknown key", `"subject"`, `"subjekt"`, nil, "subjekt"},
		{"more behind it", "\n}\n", "\n}\n{}", nil, "invalid character"},
		{"another verdict", `"outcome": "benefit"`, `"outcome": "no benefit"`, ErrContradiction, "no benefit"},
		{"a subject nobody knows", `"subject": "io-kernel"`, `"subject": "elsewhere"`, ErrFacts, "elsewhere"},
		{"no JSON", "{", "[", nil, ""},
	} {
		changed := strings.Replace(text, c.from, c.to, 1)
		if changed == text {
			t.Fatalf("%s: %q is not in the report", c.name, c.from)
		}
		_, err := Read(strings.NewReader(changed))
		if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Who makes the slim kernel's figures better makes the verdict another one,
// and a report that keeps its old verdict is refused.
func TestReadRefusesForgedSamples(t *testing.T) {
	r := mustMake(t, fixture())
	for i, s := range r.Facts.Samples {
		if s.Kernel == "slim" && s.Workload == "io-write8" {
			r.Facts.Samples[i].Values = []float64{1}
		}
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&out); !errors.Is(err, ErrContradiction) {
		t.Errorf("forged samples: %v", err)
	}
}

func TestMakeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"no name":                      func(f *Facts) { f.Subject, f.Application, f.Current = "", "", "" },
		"no time":                      func(f *Facts) { f.Made = "yesterday" },
		"unknown current":              func(f *Facts) { f.Current = "x" },
		"unknown stock":                func(f *Facts) { f.Stock = "x" },
		"unknown application":          func(f *Facts) { f.Application = "x" },
		"a kernel twice":               func(f *Facts) { f.Kernels[0].Name = "slim" },
		"a bad digest":                 func(f *Facts) { f.Kernels[0].Provenance.ConfigDigest = "sha256:00" },
		"a bad fragment digest":        func(f *Facts) { f.Kernels[0].Provenance.Fragments[0].Digest = "md5" },
		"a workload twice":             func(f *Facts) { f.Workloads[0].Name = "syscalls" },
		"an application without one":   func(f *Facts) { f.Applications[0].Test.Workload = "x" },
		"an application twice":         func(f *Facts) { f.Applications[0].Name = "net" },
		"a sample of nobody":           func(f *Facts) { f.Samples[0].Kernel = "x" },
		"a sample of nothing":          func(f *Facts) { f.Samples[0].Workload = "x" },
		"a sample without values":      func(f *Facts) { f.Samples[0].Values = nil },
		"a sample twice":               func(f *Facts) { f.Samples = append(f.Samples, f.Samples[0]) },
		"a check of nobody":            func(f *Facts) { f.Checks[0].Kernel = "x" },
		"an option without a reason":   func(f *Facts) { f.Options[0].Reason = "" },
		"an option without a decision": func(f *Facts) { f.Options[0].Decision = "" },
		"no rules":                     func(f *Facts) { f.Rules = verdict.Rules{} },
		"an application's own unknown": func(f *Facts) { f.Applications[0].Kernel = "x" },
	} {
		f := fixture()
		change(&f)
		if _, err := Make(f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	f := bench()
	f.Application = "io"
	if _, err := Make(f); !errors.Is(err, ErrFacts) {
		t.Errorf("a bench with an application: %v", err)
	}
}

func TestOutcomesOnThePage(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts)
		says   []string
	}{
		{"benefit", func(*Facts) {}, []string{`class="notice good"`, "Benefit: io-kernel is better than slim for io.", "Kernel instructions -4.5 % on io-write8"}},
		{"no benefit", func(f *Facts) { f.Checks[0].Passed, f.Checks[0].Detail = false, "wrong bytes" }, []string{`class="notice bad"`, "No benefit: io-kernel stays a candidate", "Not correct: fsx (wrong bytes)", "FAILED"}},
		{"refused", func(f *Facts) { f.Checks = nil }, []string{`class="notice bad"`, "No verdict: io-kernel stays a candidate", "did not run"}},
	} {
		f := fixture()
		c.change(&f)
		var out bytes.Buffer
		if err := mustMake(t, f).WriteHTML(&out); err != nil {
			t.Fatal(err)
		}
		for _, text := range append(c.says, "Instructions are not time") {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is not on the page", c.name, text)
			}
		}
	}
}

// What is unequal stands in every title that compares, on paper and terminal.
func TestUnequalMitigationsInTitles(t *testing.T) {
	f := fixture()
	f.Kernels[0].Mitigations = []string{"spectre_v2: Retpolines"}
	r := mustMake(t, f)
	var out bytes.Buffer
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	against := 0
	joined := strings.Join(strings.Fields(out.String()), " ")
	for _, rest := range strings.Split(joined, "Kernel instructions against stock")[1:] {
		against++
		if !strings.HasPrefix(rest, " - AT unequal mitigations: meltdown") {
			t.Errorf("a title without it: %.100s", rest)
		}
	}
	if against != 1 {
		t.Errorf("%d tables against stock", against)
	}
	f.Kernels[1].Mitigations = nil
	if got := mustMake(t, f).Figures.Verdict; got.Outcome != verdict.Refused || !strings.Contains(got.Reason, "unequal mitigations") {
		t.Errorf("%s: %s", got.Outcome, got.Reason)
	}
}

// A kernel that wins at other mitigations, where the site allows it, says so at
// the top of its page.
func TestBenefitAtUnequalMitigations(t *testing.T) {
	f := fixture()
	f.Rules.UnequalMitigations = true
	f.Kernels[4].Mitigations = []string{"spectre_v2: Retpolines", "meltdown: Vulnerable"}
	r := mustMake(t, f)
	var out bytes.Buffer
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if title := "Benefit: io-kernel is better than slim for io - AT unequal mitigations: meltdown."; !strings.Contains(strings.Join(strings.Fields(out.String()), " "), title) {
		t.Errorf("no %q in\n%.1200s", title, out.String())
	}
}

func TestPartSymbols(t *testing.T) {
	all := []Symbol{{"b", "", 10, 5, 0}, {"cold", "", 30, 0, 0}, {"a", "", 40, 5, 0}, {"often", "", 1, 1, 9}, {"cold2", "", 31, 0, 0}}
	got := PartSymbols(all)
	want := &Symbols{3, 51, 2, 61, []Symbol{all[3], all[2], all[0]}, []Symbol{all[4], all[1]}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	many := PartSymbols(make([]Symbol, 1000))
	if many.ColdCount != 1000 || len(many.Coldest) != mostSymbols {
		t.Errorf("%d of %d shown", len(many.Coldest), many.ColdCount)
	}
}

// A kernel that is built the plain way has no slim one beside it, and a first
// one on a machine without a distribution's kernel has nothing at all.
func TestWithoutReferences(t *testing.T) {
	f := fixture()
	f.Slim, f.Current = "", "stock"
	var out bytes.Buffer
	if err := mustMake(t, f).WriteText(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, "Kernel instructions against stock") || !strings.Contains(text, "Taken branches in the kernel against stock") {
		t.Error("nothing is said against stock")
	}
	f = bench()
	f.Slim, f.Stock = "", ""
	out.Reset()
	if err := mustMake(t, f).WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(text+out.String(), "\n") {
		if strings.HasSuffix(line, "against") || strings.Contains(line, "against  ") {
			t.Errorf("against nothing: %q", line)
		}
	}
}

// What can be read can be written and read again, and whatever is read does
// not bring the reader down.
func FuzzRead(f *testing.F) {
	for _, facts := range []Facts{fixture(), bench()} {
		r, err := Make(facts)
		if err != nil {
			f.Fatal(err)
		}
		var text bytes.Buffer
		if err := r.WriteJSON(&text); err != nil {
			f.Fatal(err)
		}
		f.Add(text.Bytes())
	}
	f.Add([]byte(`{"format":1,"facts":{"title":"x","made":"2026-11-20T15:00:00Z","rules":{"significance":0.05,"least_repetitions":3}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		var out, page bytes.Buffer
		if err := r.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(&out); err != nil {
			t.Fatal(err)
		}
	})
}

// Reports of earlier versions have cross tables among their figures.
func TestReadOfAnEarlierReport(t *testing.T) {
	var out bytes.Buffer
	want := mustMake(t, fixture())
	if err := want.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(out.String(), `"figures": {`, `"figures": {"cross": [{"metric": "kernel_instructions"}],`, 1)
	got, err := Read(strings.NewReader(text))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v", err)
	}
}
