// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Cross is the table of every application on every kernel, in one metric. It
// shows what a kernel costs the applications that it was not made for.
type Cross struct {
	Metric string `json:"metric"`
	// Stock and Slim are the kernels that the others are shown against.
	Stock   string     `json:"stock"`
	Slim    string     `json:"slim"`
	Kernels []string   `json:"kernels"`
	Rows    []CrossRow `json:"rows"`
	// Means of each kernel over the rows where it and the reference stand.
	Means []Mean `json:"means"`
	// OnOwn is the mean of the applications, each on the kernel made for it.
	OnOwn *Mean `json:"on_own,omitempty"`
}

// CrossRow is one application on every kernel.
type CrossRow struct {
	Application string      `json:"application"`
	Run         verdict.Run `json:"run"`
	// Own is the kernel that was made for the application.
	Own   string `json:"own,omitempty"`
	Unit  string `json:"unit"`
	Cells []Cell `json:"cells"`
	// Best are the kernels that no other beats; more than one is a tie.
	Best []string `json:"best"`
	// Place of the own kernel among those that may be compared with it; empty
	// when there is none, or when it was tested on its training data.
	Place Place `json:"place,omitempty"`
	// Beaten lists the kernels that beat the own one.
	Beaten []string `json:"beaten_by,omitempty"`
}

// Place of an application's own kernel.
type Place string

// The places.
const (
	First  Place = "best"
	Tied   Place = "tied"
	Behind Place = "beaten"
)

// Cell is one application on one kernel. Value is for one operation; where the
// workload has parts it is the geometric mean of theirs, and has no spread. The ratios are to the best kernel for
// this application, to the stock and to the slim kernel; nil where there is no
// such figure.
type Cell struct {
	Kernel  string   `json:"kernel"`
	Value   *float64 `json:"value,omitempty"`
	Spread  float64  `json:"spread"`
	ToOwn   *float64 `json:"to_own,omitempty"`
	ToBest  *float64 `json:"to_best,omitempty"`
	ToStock *float64 `json:"to_stock,omitempty"`
	ToSlim  *float64 `json:"to_slim,omitempty"`
	// Unequal says why the ratios are not between equals.
	Unequal []string `json:"unequal,omitempty"`
}

// Mean is a geometric mean of ratios, over so many applications.
type Mean struct {
	Kernel  string   `json:"kernel,omitempty"`
	ToStock *float64 `json:"to_stock,omitempty"`
	OfStock int      `json:"applications_to_stock"`
	ToSlim  *float64 `json:"to_slim,omitempty"`
	OfSlim  int      `json:"applications_to_slim"`
}

// References of a cross table, by the names of kernels.
type References struct{ Stock, Slim string }

// ErrUnknownKernel is a kernel that a sample or an application names and that
// nobody described.
var ErrUnknownKernel = errors.New("no such kernel")

// Tabulate makes the cross table.
func Tabulate(metric string, apps []verdict.Application, kernels []verdict.Kernel, set *verdict.Set, refs References, rules verdict.Rules) (Cross, error) {
	table := Cross{Metric: metric, Stock: refs.Stock, Slim: refs.Slim}
	for _, k := range kernels {
		table.Kernels = append(table.Kernels, k.Name)
	}
	for _, app := range apps {
		if app.Kernel != "" && !slices.Contains(table.Kernels, app.Kernel) {
			return Cross{}, fmt.Errorf("application %q, kernel %q: %w", app.Name, app.Kernel, ErrUnknownKernel)
		}
		row, err := tabulateRow(metric, app, kernels, set, refs, rules)
		if err != nil {
			return Cross{}, err
		}
		table.Rows = append(table.Rows, row)
	}
	for _, name := range table.Kernels {
		table.Means = append(table.Means, table.mean(name, func(CrossRow) string { return name }))
	}
	if slices.ContainsFunc(table.Rows, func(r CrossRow) bool { return r.Own != "" }) {
		own := table.mean("", func(r CrossRow) string { return r.Own })
		table.OnOwn = &own
	}
	return table, nil
}

func tabulateRow(metric string, app verdict.Application, kernels []verdict.Kernel, set *verdict.Set, refs References, rules verdict.Rules) (CrossRow, error) {
	row := CrossRow{Application: app.Name, Run: app.Test, Own: app.Kernel}
	var field []entrant
	for _, kernel := range kernels {
		cell := Cell{Kernel: kernel.Name}
		if sides := set.All(kernel, metric, app.Test); len(sides) > 0 {
			value, spread, err := together(sides)
			if err != nil {
				return CrossRow{}, fmt.Errorf("application %q on kernel %q: %w", app.Name, kernel.Name, err)
			}
			row.Unit = cmp.Or(row.Unit, sides[0].Sample.Unit)
			cell.Value, cell.Spread = &value, spread
			field = append(field, entrant{kernel.Name, sides})
		}
		row.Cells = append(row.Cells, cell)
	}
	row.relate(refs)
	for i := range row.Cells {
		row.Cells[i].Unequal = unequalTo(row.Cells[i].Kernel, field, refs.Slim, rules)
	}
	row.rank(field, refs.Slim, rules)
	return row, nil
}

