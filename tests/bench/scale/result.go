// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Figures of one number of nodes, by the keys of the rows. One that could not be measured is missing. CPU is the broker's own processor time.
type Figures struct {
	Nodes  int                `json:"nodes"`
	Values map[string]float64 `json:"figures"`
}

// Result of a run.
type Result struct {
	Command string    `json:"command"`
	Machine string    `json:"machine"`
	Begun   time.Time `json:"begun"`
	// Load is the largest load average that was seen between measurements.
	Load  float64        `json:"load"`
	Runs  []Figures      `json:"runs"`
	Goals []figures.Goal `json:"goals"`
}

// goalNodes is the number of nodes that the goals are for.
const goalNodes = 10_000

// What stands for a number in a row's goal.
const (
	noGoal = -1 - iota
	// asFirst is no more than at the smallest number of nodes.
	asFirst
	// allOf is as many as there are.
	allOf
)

// row is a line of the table. of is the key of the number that the value is a part of.
type row struct {
	key, name, unit string
	goal            float64
	of              string
}

var rows = []row{
	{"connect_cpu", "connect: CPU", "s", 20, ""},
	{"connect_dials", "connect: dials", "", 12_000, ""},
	{"connect_time", "connect: until acknowledged", "s", noGoal, ""},
	{"idle_cpu", "idle: of a core", "%", 5, ""},
	{"idle_memory", "idle: memory", "MB", 600, ""},
	{"job_cpu", "10-node job: CPU", "s", 0.3, ""},
	{"job_beyond", "10-node job: beyond the agents'", "s", 0.3, ""},
	{"wave_ready", "wave: jobs ready", "", allOf, "wave_jobs"},
	{"wave_beyond", "wave: beyond the agents', median", "s", 1, ""},
	{"wave_cpu", "wave: CPU a node", "ms", asFirst, ""},
	{"kill_ready", "killed in a wave: jobs ready", "", allOf, "kill_jobs"},
	{"kill_drained", "killed in a wave: healthy nodes drained", "", 0, ""},
	{"restart_time", "restart: all agents back", "s", 15, ""},
}

// judge compares with the goal, if there is one and a run that it is for.
func (r row) judge(runs []Figures) (figures.Goal, bool) {
	for _, f := range runs {
		if f.Nodes != goalNodes || r.goal == noGoal {
			continue
		}
		name, limit := r.name, r.goal
		value, measured := f.Values[r.key]
		switch r.goal {
		case asFirst:
			limit = runs[0].Values[r.key]
		case allOf:
			name, value, limit = name+", without", f.Values[r.of]-value, 0
		}
		goal := figures.Judge(name, value, limit, r.unit, fmt.Sprintf("at %d nodes", goalNodes))
		goal.Met = goal.Met && measured
		return goal, true
	}
	return figures.Goal{}, false
}

func goals(runs []Figures) (all []figures.Goal) {
	for _, r := range rows {
		if g, is := r.judge(runs); is {
			all = append(all, g)
		}
	}
	return all
}

// Print writes the table.
func (r *Result) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprint(w, "BROKER, BY NODES\t")
	for _, f := range r.Runs {
		fmt.Fprint(w, digits(float64(f.Nodes))+"\t")
	}
	fmt.Fprintf(w, "GROWTH\tGOAL AT %s\tVERDICT\n", digits(goalNodes))
	for _, row := range rows {
		fmt.Fprint(w, row.name+"\t")
		for _, f := range r.Runs {
			fmt.Fprint(w, row.cell(f)+"\t")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", row.growth(r.Runs), row.wanted(r.Runs), row.verdict(r.Runs))
	}
	fmt.Fprintf(w, "%s, load average up to %.1f\n", r.Machine, r.Load)
	return w.Flush()
}

func (r row) cell(f Figures) string {
	value, measured := f.Values[r.key]
	if !measured {
		return "-"
	}
	unit := r.unit
	if r.of != "" {
		unit = "of " + digits(f.Values[r.of])
	}
	return strings.TrimSpace(digits(value) + " " + unit)
}

// growth from the first run to the last.
func (r row) growth(runs []Figures) string {
	first := runs[0].Values[r.key]
	if len(runs) < 2 || first == 0 || r.of != "" {
		return "-"
	}
	return digits(runs[len(runs)-1].Values[r.key]/first) + "x"
}

// wanted is the goal in words.
func (r row) wanted(runs []Figures) string {
	switch r.goal {
	case noGoal:
		return "-"
	case asFirst:
		return "as at " + digits(float64(runs[0].Nodes))
	case allOf:
		return "all"
	}
	return strings.TrimSpace(digits(r.goal) + " " + r.unit)
}

func (r row) verdict(runs []Figures) string {
	g, is := r.judge(runs)
	switch {
	case !is:
		return "-"
	case g.Met:
		return "reached"
	}
	return "not reached"
}

// digits is a figure for people: three digits, or a whole number in groups of three.
func digits(v float64) string {
	switch {
	case v != float64(int64(v)) && v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v != float64(int64(v)) && v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Series are the figures for benchstat.
func (r *Result) Series() (all []figures.Series) {
	for _, f := range r.Runs {
		for _, row := range rows {
			unit := row.unit
			if unit == "" {
				unit = "count"
			}
			all = append(all, figures.Series{Name: fmt.Sprintf("Scale/nodes=%d/figure=%s", f.Nodes, row.key), Unit: unit, Samples: []float64{f.Values[row.key]}})
		}
	}
	return all
}
