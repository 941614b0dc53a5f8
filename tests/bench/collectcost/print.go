// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

func bound(budget float64) string {
	if budget == 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f %%", 100*budget)
}

// Print writes a table for each job, and what became of the goals.
func (r *Result) Print(out io.Writer) error {
	fmt.Fprintf(out, "\nkernel %s, %d rounds; medians, least to most of the rounds\n", r.Kernel, r.Rounds)
	for _, job := range r.Jobs {
		alone := job.Alone
		fmt.Fprintf(out, "\n%s: %s\nalone: %.1f to %.1f million instructions, %.0f %% outside of the kernel; %.2f s\n",
			job.Job.Name, job.Job.What, alone.Instructions.Min/1e6, alone.Instructions.Max/1e6, 100*alone.User, alone.ElapsedNS.Median/1e9)
		w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
		fmt.Fprintln(w, "COLLECTORS\tBUDGET\tINSTRUCTIONS %\t\tTIME %\t\tJOB'S CPU TIME %\t\tOWN ACCOUNT %\tLOOKED AT %\tONCE, millions")
		for _, with := range job.With {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.0f\t%.0f\n", with.Name(), bound(with.Budget),
				cell(with.Instructions), cell(with.Elapsed), cell(with.JobTime), with.Own.Median, with.Looked.Median, with.Once.Median)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return figures.Goals(out, r.Goals)
}

func cell(s figures.Spread) string { return fmt.Sprintf("%.2f\t%.2f to %.2f", s.Median, s.Min, s.Max) }