// relate fills in the ratios.
func (r *CrossRow) relate(refs References) {
	var best *float64
	for _, c := range r.Cells {
		if c.Value != nil && (best == nil || *c.Value < *best) {
			best = c.Value
		}
	}
	own, stock, slim := r.value(r.Own), r.value(refs.Stock), r.value(refs.Slim)
	for i := range r.Cells {
		c := &r.Cells[i]
		c.ToOwn, c.ToBest = ratio(c.Value, own), ratio(c.Value, best)
		c.ToStock, c.ToSlim = ratio(c.Value, stock), ratio(c.Value, slim)
	}
}

func (r CrossRow) cell(kernel string) *Cell {
	for i := range r.Cells {
		if kernel != "" && r.Cells[i].Kernel == kernel {
			return &r.Cells[i]
		}
	}
	return nil
}

func (r CrossRow) value(kernel string) *float64 {
	if c := r.cell(kernel); c != nil {
		return c.Value
	}
	return nil
}

func ratio(of, to *float64) *float64 {
	if of == nil || to == nil || *to == 0 {
		return nil
	}
	quotient := *of / *to
	return &quotient
}

// entrant is a kernel with its samples of a run, one for each part.
type entrant struct {
	kernel string
	sides  []verdict.Side
}

// together is the median of the only part, or the geometric mean of the parts'
// medians: the ratio of two such means is the mean of the ratios.
func together(sides []verdict.Side) (value, spread float64, err error) {
	medians := make([]float64, len(sides))
	for i, side := range sides {
		summary, err := side.Sample.Summary()
		if err != nil {
			return 0, 0, err
		}
		medians[i], spread = summary.Median, summary.Spread
	}
	if len(sides) == 1 {
		return medians[0], spread, nil
	}
	if slices.Min(medians) <= 0 {
		return 0, 0, errors.New("a median of 0 has no share in a geometric mean")
	}
	return stat.GeometricMean(medians, nil), 0, nil
}

func unequalTo(kernel string, field []entrant, reference string, rules verdict.Rules) []string {
	a, b := entrantOf(kernel, field), entrantOf(reference, field)
	if a == nil || b == nil {
		return nil
	}
	whole := verdict.CompareAll(a.sides, b.sides, rules)
	if whole.Standing == verdict.Incomparable {
		return []string{whole.Reason}
	}
	return whole.Unequal
}

func entrantOf(kernel string, field []entrant) *entrant {
	for i := range field {
		if field[i].kernel == kernel {
			return &field[i]
		}
	}
	return nil
}

// rank finds who is beaten by nobody, and by whom the own kernel is, among the
// kernels that may be compared with the own one (or the slim one) as equals.
func (r *CrossRow) rank(all []entrant, slim string, rules verdict.Rules) {
	own := entrantOf(r.Own, all)
	anchor := own
	if anchor == nil {
		anchor = entrantOf(slim, all)
	}
	var field []entrant
	for _, one := range all {
		if anchor == nil || len(verdict.CompareAll(one.sides, anchor.sides, rules).Unequal) == 0 {
			field = append(field, one)
		}
	}
	beats := func(a, b entrant) bool { return verdict.CompareAll(a.sides, b.sides, rules).Standing == verdict.Better }
	for _, one := range field {
		if !slices.ContainsFunc(field, func(other entrant) bool { return beats(other, one) }) {
			r.Best = append(r.Best, one.kernel)
		}
	}
	if entrantOf(r.Own, field) == nil {
		return
	}
	for _, other := range field {
		if beats(other, *own) {
			r.Beaten = append(r.Beaten, other.kernel)
		}
	}
	switch {
	case len(r.Beaten) > 0:
		r.Place = Behind
	case len(r.Best) > 1:
		r.Place = Tied
	default:
		r.Place = First
	}
}

// mean over the rows of the ratios of the kernel that which names. A row where
// one of the two kernels has no figure is left out, and the count says so.
func (t Cross) mean(name string, which func(CrossRow) string) Mean {
	var toStock, toSlim []float64
	for _, row := range t.Rows {
		c := row.cell(which(row))
		if c == nil {
			continue
		}
		if positive(c.ToStock) {
			toStock = append(toStock, *c.ToStock)
		}
		if positive(c.ToSlim) {
			toSlim = append(toSlim, *c.ToSlim)
		}
	}
	return Mean{
		Kernel:  name,
		ToStock: meanOf(toStock), OfStock: len(toStock),
		ToSlim: meanOf(toSlim), OfSlim: len(toSlim),
	}
}

func positive(r *float64) bool { return r != nil && *r > 0 }

func meanOf(ratios []float64) *float64 {
	if len(ratios) == 0 {
		return nil // no row has the figure
	}
	m := stat.GeometricMean(ratios, nil)
	return &m
}
