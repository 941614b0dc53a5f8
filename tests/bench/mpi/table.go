// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Line is one size on all kernels.
type Line struct {
	What  string `json:"what"`
	Unit  string `json:"unit"`
	Bytes int    `json:"bytes"`
	// Figures are in the order of the kernels, the nodes' own first.
	Figures []Figure `json:"figures"`
}

// Figure is one size on one kernel: the medians of its jobs.
type Figure struct {
	Kernel string         `json:"kernel"`
	Jobs   figures.Spread `json:"jobs"`
	// Ratio is to the nodes' own kernel in the same round.
	Ratio figures.Spread `json:"ratio"`
}

// kinds of figures, with what people read them in.
var kinds = []struct {
	what, unit, shown string
	scale             float64
	rows              func(Outcome) []Row
}{
	{"latency", "sec/op", "us", 1e6, func(o Outcome) []Row { return o.Latency }},
	{"bandwidth", "B/s", "MB/s", 1e-6, func(o Outcome) []Row { return o.Bandwidth }},
}

// tabulate puts the jobs of all rounds beside each other. All have the sizes of the
// first one, and each round has each kernel.
func tabulate(kernels []string, outcomes []Outcome) ([]Line, error) {
	byKernel := map[string][]Outcome{}
	for _, o := range outcomes {
		byKernel[o.Kernel] = append(byKernel[o.Kernel], o)
	}
	var lines []Line
	for _, kind := range kinds {
		for i, row := range kind.rows(outcomes[0]) {
			line := Line{What: kind.what, Unit: kind.unit, Bytes: row.Bytes}
			medians := map[string][]float64{}
			for _, kernel := range kernels {
				for _, o := range byKernel[kernel] {
					rows := kind.rows(o)
					if i >= len(rows) || rows[i].Bytes != row.Bytes {
						return nil, fmt.Errorf("round %d on %s: no %s of %d bytes", o.Round, kernel, kind.what, row.Bytes)
					}
					medians[kernel] = append(medians[kernel], rows[i].Median)
				}
				ratios, err := divide(medians[kernel], medians[kernels[0]])
				if err != nil {
					return nil, fmt.Errorf("kernel %s: %w", kernel, err)
				}
				line.Figures = append(line.Figures, Figure{Kernel: kernel, Jobs: figures.Of(medians[kernel]), Ratio: figures.Of(ratios)})
			}
			lines = append(lines, line)
		}
	}
	return lines, nil
}

func divide(these, those []float64) ([]float64, error) {
	if len(these) != len(those) {
		return nil, fmt.Errorf("%d jobs beside %d", len(these), len(those))
	}
	ratios := make([]float64, len(these))
	for i := range these {
		ratios[i] = these[i] / those[i]
	}
	return ratios, nil
}

// Print writes the tables.
func (r *Result) Print(out io.Writer) error {
	for _, kind := range kinds {
		w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
		fmt.Fprintf(w, "%s\tBYTES", strings.ToUpper(kind.what))
		for i, k := range r.Kernels {
			fmt.Fprintf(w, "\t%s, %s\tQUARTILES", k, kind.shown)
			if i > 0 {
				fmt.Fprintf(w, "\tTO %s\tQUARTILES", r.Kernels[0])
			}
		}
		fmt.Fprintln(w, "\t")
		for _, line := range r.Lines {
			if line.What != kind.what {
				continue
			}
			fmt.Fprintf(w, "\t%d", line.Bytes)
			for i, f := range line.Figures {
				fmt.Fprintf(w, "\t%.4g\t%.4g-%.4g", f.Jobs.Median*kind.scale, f.Jobs.Q1*kind.scale, f.Jobs.Q3*kind.scale)
				if i > 0 {
					fmt.Fprintf(w, "\t%.3f\t%.3f-%.3f", f.Ratio.Median, f.Ratio.Q1, f.Ratio.Q3)
				}
			}
			fmt.Fprintln(w, "\t")
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	for _, k := range r.Unequal {
		fmt.Fprintf(out, "%s does not do the same as %s against the processor's flaws; see mitigations in the JSON\n", k, r.Kernels[0])
	}
	_, err := fmt.Fprintf(out, "%d rounds, %s, accelerator %s: times are this machine's, only ratios within a round say something\n",
		r.Rounds, r.Outcomes[0].Library, r.Accel)
	return err
}

// unequal are the kernels whose mitigations are not the first one's.
func unequal(kernels []string, outcomes []Outcome) []string {
	seen := map[string][]string{}
	for _, o := range outcomes {
		seen[o.Kernel] = o.Mitigations
	}
	return slices.DeleteFunc(slices.Clone(kernels), func(k string) bool { return slices.Equal(seen[k], seen[kernels[0]]) })
}

// Series are the jobs' medians for benchstat, which compares by kernel.
func (r *Result) Series() []figures.Series {
	var all []figures.Series
	for _, line := range r.Lines {
		for _, f := range line.Figures {
			all = append(all, figures.Series{Name: fmt.Sprintf("MPI/what=%s/bytes=%d/kernel=%s", line.What, line.Bytes, f.Kernel), Unit: line.Unit, Samples: f.Jobs.Samples})
		}
	}
	return all
}
