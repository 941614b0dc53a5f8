// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func mustMake(t *testing.T, f Facts) Report {
	t.Helper()
	r, err := Make(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReadVerdict(t *testing.T) {
	var out bytes.Buffer
	made := mustMake(t, fixture())
	if err := made.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, earlier := range []string{text, strings.Replace(text, `"figures": {`, `"figures": {"cross": [{"metric": "kernel_instructions"}],`, 1)} {
		if v, err := ReadVerdict([]byte(earlier)); err != nil || v.Outcome != kb.OutcomeBenefit || v.Reason != made.Figures.Verdict.Reason {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if _, err := ReadVerdict([]byte(strings.Replace(text, `"format": 1`, `"format": 2`, 1))); !errors.Is(err, ErrFormat) {
		t.Errorf("another format: %v", err)
	}
	if _, err := ReadVerdict([]byte("[")); err == nil {
		t.Error("no JSON is read")
	}
	out.Reset()
	if err := mustMake(t, bench()).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if v, err := ReadVerdict(out.Bytes()); v != nil || err != nil {
		t.Errorf("of a bench: %+v, %v", v, err)
	}
}

func TestMakeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"unknown subject":         func(f *Facts) { f.Subject = "x" },
		"unknown current":         func(f *Facts) { f.Current = "x" },
		"unknown application":     func(f *Facts) { f.Application = "x" },
		"a sample without values": func(f *Facts) { f.Samples[0].Values = nil },
		"a sample twice":          func(f *Facts) { f.Samples = append(f.Samples, f.Samples[0]) },
	} {
		f := fixture()
		change(&f)
		if _, err := Make(f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOutcomesOnThePage(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts)
		says   []string
	}{
		{"benefit", func(*Facts) {}, []string{`class="notice good"`, "Benefit: io-kernel is better than slim for io.", "Kernel instructions (strings weighed) -4.5 % on io-write8"}},
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
	if err := r.Document().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	against := 0
	joined := strings.Join(strings.Fields(out.String()), " ")
	for _, rest := range strings.Split(joined, "Kernel instructions (strings weighed) against stock")[1:] {
		against++
		if !strings.HasPrefix(rest, " - AT unequal mitigations: meltdown") {
			t.Errorf("a title without it: %.100s", rest)
		}
	}
	if against != 1 {
		t.Errorf("%d tables against stock", against)
	}
	f.Kernels[1].Mitigations = nil
	if got := mustMake(t, f).Figures.Verdict; got.Outcome != kb.OutcomeRefused || !strings.Contains(got.Reason, "unequal mitigations") {
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
	if err := r.Document().WriteText(&out); err != nil {
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
	if err := mustMake(t, f).Document().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, "Kernel instructions (strings weighed) against stock") || !strings.Contains(text, "Taken branches in the kernel against stock") {
		t.Error("nothing is said against stock")
	}
	f = bench()
	f.Slim, f.Stock = "", ""
	out.Reset()
	if err := mustMake(t, f).Document().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(text+out.String(), "\n") {
		if strings.HasSuffix(line, "against") || strings.Contains(line, "against  ") {
			t.Errorf("against nothing: %q", line)
		}
	}
}
