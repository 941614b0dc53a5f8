// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// rows of a report's tables that are not folded, each with its section, the
// table's title and the cells: "size | Sizes | slim | slim, plain -O2 | ...".
func rows(r Report) string {
	var out strings.Builder
	for _, s := range r.Document().Sections {
		for _, part := range s.Components {
			table, ok := part.(report.Table)
			if !ok {
				continue
			}
			for _, row := range append(append([]report.Row{}, table.Rows...), table.Foot...) {
				cells := []string{s.ID, table.Caption}
				for _, cell := range row {
					cells = append(cells, cell.Text)
				}
				out.WriteString(strings.Join(cells, " | ") + "\n")
			}
		}
	}
	return out.String()
}

// has fails for each text that is not there.
func has(t *testing.T, where, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q", where, want)
		}
	}
	if t.Failed() {
		t.Logf("%s is\n%s", where, text)
	}
}

// The figures of the fixture are reckoned by hand: 1280*0.955 is 1222.
func TestFiguresOfAKernel(t *testing.T) {
	r := mustMake(t, fixture())
	has(t, "the tables", rows(r),
		"io-kernel against slim: io-write8, kernel instructions (strings weighed) | 1,222 | 1,280 | -4.5 % | 0 | exact | better | exact counts, and fewer",
		"each baseline | slim | -3.8 % (-3.8 to -3.7) | 83.3 % (83.3 to 83.3) | -4.5 % (-4.6 to -4.4) | better | the workload's instructions, counted in the same run",
		"each baseline | stock | -26.5 % (-26.5 to -26.4) | 83.3 % (83.3 to 83.3) | -31.8 % (-31.9 to -31.7) | better |",
		"Sizes | stock | Debian's own kernel | 7.92 MiB | 12.3 MiB | +169.3 % | 17,000 | 1,275 | 612",
		"Sizes | slim | slim, plain -O2 | 3.91 MiB | 4.57 MiB | – |",
		"Code by section | io-kernel | 2.91 MiB | 331 KiB",
		"Kernel instructions (strings weighed) for each operation | ext4-write | 6,557 ± 0.01 % | 4,522 ± 0.01 %",
		"Kernel instructions (strings weighed) for each operation | syscalls: null call | 619 | 407 | 513 | 426 | 420 | 408",
		"Kernel instructions (strings weighed) against slim | tcp-roundtrip | +52.0 % | +16.0 % | +0.6 % | +7.1 % | -6.7 %",
		"Kernel instructions (strings weighed) against slim | geometric mean of these | +48.1 % | +19.4 % | +1.7 % | +0.3 % | -0.2 %",
		"Kernel instructions (strings weighed) against stock | io-write8 | -28.6 % |",
		"Taken branches in the kernel against slim | io-write8 | +40.0 % |",
		"Cache lines of kernel code that ran against slim | io-write8 | +40.0 % |",
		"L1 data cache misses in the kernel (model) against slim | io-write8 | +40.0 % |",
		"Kernel instructions for each operation | io-write8 | 1,344 | 960 |",
		"Kernel instructions against slim | io-write8 | +40.0 % |",
		"User instructions for each operation | io-write8 | 269 | 192 |",
		"Beginnings of string instructions in the kernel for each operation | io-write8 | 1.79 | 1.28 |",
		"Bytes of string instructions in the kernel for each operation | io-write8 | 448 | 320 |",
		"Workloads that check for correctness | fsx | io-kernel | passed",
		"Workloads that check for correctness | syscalls | io-kernel | not checked",
		"| 3 | 6.1.0-56-amd64 | 243 | 210 | fs/aio.o | io_uring_setup nfs",
		"Drivers that nodes have devices for and that the kernel never had | n1 | ixgbe | pci:8086:10fb",
		"Options that went, and why | SND | Sound card support | nothing of it ran | 14 | 85.9 KiB",
		"| io-kernel | 1,268 | 1 | 1 | 1 | 2",
		"lib/odd.o | does not compile with its profile: internal compiler error",
	)
	page, terminal := texts(t, r)
	has(t, "the page, which has what the terminal leaves out", page, "AUDIT", "boot failed without it", "do_coredump", "fs/namei.o: path_openat",
		"Cache lines of kernel code that ran in the whole run", "L1 data cache misses in the kernel (model) for each operation")
	for where, text := range map[string]string{"the page": page, "the terminal": strings.Join(strings.Fields(terminal), " ")} {
		has(t, where, text,
			"Kernel io-kernel for io", "Benefit: io-kernel is better than slim for io.",
			"slim, trained on I/O: the workload as a whole takes 26.5 % fewer instructions than on stock: the kernel is 83 % of it and takes 31.8 % fewer.", "Instructions are not time",
			"1 option removed, 2 options kept", "2,100 functions (596 KiB)", "36m12s", "2.4 times",
			digestOf("e"), "io-write8, seed 1, size 20000", "Made 2026-11-20T15:00:00Z on build1, QEMU 7.2 by: make bench-kernels.")
	}
}

