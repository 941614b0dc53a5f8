// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Result is what --json writes.
type Result struct {
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	Runs    int       `json:"runs"`
	Nodes   int       `json:"nodes"`
	// Kernel is the nodes' own kernel, Profile the one that jobs switch to.
	Kernel       string `json:"kernel"`
	Profile      string `json:"profile"`
	ProfileBuild string `json:"profile_build_id"`
	Accelerator  string `json:"accelerator"`
	Processors   int    `json:"processors"`
	// LookSeconds is the median pause between two looks at a job's state: no
	// start is known more closely than that.
	LookSeconds float64    `json:"look_seconds"`
	Measures    []*Measure `json:"measures"`
	Phases      []*Measure `json:"phases"`
	ReusePhases []*Measure `json:"reuse_phases"`
	Goals       []Goal     `json:"goals"`
	// Trouble lists what did not work as it should; such samples do not count.
	Trouble []string `json:"trouble"`
}

// print writes the tables.
func (r *Result) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%d runs, %d node(s) a cluster, own kernel %s, profile %s, accelerator %s, %d processors\n",
		r.Runs, r.Nodes, r.Kernel, r.Profile, r.Accelerator, r.Processors)
	fmt.Fprintf(out, "a job's state was looked at every %.0f ms: differences below that mean nothing\n\n", r.LookSeconds*1000)
	if err := table(out, "MEASURED, s", r.Measures); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := table(out, "THE SWITCH, s", r.Phases); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := table(out, "THE REUSE, s", r.ReusePhases); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "GOAL\tMEASURED\tLIMIT\tVERDICT\tHOW")
	for _, g := range r.Goals {
		verdict := "goal not met"
		if g.Met {
			verdict = "goal met"
		}
		unit := ""
		if g.Unit == "s" {
			unit = " s"
		}
		fmt.Fprintf(w, "%s\t%.2f%s\t%.2f%s\t%s\t%s\n", g.Name, g.Value, unit, g.Limit, unit, verdict, g.How)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range r.Trouble {
		fmt.Fprintf(out, "\ndid not work: %s\n", t)
	}
	return nil
}

func table(out io.Writer, title string, measures []*Measure) error {
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
