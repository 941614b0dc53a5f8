// SPDX-License-Identifier: Apache-2.0

package build

import (
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// overlay makes a fragment of options that win over the recipe's. The reason
// stands in the place of a file's name in errors.
func overlay(reason string, options map[string]string) kconfig.Fragment {
	laid := kconfig.Fragment{Name: reason, Path: reason}
	for symbol, value := range options {
		laid.Options = append(laid.Options, kconfig.Option{Symbol: symbol, Value: value, File: reason, Line: 1})
	}
	slices.SortFunc(laid.Options, func(a, b kconfig.Option) int { return strings.Compare(a.Symbol, b.Symbol) })
	return laid
}

var (
	sizeOptions = overlay("optimisation Os", map[string]string{
		"CC_OPTIMIZE_FOR_PERFORMANCE": kconfig.Off,
		"CC_OPTIMIZE_FOR_SIZE":        "y",
	})
	// countingOptions make a kernel that counts every arc it takes and shows
	// the counters in debugfs.
	countingOptions = overlay("instrumented kernel", map[string]string{
		"DEBUG_FS":           "y",
		"DEBUG_FS_ALLOW_ALL": "y",
		"GCOV_KERNEL":        "y",
		"GCOV_PROFILE_ALL":   "y",
	})
	// mapOptions make the linker write down what it put where.
	mapOptions = overlay("traced kernel", map[string]string{"VMLINUX_MAP": "y"})
)

// overlaysFor are those that an optimisation implies for every variant.
func overlaysFor(o Optimisation) []kconfig.Fragment {
	if o == OptimiseSize {
		return []kconfig.Fragment{sizeOptions}
	}
	return nil
}