// Where no share was measured the report says so; where jobs were profiled it is theirs.
func TestShareInAReport(t *testing.T) {
	f := fixture()
	f.Samples = slices.DeleteFunc(f.Samples, func(s verdict.Sample) bool { return s.Metric == verdict.UserWeighed })
	has(t, "without the program's instructions", rows(mustMake(t, f)), "each baseline | slim | – | – | -4.5 % (-4.6 to -4.4) | better | kernel share not known")
	f.RunShares = []verdict.RunShare{{Run: 3, Kernel: "stock@1", Share: 0.02}, {Run: 8, Kernel: "net@2", Share: 0.04}}
	f.Kernels[0].Mitigations = nil
	has(t, "with runs", rows(mustMake(t, f)),
		"each baseline | slim | -0.1 % (-0.2 to -0.09) | 3.0 % (2.0 to 4.0) | -4.5 % (-4.6 to -4.4) | better | the CPU time of the application's jobs, run 3 on stock@1, run 8 on net@2",
		"each baseline | stock - AT unequal mitigations: meltdown, spectre_v2 | -1.0 %")
}

func TestFiguresOfABench(t *testing.T) {
	r := mustMake(t, bench())
	page, terminal := texts(t, r)
	for where, text := range map[string]string{"the page": page, "the terminal": terminal} {
		has(t, where, text, "Kernels side by side", "6 kernels side by side on 4 workloads.")
		for _, not := range []string{"Verdict", "Sound card support", "do_coredump"} {
			if strings.Contains(text, not) {
				t.Errorf("%s of a bench has %q, which is one kernel's", where, not)
			}
		}
	}
}

// Programs read the JSON: what decides is there as numbers.
func TestFiguresInJSON(t *testing.T) {
	f := mustMake(t, fixture()).Figures
	if f.Verdict.Outcome != kb.OutcomeBenefit || len(f.Verdict.Comparisons) == 0 {
		t.Fatalf("verdict %+v", f.Verdict)
	}
	if c := f.Verdict.Comparisons[0].Change; c == nil || math.Abs(*c+0.045) > 1e-3 {
		t.Errorf("changed by %v, want -0.045", c)
	}
}

// computes are workloads that spend most of their instructions outside of the kernel.
var computes = map[string]bool{"mitgcm-computing": true, "lammps-restarts": true}

// gainsOfOwnKernels: what real guests counted gives each application's own kernel a gain
// against both baselines, and a share of the workload that is no more than all of it.
func gainsOfOwnKernels(t *testing.T, name string, f Facts) {
	t.Helper()
	for _, a := range f.Applications {
		if a.Kernel == "" {
			continue
		}
		f.Subject, f.Application, f.Current = a.Kernel, a.Name, f.Slim
		gains := mustMake(t, f).Figures.Verdict.Gains
		if len(gains) != 2 || gains[0].Baseline != verdict.BaselineSlim || gains[1].Baseline != verdict.BaselineStock {
			t.Errorf("%s, %s: %+v", name, a.Name, gains)
			continue
		}
		least := 0.1
		if computes[a.Name] {
			least = 0.01
		}
		for _, g := range gains {
			if g.Share == nil || !(g.Share.Low > least && g.Share.High < 1) || !(g.Change.High < 0) || !(g.Whole.Value < 0 && g.Whole.Value > g.Change.Value) {
				t.Errorf("%s, %s: %s", name, a.Name, g.Words())
			}
		}
	}
}

// Reports that were published stay readable, and give the figures that they gave.
func TestPublishedReports(t *testing.T) {
	files, err := filepath.Glob("../../../docs/benchmarks/bench-*.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, name := range files {
		if strings.Contains(name, "collectors") {
			continue // not a report of kernels
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		var published Report
		err = json.NewDecoder(text).Decode(&published)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Make(published.Facts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		read++
		gainsOfOwnKernels(t, name, published.Facts)
		var page bytes.Buffer
		if err := r.WriteHTML(&page); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		inspect(t, page.String())
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if read < 3 {
		t.Errorf("%d reports were read of %q", read, files)
	}
}
