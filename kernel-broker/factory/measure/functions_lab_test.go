// SPDX-License-Identifier: Apache-2.0

//go:build lab

package measure

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/kallsyms"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// readSymbols reads what a guest's /proc/kallsyms said.
func readSymbols(t *testing.T, path string) *kallsyms.Table {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	table, err := kallsyms.Read(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return table
}

// TestWhereInstructionsGo says which functions of each kernel execute a thousandth and more of a workload: what is left to
// win, and where a kernel differs from another. KB_WORKLOADS and KB_KERNELS as for TestFiguresOfKernels.
func TestWhereInstructionsGo(t *testing.T) {
	b := bench(t)
	names := strings.Fields(os.Getenv("KB_KERNELS"))
	if len(names) == 0 {
		names = []string{"mitgcm"}
	}
	for _, w := range chosen(t) {
		for _, name := range names {
			dir := t.TempDir()
			options := Options{Exact: w.Counted(), Linked: true, Plugin: []string{"out=" + countsFile, "data=1", "runs=runs"},
				Hooks: workload.Hooks{After: "cat /proc/kallsyms >/out/kallsyms"}}
			_, outcome, err := b.Run(t.Context(), kernel(t, name), w, w.Test, options, dir)
			if err != nil {
				t.Fatal(err)
			}
			regions, err := readCounts(filepath.Join(dir, countsFile), outcome.Regions)
			if err != nil {
				t.Fatal(err)
			}
			operations, counted := int64(0), uint64(0)
			for _, region := range regions {
				operations += region.Operations
				counted += region.Kernel.Instructions + region.Kernel.RepIterations
			}
			printFunctions(t, w.Name+" on "+name, operations, counted,
				byFunction(t, filepath.Join(dir, "runs"), readSymbols(t, filepath.Join(dir, "files", "kallsyms"))))
		}
	}
}

// byFunction adds up the plugin's record of blocks, "start instructions runs" a line. Parts that a compiler split off or
// copied count to the function that they are of.
func byFunction(t *testing.T, path string, all *kallsyms.Table) map[string]uint64 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sums := map[string]uint64{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var start, instructions, runs uint64
		if _, err := fmt.Sscanf(lines.Text(), "%x %d %d", &start, &instructions, &runs); err != nil {
			t.Fatalf("%s: %q: %v", path, lines.Text(), err)
		}
		name, _, _ := strings.Cut(all.Name(start), ".")
		sums[name] += instructions * runs
	}
	return sums
}

func printFunctions(t *testing.T, title string, operations int64, counted uint64, sums map[string]uint64) {
	t.Helper()
	total := uint64(0)
	names := make([]string, 0, len(sums))
	for name, sum := range sums {
		names = append(names, name)
		total += sum
	}
	// The one is counted by processor, the other by block.
	if off := float64(total)/float64(counted) - 1; operations == 0 || off < -0.01 || off > 0.01 {
		t.Errorf("%s: %d operations, %d instructions in functions, %d in all", title, operations, total, counted)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	per := func(n uint64) float64 { return float64(n) / float64(operations) }
	t.Logf("%s: %.1f instructions of the kernel for an operation, with iterations of string instructions", title, per(total))
	for _, name := range names {
		if sums[name]*1000 < total {
			break
		}
		t.Logf("%9.1f %5.1f %%  %s", per(sums[name]), 100*float64(sums[name])/float64(total), name)
	}
}
