// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// The table that was measured by hand, in part: two applications, each with
// its own kernel.
func crossFixture(t *testing.T) ([]verdict.Application, []verdict.Kernel, *verdict.Set) {
	t.Helper()
	apps := []verdict.Application{
		{Name: "io", Test: verdict.Run{Workload: "write8", Seed: 7, Size: 50000}, Kernel: "io"},
		{Name: "net", Test: verdict.Run{Workload: "tcp", Seed: 7, Size: 50000}, Kernel: "net"},
		{Name: "lmbench", Test: verdict.Run{Workload: "syscalls", Seed: 7, Size: 50000}, Kernel: ""},
	}
	kernels := []verdict.Kernel{{Name: "stock"}, {Name: "slim"}, {Name: "io"}, {Name: "net"}}
	values := map[string][]float64{
		"write8":   {1792, 1280, 1224, 1298},
		"tcp":      {30722, 20212, 21768, 19040},
		"syscalls": {61858, 40696, 42202, 40696},
	}
	var samples []verdict.Sample
	for workload, row := range values {
		for i, v := range row {
			s := sample(kernels[i].Name, true, v)
			s.Workload = workload
			samples = append(samples, s)
		}
	}
	return apps, kernels, mustSet(t, samples)
}

func mustSet(t *testing.T, samples []verdict.Sample) *verdict.Set {
	t.Helper()
	set, err := verdict.NewSet(samples)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var refs = References{Stock: "stock", Slim: "slim"}

func TestTabulate(t *testing.T) {
	apps, kernels, set := crossFixture(t)
	table, err := Tabulate(verdict.KernelWeighed, apps, kernels, set, refs, rules)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range table.Rows {
		got = append(got, fmt.Sprintf("%s best %v place %q beaten %v", row.Application, row.Best, row.Place, row.Beaten))
	}
	want := []string{
		`io best [io] place "best" beaten []`,
		`net best [net] place "best" beaten []`,
		`lmbench best [slim net] place "" beaten []`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	cell := table.Rows[1].Cells[2] // net on io's kernel
	if !near(*cell.ToOwn, 21768./19040) || !near(*cell.ToStock, 21768./30722) || !near(*cell.ToSlim, 21768./20212) || !near(*cell.ToBest, 21768./19040) {
		t.Errorf("net on io's kernel: %+v", cell)
	}
	io := table.Means[2]
	mean := stat.GeometricMean([]float64{1224. / 1280, 21768. / 20212, 42202. / 40696}, nil)
	if io.Kernel != "io" || io.OfSlim != 3 || !near(*io.ToSlim, mean) {
		t.Errorf("mean of io's kernel %+v, want %v", io, mean)
	}
	own := stat.GeometricMean([]float64{1224. / 1792, 19040. / 30722}, nil)
	if table.OnOwn.OfStock != 2 || !near(*table.OnOwn.ToStock, own) {
		t.Errorf("on own kernels %+v, want %v", table.OnOwn, own)
	}
}

func TestTabulateOwnKernelBeaten(t *testing.T) {
	apps, kernels, set := crossFixture(t)
	apps[0].Kernel, apps[1].Kernel = "net", "io"
	table, err := Tabulate(verdict.KernelWeighed, apps, kernels, set, refs, rules)
	if err != nil {
		t.Fatal(err)
	}
	if row := table.Rows[0]; row.Place != Behind || strings.Join(row.Beaten, " ") != "slim io" {
		t.Errorf("io on net's kernel: %s, beaten by %v", row.Place, row.Beaten)
	}
	apps[2].Kernel = "net"
	if table, err = Tabulate(verdict.KernelWeighed, apps, kernels, set, refs, rules); err != nil || table.Rows[2].Place != Tied {
		t.Errorf("a tie is %q, %v", table.Rows[2].Place, err)
	}
}

// A kernel without the mitigations of the others is shown, and beats nobody.
func TestTabulateUnequalBeatsNobody(t *testing.T) {
	apps, kernels, set := crossFixture(t)
	for i := range kernels {
		if kernels[i].Name != "net" {
			kernels[i].Mitigations = []string{"pti"}
		}
	}
	table, err := Tabulate(verdict.KernelWeighed, apps, kernels, set, refs, rules)
	if err != nil {
		t.Fatal(err)
	}
	if best := table.Rows[2].Best; strings.Join(best, " ") != "slim" {
		t.Errorf("best %v", best)
	}
	net := table.Rows[0].Cells[3]
	if len(net.Unequal) != 1 || !strings.Contains(net.Unequal[0], "unequal mitigations: pti") {
		t.Errorf("net's kernel under io: %v", net.Unequal)
	}
	if row := table.Rows[1]; row.Place != First {
		t.Errorf("net on its own kernel, among its equals: %q", row.Place)
	}
}

func TestTabulateWithHoles(t *testing.T) {
	apps, kernels, _ := crossFixture(t)
	table, err := Tabulate(verdict.KernelWeighed, apps, kernels, mustSet(t, []verdict.Sample{sample("io", true, 5)}), refs, rules)
	if err != nil {
		t.Fatal(err)
	}
	if c := table.Rows[0].Cells[2]; c.Value == nil || c.ToSlim != nil || *c.ToBest != 1 {
		t.Errorf("the only figure: %+v", c)
	}
	if m := table.Means[2]; m.ToSlim != nil || m.OfSlim != 0 {
		t.Errorf("a mean of nothing: %+v", m)
	}
	if row := table.Rows[1]; row.Best != nil || row.Place != "" {
		t.Errorf("an empty row: %+v", row)
	}
}

func TestTabulateKeepsValueAndSpread(t *testing.T) {
	apps, kernels, _ := crossFixture(t)
	set := mustSet(t, []verdict.Sample{sample("io", false, 4, 5, 8), sample("slim", true, 0)})
	table, err := Tabulate(verdict.KernelWeighed, apps[:1], kernels, set, refs, rules)
	if err != nil {
		t.Fatal(err)
	}
	cells := table.Rows[0].Cells
	if io := cells[2]; *io.Value != 5 || io.Spread != 2 || io.ToSlim != nil {
		t.Errorf("io's kernel: %+v", io)
	}
	if slim := cells[1]; *slim.Value != 0 {
		t.Errorf("slim: %+v", slim)
	}
}

func TestTabulateRefuses(t *testing.T) {
	apps, kernels, set := crossFixture(t)
	apps[0].Kernel = "nobody"
	if _, err := Tabulate(verdict.KernelWeighed, apps, kernels, set, refs, rules); !errors.Is(err, ErrUnknownKernel) {
		t.Errorf("an unknown kernel: %v", err)
	}
	apps[0].Kernel = ""
	bad := mustSet(t, []verdict.Sample{sample("io", true, -5)})
	if _, err := Tabulate(verdict.KernelWeighed, apps, kernels, bad, refs, rules); err == nil || !strings.Contains(err.Error(), "-5") {
		t.Errorf("a bad value: %v", err)
	}
	if _, err := verdict.NewSet([]verdict.Sample{sample("io", true, 5), sample("io", false, 6)}); !errors.Is(err, verdict.ErrTwice) {
		t.Errorf("measured twice: %v", err)
	}
}

func sample(kernel string, exact bool, values ...float64) verdict.Sample {
	return verdict.Sample{Workload: "write8", Metric: verdict.KernelWeighed, Unit: "instructions/operation", Kernel: kernel, Exact: exact,
		Values: values, Size: 50000, Seed: 7, Operations: 50000}
}

var rules = verdict.DefaultRules()

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
