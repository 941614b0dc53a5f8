// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
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
	LookSeconds float64            `json:"look_seconds"`
	Measures    []*figures.Measure `json:"measures"`
	Phases      []*figures.Measure `json:"phases"`
	ReusePhases []*figures.Measure `json:"reuse_phases"`
	Goals       []figures.Goal     `json:"goals"`
	// Trouble lists what did not work as it should; such samples do not count.
	Trouble []string `json:"trouble"`
}

// print writes the tables.
func (r *Result) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%d runs, %d node(s) a cluster, own kernel %s, profile %s, accelerator %s, %d processors\n",
		r.Runs, r.Nodes, r.Kernel, r.Profile, r.Accelerator, r.Processors)
	fmt.Fprintf(out, "a job's state was looked at every %.0f ms: differences below that mean nothing\n\n", r.LookSeconds*1000)
	for _, t := range []struct {
		title    string
		measures []*figures.Measure
	}{{"MEASURED, s", r.Measures}, {"THE SWITCH, s", r.Phases}, {"THE REUSE, s", r.ReusePhases}} {
		if err := figures.Table(out, t.title, t.measures); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	if err := figures.Goals(out, r.Goals); err != nil {
		return err
	}
	for _, t := range r.Trouble {
		fmt.Fprintf(out, "\ndid not work: %s\n", t)
	}
	return nil
}
