// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"math/bits"
	"slices"
)

// Histogram counts values by powers of two: bucket i has those from 2^i up to
// but not including 2^(i+1), and bucket 0 zero as well. Buckets at the end that
// are zero are left out.
type Histogram []uint64

func (h *Histogram) Add(value uint64) {
	bucket := max(bits.Len64(value)-1, 0)
	for len(*h) <= bucket {
		*h = append(*h, 0)
	}
	(*h)[bucket]++
}

func (h Histogram) Count() uint64 {
	var sum uint64
	for _, n := range h {
		sum += n
	}
	return sum
}

// Plus is both together.
func (h Histogram) Plus(other Histogram) Histogram {
	if len(h) < len(other) {
		h, other = other, h
	}
	sum := slices.Clone(h)
	for i, n := range other {
		sum[i] += n
	}
	return sum.Trimmed()
}

// Trimmed leaves out the zeros at the end; nil if there is nothing else.
func (h Histogram) Trimmed() Histogram {
	for len(h) > 0 && h[len(h)-1] == 0 {
		h = h[:len(h)-1]
	}
	if len(h) == 0 {
		return nil
	}
	return h
}

// AtMost gives a bound that the share q of all values lies below: the end of
// the bucket in which the q-quantile is. 0 if there are no values.
func (h Histogram) AtMost(q float64) uint64 {
	count := h.Count()
	if count == 0 {
		return 0
	}
	need := min(uint64(q*float64(count))+1, count)
	for i, n := range h {
		if n >= need {
			return 1<<(i+1) - 1
		}
		need -= n
	}
	return 1<<len(h) - 1
}
