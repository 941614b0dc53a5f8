// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Summary is what a sample's values come to.
type Summary struct {
	Repetitions int     `json:"repetitions"`
	Median      float64 `json:"median"`
	Mean        float64 `json:"mean"`
	Least       float64 `json:"least"`
	Most        float64 `json:"most"`
	// Spread is the distance between the quartiles: half of all repetitions
	// lie within it. The distance between least and most would grow with
	// every repetition, and so reward him who measures little.
	Spread float64 `json:"spread"`
	// Deviation is the standard deviation of the sample (n-1).
	Deviation float64 `json:"deviation"`
}

// Errors of samples that mean nothing.
var (
	ErrNoValue  = errors.New("no value")
	ErrBadValue = errors.New("value is no number of zero or more that can be reckoned with")
)

// Beyond these, ratios and squares leave what a float64 holds.
const (
	leastValue = 1e-150
	mostValue  = 1e100
)

func reckonable(v float64) bool { return v == 0 || v >= leastValue && v <= mostValue }

// Summarise refuses values that can be neither counts nor times.
func Summarise(values []float64) (Summary, error) {
	if len(values) == 0 {
		return Summary{}, ErrNoValue
	}
	for _, v := range values {
		if !reckonable(v) {
			return Summary{}, fmt.Errorf("%v: %w", v, ErrBadValue)
		}
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	n := len(sorted)
	s := Summary{
		Repetitions: n,
		Median:      quantile(sorted, 0.5),
		Least:       sorted[0],
		Most:        sorted[n-1],
		Spread:      quantile(sorted, 0.75) - quantile(sorted, 0.25),
	}
	s.Mean = mean(sorted)
	if n > 1 && s.Least != s.Most {
		squares := 0.0
		for _, v := range sorted {
			squares += (v - s.Mean) * (v - s.Mean)
		}
		s.Deviation = math.Sqrt(squares / float64(n-1))
	}
	return s, nil
}

// mean of equal values is exactly that value, which summing would not give.
func mean(sorted []float64) float64 {
	first, n := sorted[0], len(sorted)
	if first == sorted[n-1] {
		return first
	}
	sum := 0.0
	for _, v := range sorted {
		sum += v - first
	}
	return first + sum/float64(n)
}

// quantile between the two values next to it, as R's type 7.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// GeometricMean of ratios. It is the only mean of ratios that says the same
// whichever of the two kernels is the reference.
func GeometricMean(ratios []float64) (float64, error) {
	if len(ratios) == 0 {
		return 0, ErrNoValue
	}
	sum := 0.0
	for _, r := range ratios {
		if !(r > 0) || math.IsInf(r, 0) {
			return 0, fmt.Errorf("ratio %v: %w", r, ErrBadValue)
		}
		sum += math.Log(r)
	}
	return math.Exp(sum / float64(len(ratios))), nil
}
