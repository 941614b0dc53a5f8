// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"sort"
)

// Overlay is a set of options that win over a recipe's fragments: what the
// optimisation or the variant needs, or what slimming found. Its reason stands
// in the place of a file's name in errors.
type Overlay = Fragment

// overlay makes an overlay of options that the factory itself wants.
func overlay(reason string, options map[string]string) Overlay {
	laid := Overlay{Name: reason, Path: reason}
	for symbol, value := range options {
		laid.Options = append(laid.Options, Option{Symbol: symbol, Value: value, File: reason, Line: 1})
	}
	sort.Slice(laid.Options, func(i, j int) bool { return laid.Options[i].Symbol < laid.Options[j].Symbol })
	return laid
}

var (
	sizeOptions = overlay("optimisation Os", map[string]string{
		"CC_OPTIMIZE_FOR_PERFORMANCE": notSet,
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
func overlaysFor(o Optimisation) []Overlay {
	if o == OptimiseSize {
		return []Overlay{sizeOptions}
	}
	return nil
}

// Overlaid replaces options by those of the overlays, of which two may not
// contradict each other.
func (m Merged) Overlaid(overlays ...Overlay) (Merged, error) {
	if len(overlays) == 0 {
		return m, nil
	}
	top, err := Merge(overlays)
	if err != nil {
		return Merged{}, fmt.Errorf("overlays contradict each other:\n%w", err)
	}
	all := top
	for _, option := range m.Options {
		if !top.Sets(option.Symbol) {
			all.Options = append(all.Options, option)
		}
	}
	sort.Slice(all.Options, func(i, j int) bool { return all.Options[i].Symbol < all.Options[j].Symbol })
	return all, nil
}
