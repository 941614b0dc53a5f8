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
	"gonum.org/v1/gonum/stat/distuv"
)

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

// Test is the result of Welch's t-test, which compares the means of two samples
// whose variances may differ.
type Test struct {
	// T is nil when neither sample varies: it would be infinite.
	T *float64 `json:"t,omitempty"`
	// Freedom is the Welch-Satterthwaite number of degrees of freedom.
	Freedom *float64 `json:"degrees_of_freedom,omitempty"`
	// P of the two-sided test.
	P float64 `json:"p"`
}

// Welch compares a with b; T is negative when a's mean is the lower one. Each
// sample needs two repetitions, unless it does not vary.
func Welch(a, b Summary) Test {
	errorA := a.Deviation * a.Deviation / float64(a.Repetitions)
	errorB := b.Deviation * b.Deviation / float64(b.Repetitions)
	if errorA == 0 && errorB == 0 {
		if a.Mean == b.Mean {
			return Test{P: 1}
		}
		return Test{P: 0}
	}
	t := (a.Mean - b.Mean) / math.Sqrt(errorA+errorB)
	freedom := freedom(errorA, a.Repetitions, errorB, b.Repetitions)
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}
	// The lower tail keeps its digits.
	return Test{T: &t, Freedom: &freedom, P: 2 * student.CDF(-math.Abs(t))}
}

// freedom divides by the larger error first: the squares of small ones would
// vanish.
func freedom(errorA float64, a int, errorB float64, b int) float64 {
	largest := max(errorA, errorB)
	errorA, errorB = errorA/largest, errorB/largest
	below := 0.0
	if a > 1 {
		below += errorA * errorA / float64(a-1)
	}
	if b > 1 {
		below += errorB * errorB / float64(b-1)
	}
	sum := errorA + errorB
	return sum * sum / below
}
