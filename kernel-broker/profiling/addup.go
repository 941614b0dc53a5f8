// SPDX-License-Identifier: Apache-2.0

package profiling

// addUp adds up what has the same key: one value for each, in no order.
func addUp[K comparable, V any](some, more []V, key func(V) K, plus func(V, V) V) []V {
	sums := make(map[K]V, len(some))
	for _, list := range [][]V{some, more} {
		for _, v := range list {
			at := key(v)
			if before, ok := sums[at]; ok {
				v = plus(before, v)
			}
			sums[at] = v
		}
	}
	var all []V
	for _, v := range sums {
		all = append(all, v)
	}
	return all
}
