// SPDX-License-Identifier: Apache-2.0

package bench

import "slices"

// Measure is one thing that was measured, in seconds.
type Measure struct {
	Name string `json:"name"`
	What string `json:"what"`
	// First is the warm-up, which is not among the samples: caches are cold.
	First   []float64 `json:"first"`
	Samples []float64 `json:"samples"`
	Median  float64   `json:"median"`
	Q1      float64   `json:"q1"`
	Q3      float64   `json:"q3"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
}

// summarise fills in what follows from the samples.
func (m *Measure) summarise() {
	if len(m.Samples) == 0 {
		return
	}
	s := slices.Sorted(slices.Values(m.Samples))
	m.Min, m.Max = s[0], s[len(s)-1]
	m.Q1, m.Median, m.Q3 = quantile(s, 0.25), quantile(s, 0.5), quantile(s, 0.75)
}

// quantile of sorted samples, linear between neighbours.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// book collects samples by name, in the order in which the names came.
type book struct {
	measures []*Measure
	warming  bool
}

func (b *book) add(name, what string, seconds float64) {
	i := slices.IndexFunc(b.measures, func(m *Measure) bool { return m.Name == name })
	if i < 0 {
		i = len(b.measures)
		b.measures = append(b.measures, &Measure{Name: name, What: what})
	}
	m := b.measures[i]
	if b.warming {
		m.First = append(m.First, seconds)
		return
	}
	m.Samples = append(m.Samples, seconds)
}

// median of a measure and whether it has samples.
func (b *book) median(name string) (float64, bool) {
	for _, m := range b.measures {
		if m.Name == name && len(m.Samples) > 0 {
			return quantile(slices.Sorted(slices.Values(m.Samples)), 0.5), true
		}
	}
	return 0, false
}
