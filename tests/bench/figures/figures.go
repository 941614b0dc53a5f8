// SPDX-License-Identifier: Apache-2.0

// Package figures is what the benchmarks have in common: samples and what
// follows from them, tables for people, JSON for programs, and Go's benchmark
// format, in which benchstat compares runs.
package figures

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/aclements/go-moremath/stats"

	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

// Spread of samples.
type Spread struct {
	Samples []float64 `json:"samples"`
	Median  float64   `json:"median"`
	Q1      float64   `json:"q1"`
	Q3      float64   `json:"q3"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
}

// Of is the spread of samples; without any it is empty.
func Of(samples []float64) Spread {
	if len(samples) == 0 {
		return Spread{}
	}
	s := stats.Sample{Xs: slices.Sorted(slices.Values(samples)), Sorted: true}
	low, high := s.Bounds()
	return Spread{Samples: samples, Median: s.Quantile(0.5), Q1: s.Quantile(0.25), Q3: s.Quantile(0.75), Min: low, Max: high}
}

// Measure is one thing that is measured.
type Measure struct {
	Name string `json:"name"`
	What string `json:"what"`
	// First is the warm-up, which is not among the samples: caches are cold.
	First []float64 `json:"first"`
	Spread
}

// Book collects samples by name, in the order in which the names come.
type Book struct {
	Measures []*Measure
	// Warming says that samples do not count yet.
	Warming bool
}

// Add a sample.
func (b *Book) Add(name, what string, value float64) {
	i := slices.IndexFunc(b.Measures, func(m *Measure) bool { return m.Name == name })
	if i < 0 {
		i = len(b.Measures)
		b.Measures = append(b.Measures, &Measure{Name: name, What: what})
	}
	m := b.Measures[i]
	if b.Warming {
		m.First = append(m.First, value)
		return
	}
	m.Spread = Of(append(m.Samples, value))
}

// Median of a measure, and whether it has samples.
func (b *Book) Median(name string) (float64, bool) {
	for _, m := range b.Measures {
		if m.Name == name && len(m.Samples) > 0 {
			return m.Median, true
		}
	}
	return 0, false
}

// Goal compares a figure with what was promised.
type Goal struct {
	Name string `json:"name"`
	// Value and Limit are in Unit: s, %, or ratio.
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
	How   string  `json:"how"`
}

// Judge fills in whether the goal is met.
func Judge(name string, value, limit float64, unit, how string) Goal {
	return Goal{Name: name, Value: value, Limit: limit, Unit: unit, Met: value <= limit, How: how}
}

// Table writes measures.
func Table(out io.Writer, title string, measures []*Measure) error {
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s\tMEDIAN\tQUARTILES\tMIN\tMAX\tN\tFIRST\t\n", title)
	for _, m := range measures {
		first := "-"
		if len(m.First) > 0 {
			first = fmt.Sprintf("%.2f", m.First[0])
		}
		if len(m.Samples) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t0\t%s\t%s\n", m.Name, first, m.What)
			continue
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f-%.2f\t%.2f\t%.2f\t%d\t%s\t%s\n", m.Name, m.Median, m.Q1, m.Q3, m.Min, m.Max,
			len(m.Samples), first, m.What)
	}
	return w.Flush()
}

// Goals writes what became of them.
func Goals(out io.Writer, goals []Goal) error {
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "GOAL\tMEASURED\tLIMIT\tVERDICT\tHOW")
	for _, g := range goals {
		verdict := "goal not met"
		if g.Met {
			verdict = "goal met"
		}
		unit := " " + g.Unit
		if g.Unit == "ratio" {
			unit = ""
		}
		fmt.Fprintf(w, "%s\t%.2f%s\t%.2f%s\t%s\t%s\n", g.Name, g.Value, unit, g.Limit, unit, verdict, g.How)
	}
	return w.Flush()
}

// Series are samples under the name that benchstat has for them.
type Series struct {
	Name, Unit string
	Samples    []float64
}

// Series of a book's measures, each as NAME/measure=ITS-NAME.
func (b *Book) Series(name, unit string) []Series {
	var all []Series
	for _, m := range b.Measures {
		all = append(all, Series{name + "/measure=" + strings.ReplaceAll(m.Name, " ", "-"), unit, m.Samples})
	}
	return all
}

// Write leaves the result as JSON in the file, and beside it, with .txt instead
// of .json, the samples for benchstat.
func Write(path string, result any, series []Series) error {
	if err := jsonfile.Write(path, result); err != nil {
		return err
	}
	var text strings.Builder
	for _, s := range series {
		for _, v := range s.Samples {
			fmt.Fprintf(&text, "Benchmark%s 1 %g %s\n", s.Name, v, s.Unit)
		}
	}
	return os.WriteFile(strings.TrimSuffix(path, ".json")+".txt", []byte(text.String()), 0o644)
}
