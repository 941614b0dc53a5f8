// SPDX-License-Identifier: Apache-2.0

package authcost

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

// off is the way of calls to a broker that neither asks, judges nor records.
const off = "off"

// most may a call take longer at the median, in microseconds.
const most = 2000

// Sample is the median of one round's calls.
type Sample struct {
	Call         string  `json:"call"`
	Way          string  `json:"way"`
	Calls        int     `json:"calls"`
	Microseconds float64 `json:"median_us"`
}

// Figure is the median of rounds, and their range.
type Figure struct {
	Median   float64 `json:"median_us"`
	Least    float64 `json:"least_us"`
	Greatest float64 `json:"greatest_us"`
}

// Cost is of one call by one way.
type Cost struct {
	Call  string  `json:"call"`
	Way   string  `json:"way"`
	Off   Figure  `json:"off"`
	On    Figure  `json:"on"`
	Added float64 `json:"added_us"`
	Most  float64 `json:"most_us"`
	Met   bool    `json:"met"`
}

// Result of a run.
type Result struct {
	Command string   `json:"command"`
	Machine string   `json:"machine"`
	Costs   []Cost   `json:"costs"`
	Samples []Sample `json:"samples"`
}

// Judge compares each way with calls to a broker that has all of it off.
func Judge(samples []Sample) (Result, error) {
	r := Result{Samples: samples}
	taken := map[[2]string][]float64{}
	var order [][2]string
	for _, s := range samples {
		key := [2]string{s.Call, s.Way}
		if taken[key] == nil {
			order = append(order, key)
		}
		taken[key] = append(taken[key], s.Microseconds)
	}
	for _, key := range order {
		if key[1] == off {
			continue
		}
		without := taken[[2]string{key[0], off}]
		if without == nil {
			return r, fmt.Errorf("call %q was not measured with all of it off", key[0])
		}
		c := Cost{Call: key[0], Way: key[1], Off: figureOf(without), On: figureOf(taken[key]), Most: most}
		c.Added = c.On.Median - c.Off.Median
		c.Met = c.Added <= c.Most
		r.Costs = append(r.Costs, c)
	}
	return r, nil
}

func figureOf(rounds []float64) Figure {
	sorted := slices.Sorted(slices.Values(rounds))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Figure{Median: median, Least: sorted[0], Greatest: sorted[len(sorted)-1]}
}

func (f Figure) String() string {
	return fmt.Sprintf("%.0f (%.0f-%.0f)", f.Median, f.Least, f.Greatest)
}

// Print writes the table, in microseconds.
func (r Result) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CALL\tWAY\tOFF us\tON us\tADDED us\tGOAL us\t")
	for _, c := range r.Costs {
		met := "met"
		if !c.Met {
			met = "not met"
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%v\t%.0f\t%.0f\t%s\n", c.Call, c.Way, c.Off, c.On, c.Added, c.Most, met)
	}
	return table.Flush()
}

// Write leaves the result for programs.
func (r Result) Write(path string) error { return jsonfile.Write(path, r) }
