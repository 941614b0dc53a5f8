// SPDX-License-Identifier: Apache-2.0

package bench

import "fmt"

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

// Goal compares medians with what was promised.
type Goal struct {
	Name string `json:"name"`
	// Value and Limit are seconds or a ratio, as Unit says.
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
	How   string  `json:"how"`
}

// goals are the promises about the switch. A goal whose measures have no samples
// is left out.
func goals(b *book) []Goal {
	var list []Goal
	ratio := func(name string, limit float64, upper string, below float64, how string) {
		v, ok := b.median(upper)
		if !ok || below <= 0 {
			return
		}
		list = append(list, Goal{Name: name, Value: v / below, Limit: limit, Unit: "ratio", Met: v/below <= limit, How: how})
	}
	floor, haveFloor := b.median(floorTime)
	stock, haveStock := b.median(plainStock)
	reset, haveReset := b.median(resetTime)
	if haveFloor && haveStock {
		ratio("switch against the floor", 1.15, switchTime, floor+stock,
			fmt.Sprintf("switch / (floor %.2f s + start of a stock job %.2f s)", floor, stock))
	}
	if haveReset {
		ratio("switch against a reset", 0.5, switchTime, reset, fmt.Sprintf("switch / reset %.2f s", reset))
	}
	reuse, haveReuse := b.median(reuseTime)
	handover, haveHandover := b.median(plainHandover)
	if haveReuse && haveHandover {
		list = append(list, Goal{Name: "the right kernel already runs", Value: reuse - handover, Limit: 1, Unit: "s",
			Met: reuse-handover <= 1, How: fmt.Sprintf("reuse %.2f s - the same jobs on plain Slurm %.2f s", reuse, handover)})
	}
	if haveStock {
		ratio("stock job with the product", 1.05, productStock, stock,
			fmt.Sprintf("stock job with the product / without %.2f s", stock))
	}
	return list
}
