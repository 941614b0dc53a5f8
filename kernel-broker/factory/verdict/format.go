// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MetricName for a metric; a model's figure is called one wherever it is named.
func MetricName(metric string) string {
	switch metric {
	case KernelInstructions:
		return "kernel instructions"
	case UserInstructions:
		return "user instructions"
	case RepIterations:
		return "iterations of kernel string instructions"
	case TakenBranches:
		return "taken branches in the kernel"
	case Mispredictions:
		return "mispredicted branches (model)"
	case L1IMisses:
		return "L1 instruction cache misses (model)"
	case ITLBMisses:
		return "instruction TLB misses (model)"
	case L1DMisses:
		return "L1 data cache misses in the kernel (model)"
	case DTLBMisses:
		return "data TLB misses in the kernel (model)"
	case TextLines:
		return "cache lines of kernel code that ran"
	case TextPages:
		return "pages of kernel code that ran"
	case WallTime:
		return "wall time"
	case EmulatedTime:
		return "wall time of the emulator"
	}
	return metric
}

// number with the digits that a reader can use.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// Percent of a share, signed, as in "-4.5 %"; a small one keeps a digit that
// is not 0, since an exact count knows it.
func Percent(share float64) string {
	percent := 100 * share
	switch size := math.Abs(percent); {
	case size == 0:
		return "0 %"
	case size < 0.1:
		return strings.Replace(fmt.Sprintf("%+.1g %%", percent), "e-0", "e-", 1)
	}
	return fmt.Sprintf("%+.1f %%", percent)
}
