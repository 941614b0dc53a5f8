// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

func benchFacts() kernelreport.Facts {
	facts := kernelreport.Facts{Title: "Two kernels", Stock: "stock", Slim: "slim", Command: "test", Machine: "here", Made: "2026-11-20T15:00:00Z", Rules: rules}
	values := map[string][]float64{"io": {1400, 1000, 955, 1100}, "net": {1520, 1000, 1030, 933}}
	for i, name := range []string{"stock", "slim", "io", "net"} {
		facts.Kernels = append(facts.Kernels, kernelreport.Kernel{Kernel: verdict.Kernel{Name: name}, Size: kernelreport.Size{FunctionText: int64(479 - 10*i)}})
		for workload, row := range values {
			s := sample(name, true, row[i])
			s.Workload = workload
			facts.Samples = append(facts.Samples, s)
			s.Metric, s.Unit = verdict.TakenBranches, "branches/operation"
			s.Values = []float64{row[i] - 800}
			facts.Samples = append(facts.Samples, s)
			for part, lines := range map[string][]float64{"open": {90, 50, 40, 30}, "write": {99, 60, 30, 20}} {
				s.Metric, s.Unit, s.Part, s.Values = verdict.TextLines, "lines", part, []float64{lines[i]}
				facts.Samples = append(facts.Samples, s)
			}
		}
	}
	for _, name := range []string{"io", "net"} {
		facts.Workloads = append(facts.Workloads, kernelreport.Workload{Name: name})
		facts.Applications = append(facts.Applications, verdict.Application{Name: name, Test: verdict.Run{Workload: name, Seed: 7, Size: 50000}, Kernel: name})
	}
	return facts
}

func TestGoals(t *testing.T) {
	r, err := Make(benchFacts())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range r.Goals {
		got = append(got, fmt.Sprintf("%s | %s | %v", g.Asked, g.Found, g.Reached))
	}
	// sqrt(0.955*0.933), sqrt(955/1400*933/1520), the same with sqrt(155/200*133/200) taken branches;
	// lines sqrt(sqrt(40/50*30/60)*sqrt(30/50*20/60)), 459/469
	want := []string{"at most 85 % | 94.4 % | false", "at most 60 % | 64.7 % | false", "2 of 2 | 2 of 2 | true", "at most 55 % | 71.8 % | false", "at most 70 % | 53.2 % | true", "at most 70 % | not measured | false", "at most 70 % | 97.9 % | false"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The goals stand first, and the cross table behind the instructions, with a
// star at each application's own kernel.
func TestDocument(t *testing.T) {
	r, err := Make(benchFacts())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, section := range r.Document().Sections {
		ids = append(ids, section.ID)
	}
	if ids[0] != "goals" || slices.Index(ids, "cross") != slices.Index(ids, "instructions")+1 {
		t.Errorf("sections %v", ids)
	}
	var text bytes.Buffer
	if err := r.Document().WriteText(&text); err != nil || !strings.Contains(text.String(), "* -4.5 %") || !strings.Contains(text.String(), "geometric mean") {
		t.Errorf("%v: %s", err, text.String())
	}
}
