// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Within a row of exact counts somebody is best, and the best one's ratios to
// all others are at most 1.
func TestCrossHasABest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, kernels := drawRow(t)
		app := verdict.Application{Name: "io", Test: verdict.Run{Workload: "write8", Seed: 7, Size: 50000}, Kernel: "k0"}
		table, err := Tabulate(verdict.KernelWeighed, []verdict.Application{app}, kernels, set, References{Stock: "k0", Slim: "k1"}, rules)
		if err != nil {
			t.Fatal(err)
		}
		row := table.Rows[0]
		if len(row.Best) == 0 {
			t.Fatal("nobody is best")
		}
		for _, c := range row.Cells {
			if c.ToBest != nil && *c.ToBest < 1 {
				t.Fatalf("%s is %v of the best", c.Kernel, *c.ToBest)
			}
		}
		if (row.Place == Behind) != (len(row.Beaten) > 0) {
			t.Fatalf("place %s, beaten by %v", row.Place, row.Beaten)
		}
	})
}

func drawRow(t *rapid.T) (*verdict.Set, []verdict.Kernel) {
	names := []string{"k0", "k1", "k2", "k3"}
	var samples []verdict.Sample
	var kernels []verdict.Kernel
	for _, name := range names {
		kernels = append(kernels, verdict.Kernel{Name: name})
		samples = append(samples, sample(name, true, float64(rapid.IntRange(1, 5).Draw(t, name))))
	}
	set, err := verdict.NewSet(samples)
	if err != nil {
		t.Fatal(err)
	}
	return set, kernels
}
