// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Goal is something that the kernels of a bench were to reach.
type Goal struct {
	Name string `json:"name"`
	// Asked and Found in the words of the goal.
	Asked   string `json:"asked"`
	Found   string `json:"found"`
	Reached bool   `json:"reached"`
}

// What was promised for kernels made for their applications, as shares of the
// slim -O2 kernel's and the stock kernel's figures.
const (
	instructionsToSlim  = 0.85
	instructionsToStock = 0.60
	textToSlim          = 0.70
)

// whyToSlim is what the same kernels were to save in figures that explain theirs.
var whyToSlim = []struct {
	metric string
	most   float64
}{
	{verdict.TakenBranches, 0.55},
	{verdict.TextLines, 0.70},
	{verdict.TextPages, 0.70},
}

// goals of a bench whose applications have kernels of their own.
func goals(f kernelreport.Facts, figures kernelreport.Figures, tables []Cross) []Goal {
	var out []Goal
	for _, table := range tables {
		if table.Metric == verdict.WallTime || table.OnOwn == nil {
			continue
		}
		mean := table.OnOwn
		name := verdict.MetricName(table.Metric) + " against %s, geometric mean of %d applications on their own kernels%s"
		out = append(out,
			ratioGoal(fmt.Sprintf(name, "slim", mean.OfSlim, kernelreport.Titled(unequal(figures, toSlim))), mean.ToSlim, instructionsToSlim),
			ratioGoal(fmt.Sprintf(name, "stock", mean.OfStock, kernelreport.Titled(unequal(figures, toStock))), mean.ToStock, instructionsToStock),
			placeGoal(table))
	}
	if len(out) > 0 {
		for _, why := range whyToSlim {
			mean, n := onOwn(f, figures, why.metric)
			name := fmt.Sprintf("%s against slim, geometric mean of %d applications on their own kernels%s",
				verdict.MetricName(why.metric), n, kernelreport.Titled(unequal(figures, toSlim)))
			out = append(out, ratioGoal(name, mean, why.most))
		}
		out = append(out, ratioGoal("function text against slim, largest of the applications' own kernels", largestText(f), textToSlim))
	}
	return out
}

// onOwn is the mean over the applications of what each needs on its own kernel, as
// a share of what it needs on the slim one, and the number of applications in it.
func onOwn(f kernelreport.Facts, figures kernelreport.Figures, metric string) (mean *float64, n int) {
	var all []float64
	for _, app := range f.Applications {
		var parts []float64
		for _, m := range figures.Measured {
			if m.Metric == metric && m.Kernel == app.Kernel && m.Run == app.Test && m.ToSlim != nil && m.ToSlim.Change != nil && *m.ToSlim.Change > -1 {
				parts = append(parts, 1+*m.ToSlim.Change)
			}
		}
		if share := meanOf(parts); share != nil {
			all = append(all, *share)
		}
	}
	return meanOf(all), len(all)
}

func ratioGoal(name string, found *float64, most float64) Goal {
	goal := Goal{Name: name, Asked: fmt.Sprintf("at most %.0f %%", 100*most), Found: "not measured"}
	if found != nil {
		goal.Found = fmt.Sprintf("%.1f %%", 100**found)
		goal.Reached = *found <= most
	}
	return goal
}

func placeGoal(table Cross) Goal {
	apps, best, tied := 0, 0, 0
	for _, row := range table.Rows {
		if row.Own == "" {
			continue
		}
		apps++
		switch row.Place {
		case First:
			best++
		case Tied:
			tied++
		case Behind:
		}
	}
	found := fmt.Sprintf("%d of %d", best+tied, apps)
	if tied > 0 {
		found += fmt.Sprintf(", %d of them tied with others", tied)
	}
	return Goal{
		Name: "each application best on its own kernel", Asked: fmt.Sprintf("%d of %d", apps, apps),
		Found: found, Reached: apps > 0 && best+tied == apps,
	}
}

// largestText of an own kernel, as a share of the slim one's.
func largestText(f kernelreport.Facts) *float64 {
	slim := kernelOf(f, f.Slim)
	if slim == nil || slim.Size.FunctionText == 0 {
		return nil
	}
	var largest *float64
	for _, app := range f.Applications {
		own := kernelOf(f, app.Kernel)
		if own == nil || own.Size.FunctionText == 0 {
			continue
		}
		share := float64(own.Size.FunctionText) / float64(slim.Size.FunctionText)
		if largest == nil || share > *largest {
			largest = &share
		}
	}
	return largest
}

func kernelOf(f kernelreport.Facts, name string) *kernelreport.Kernel {
	for i := range f.Kernels {
		if f.Kernels[i].Name == name {
			return &f.Kernels[i]
		}
	}
	return nil
}
