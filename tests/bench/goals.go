// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Names of the measures.
const (
	switchTime    = "switch"
	reuseTime     = "reuse"
	productStock  = "stock-with-product"
	plainStock    = "stock-plain"
	plainHandover = "handover-plain"
	floorTime     = "floor"
	floorNoCheck  = "floor-no-check"
	floorLoad     = "-load"
	floorBoot     = "-boot"
	resetTime     = "reset"
)

// goals are the promises about the switch. A goal whose measures have no samples
// is left out.
func goals(b *figures.Book) []figures.Goal {
	var list []figures.Goal
	ratio := func(name string, limit float64, upper string, below float64, how string) {
		v, ok := b.Median(upper)
		if !ok || below <= 0 {
			return
		}
		list = append(list, figures.Judge(name, v/below, limit, "ratio", how))
	}
	floor, haveFloor := b.Median(floorTime)
	stock, haveStock := b.Median(plainStock)
	reset, haveReset := b.Median(resetTime)
	if haveFloor && haveStock {
		ratio("switch against the floor", 1.15, switchTime, floor+stock,
			fmt.Sprintf("switch / (floor %.2f s + start of a stock job %.2f s)", floor, stock))
	}
	if haveReset {
		ratio("switch against a reset", 0.5, switchTime, reset, fmt.Sprintf("switch / reset %.2f s", reset))
	}
	if haveReset && haveStock {
		// The switch begins with sbatch, the reset with the button.
		ratio("switch against a reset and a job's start", 0.5, switchTime, reset+stock,
			fmt.Sprintf("switch / (reset %.2f s + start of a stock job %.2f s)", reset, stock))
	}
	reuse, haveReuse := b.Median(reuseTime)
	handover, haveHandover := b.Median(plainHandover)
	if haveReuse && haveHandover {
		list = append(list, figures.Judge("the right kernel already runs", reuse-handover, 1, "s",
			fmt.Sprintf("reuse %.2f s - the same jobs on plain Slurm %.2f s", reuse, handover)))
	}
	if haveStock {
		ratio("stock job with the product", 1.05, productStock, stock,
			fmt.Sprintf("stock job with the product / without %.2f s", stock))
	}
	return list
}
