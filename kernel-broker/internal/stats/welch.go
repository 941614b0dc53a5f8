// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

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
