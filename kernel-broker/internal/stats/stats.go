// SPDX-License-Identifier: Apache-2.0

// Package stats summarises repeated measurements and tests whether two samples
// differ. Verdicts on kernels and comparisons of profiling runs use the same
// figures.
package stats

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Summary of a sample.
type Summary struct {
	Repetitions int     `json:"repetitions"`
	Median      float64 `json:"median"`
	Mean        float64 `json:"mean"`
	Least       float64 `json:"least"`
	Most        float64 `json:"most"`
	// Spread is the interquartile range. The range from least to most grows with
	// every repetition, and so rewards few repetitions.
	Spread float64 `json:"spread"`
	// Deviation is the standard deviation of the sample (n-1).
	Deviation float64 `json:"deviation"`
}

// Errors about samples that have no summary.
var (
	ErrNoValue  = errors.New("no value")
	ErrBadValue = errors.New("value is not zero or a positive number in range")
)

// Squares and ratios of values beyond these bounds overflow or vanish.
const (
	leastValue = 1e-150
	mostValue  = 1e100
)

// Summarise refuses values that can be neither counts nor times.
func Summarise(values []float64) (Summary, error) {
	if len(values) == 0 {
		return Summary{}, ErrNoValue
	}
	for _, v := range values {
		if v != 0 && !(v >= leastValue && v <= mostValue) {
			return Summary{}, fmt.Errorf("%v: %w", v, ErrBadValue)
		}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	s := Summary{
		Repetitions: n,
		Median:      quantile(sorted, 0.5),
		Least:       sorted[0],
		Most:        sorted[n-1],
		Spread:      quantile(sorted, 0.75) - quantile(sorted, 0.25),
	}
	if s.Least == s.Most {
		s.Mean = s.Least // a sum of equal values would round
		return s, nil
	}
	s.Mean, s.Deviation = stat.MeanStdDev(sorted, nil)
	return s, nil
}

// quantile interpolates between the two nearest values, like R's type 7, which
// gonum does not have.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// GeometricMean of ratios. It is the only mean of ratios that does not depend on
// which of the two kernels is the reference.
func GeometricMean(ratios []float64) (float64, error) {
	if len(ratios) == 0 {
		return 0, ErrNoValue
	}
	for _, r := range ratios {
		if !(r > 0) || math.IsInf(r, 0) {
			return 0, fmt.Errorf("ratio %v: %w", r, ErrBadValue)
		}
	}
	return stat.GeometricMean(ratios, nil), nil
}
