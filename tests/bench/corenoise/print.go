// SPDX-License-Identifier: Apache-2.0

package corenoise

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Print writes the tables.
func (r *Result) Print(out io.Writer) error {
	fmt.Fprintf(out, "\nkernel %s, %d rounds of %d s; interruptions per second, medians, least to most of the rounds\nwith a core for the system: %s\n",
		r.Kernel, r.Rounds, r.Seconds, strings.Join(r.Arguments, " "))
	fmt.Fprint(out, "\nof a thread that computes (the collector noise):\n\n")
	err := table(out, r.Lines)
	fmt.Fprint(out, "\nof the tracer's thread (rtla osnoise):\n\n")
	return errors.Join(err, table(out, r.Tracer))
}

func table(out io.Writer, lines []Line) error {
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "CPU\tBY\tWITHOUT\t\tWITH\t")
	for _, line := range lines {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", line.CPU, strings.TrimSpace(string(line.Kind)+" "+line.Name), cell(line.Without), cell(line.With))
	}
	return w.Flush()
}

func cell(s figures.Spread) string { return fmt.Sprintf("%.2f\t%.2f to %.2f", s.Median, s.Min, s.Max) }

// Series are the rounds for benchstat.
func (r *Result) Series() []figures.Series {
	return slices.Concat(series("Cores", r.Lines), series("Tracer", r.Tracer))
}

func series(name string, lines []Line) (found []figures.Series) {
	for _, line := range lines {
		if line.Name != all {
			continue
		}
		for _, side := range []struct {
			name string
			of   figures.Spread
		}{{"without", line.Without}, {"with", line.With}} {
			found = append(found, figures.Series{
				Name: fmt.Sprintf("%s/cpu=%d/core=%s", name, line.CPU, side.name), Unit: "interruptions/s", Samples: side.of.Samples,
			})
		}
	}
	return found
}
