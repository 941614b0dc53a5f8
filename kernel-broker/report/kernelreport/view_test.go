// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"html"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

func texts(t *testing.T, r Report) (onPage, inTerminal string) {
	t.Helper()
	var a, b bytes.Buffer
	if err := r.WriteHTML(&a); err != nil {
		t.Fatal(err)
	}
	if err := r.Document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return html.UnescapeString(a.String()), b.String()
}

// Each figure of each table that is not folded stands on the page and in the
// terminal's text alike.
func TestPageAndTerminalSayTheSame(t *testing.T) {
	r := mustMake(t, bench())
	onPage, inTerminal := texts(t, r)
	cells := 0
	for _, section := range r.Document().Sections {
		for _, part := range section.Components {
			table, ok := part.(report.Table)
			if !ok {
				continue
			}
			for _, row := range append(append([]report.Row{}, table.Rows...), table.Foot...) {
				for _, cell := range row {
					cells++
					// A cell without room in the terminal is broken between its words.
					missing := func(word string) bool { return !strings.Contains(inTerminal, word) }
					if !strings.Contains(onPage, ">"+cell.Text+"<") || missing(cell.Text) && (cell.Value != nil || slices.ContainsFunc(strings.Fields(cell.Text), missing)) {
						t.Errorf("%s: %q is not in both", table.Caption, cell.Text)
					}
				}
			}
		}
	}
	if cells < 200 {
		t.Errorf("only %d cells", cells)
	}
}

func timed(kernel string, seconds ...float64) verdict.Sample {
	return verdict.Sample{
		Workload: "io-write8", Metric: verdict.WallTime, Unit: "seconds/operation", Kernel: kernel,
		Values: seconds, Size: operations, Seed: 7, Operations: operations,
	}
}

func TestWallTime(t *testing.T) {
	f := fixture()
	f.Samples = append(f.Samples,
		timed("slim", 1.50e-6, 1.51e-6, 1.52e-6), timed("stock", 1.9e-6, 1.91e-6, 1.93e-6), timed("io-kernel", 1.70e-6, 1.71e-6, 1.72e-6))
	r := mustMake(t, f)
	// Fewer instructions that take longer are no gain.
	if v := r.Figures.Verdict; v.Outcome != kb.OutcomeNoBenefit || !strings.Contains(v.Reason, "wall time +13.2 %") {
		t.Errorf("%s: %s", v.Outcome, v.Reason)
	}
	onPage, inTerminal := texts(t, r)
	for _, want := range []string{"Wall time of each operation", "1.71 µs", "+13.2 %", "Wall time against stock"} {
		if !strings.Contains(onPage, want) || !strings.Contains(inTerminal, want) {
			t.Errorf("%q is not in both", want)
		}
	}
}

// What may be chance has a question mark, and no colour.
func TestChangeThatMayBeChance(t *testing.T) {
	f := fixture()
	f.Samples = append(f.Samples, timed("slim", 1e-6, 2e-6, 3e-6), timed("io-kernel", 0.5e-6, 1.6e-6, 4e-6))
	for _, section := range mustMake(t, f).Document().Sections {
		if section.ID != "time" {
			continue
		}
		for _, part := range section.Components {
			if table, ok := part.(report.Table); ok && table.Caption == "Wall time against slim" {
				for _, cell := range table.Rows[0] {
					if cell.Text == "-20.0 % ?" && cell.Shade == 0 {
						return
					}
				}
				t.Errorf("row %+v", table.Rows[0])
			}
		}
	}
	t.Error("nothing may be chance")
}

func TestSharesAreShaded(t *testing.T) {
	for by, want := range map[float64]int{0: 0, 0.009: 0, -0.01: -1, 0.05: 2, -0.149: -2, 0.15: 3, -9: -3} {
		if got := share(by).Shade; got != want {
			t.Errorf("%v is shaded %d, want %d", by, got, want)
		}
	}
}
