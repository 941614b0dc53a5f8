// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"math"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
)

// Figures follow from the facts.
type Figures struct {
	// Verdict on the subject; nil in a bench.
	Verdict *verdict.Verdict `json:"verdict,omitempty"`
	// Measured has each sample's figures, with what they are against the
	// stock and the slim kernel.
	Measured []Measured `json:"measured"`
}

// Measured is one run, or a part of it, on one kernel in one metric.
type Measured struct {
	Run     verdict.Run   `json:"run"`
	Part    string        `json:"part,omitempty"`
	Metric  string        `json:"metric"`
	Unit    string        `json:"unit"`
	Kernel  string        `json:"kernel"`
	Exact   bool          `json:"exact"`
	Summary stats.Summary `json:"summary"`
	// ToStock and ToSlim are nil for the kernel itself, and where the other
	// was not measured.
	ToStock *Against `json:"to_stock,omitempty"`
	ToSlim  *Against `json:"to_slim,omitempty"`

	against map[string]*verdict.Comparison // what these two are the short form of, by kernel
}

// Against is a comparison with another kernel.
type Against struct {
	// Change as a share, negative when this kernel needs less.
	Change *float64 `json:"change,omitempty"`
	// Spread that the difference has to beat, in the unit of the values.
	Spread float64 `json:"spread"`
	// P of Welch's test, where values vary.
	P        *float64         `json:"p,omitempty"`
	Standing verdict.Standing `json:"standing"`
	Unequal  []string         `json:"unequal,omitempty"`
}

func short(c *verdict.Comparison) *Against {
	if c == nil {
		return nil
	}
	a := &Against{Change: c.Change, Spread: c.Spread, Standing: c.Standing, Unequal: c.Unequal}
	if c.Test != nil {
		a.P = &c.Test.P
	}
	return a
}

func work(f Facts) (Figures, error) {
	set, err := verdict.NewSet(f.Samples)
	if err != nil {
		return Figures{}, err
	}
	var out Figures
	if f.Subject != "" {
		subject, current, application := f.kernel(f.Subject), f.kernel(f.Current), f.application(f.Application)
		if subject == nil || current == nil || application == nil {
			return Figures{}, fmt.Errorf("kernel %q, kernel %q or application %q is not described: %w", f.Subject, f.Current, f.Application, ErrFacts)
		}
		reference := func(name string) verdict.Kernel {
			if k := f.kernel(name); k != nil {
				return k.Kernel
			}
			return verdict.Kernel{}
		}
		v := verdict.Decide(verdict.Case{
			Application: *application, Candidate: subject.Kernel, Current: current.Kernel, Stock: reference(f.Stock), Slim: reference(f.Slim),
			Samples: f.Samples, RunShares: f.RunShares, Checks: f.Checks, Required: f.Required, Rules: f.Rules,
		})
		out.Verdict = &v
	}
	if out.Measured, err = measured(f, set); err != nil {
		return Figures{}, err
	}
	return out, nil
}

// measured in the order of metrics, runs, parts and kernels.
func measured(f Facts, set *verdict.Set) ([]Measured, error) {
	var out []Measured
	for _, metric := range set.Metrics() {
		for _, run := range set.Runs(metric) {
			for _, part := range set.Parts(metric, run) {
				for _, kernel := range f.Kernels {
					sample, ok := set.Get(kernel.Name, metric, run, part)
					if !ok {
						continue
					}
					one, err := measure(f, set, kernel.Kernel, sample)
					if err != nil {
						return nil, err
					}
					out = append(out, one)
				}
			}
		}
	}
	return out, nil
}

func measure(f Facts, set *verdict.Set, kernel verdict.Kernel, sample verdict.Sample) (Measured, error) {
	summary, err := sample.Summary()
	if err != nil {
		return Measured{}, err
	}
	against := func(name string) *verdict.Comparison {
		other := f.kernel(name)
		if other == nil || name == kernel.Name {
			return nil
		}
		reference, ok := set.Get(name, sample.Metric, sample.Run(), sample.Part)
		if !ok {
			return nil
		}
		c := verdict.Compare(verdict.Side{Kernel: kernel, Sample: sample}, verdict.Side{Kernel: other.Kernel, Sample: reference}, f.Rules)
		return &c
	}
	stock, slim := against(f.Stock), against(f.Slim)
	return Measured{
		Run: sample.Run(), Part: sample.Part, Metric: sample.Metric, Unit: sample.Unit, Kernel: kernel.Name, Exact: sample.Exact,
		Summary: summary, ToStock: short(stock), ToSlim: short(slim), against: map[string]*verdict.Comparison{f.Stock: stock, f.Slim: slim},
	}, nil
}

// Titled puts the reasons behind a title: a comparison that is not between
// equals says so in its title.
func Titled(unequal []string) string {
	if len(unequal) == 0 {
		return ""
	}
	return " - AT " + strings.Join(unequal, "; ")
}

// ReadMeasurement reads from a report what the catalog keeps of it. It refuses a
// report that is not about a kernel, or about the one that the same recipe and
// profile made of another version of the source: then it says which.
func ReadMeasurement(text []byte, of build.Manifest) (*kb.Measurement, error) {
	r, err := read(text)
	if err != nil {
		return nil, err
	}
	if r.Figures.Verdict == nil {
		return nil, fmt.Errorf("report: it has no verdict, so it is not about one kernel: %w", kb.ErrInvalid)
	}
	var about Provenance
	if k := r.Facts.kernel(r.Facts.Subject); k != nil {
		about = k.Provenance
	}
	m := measurement(*r.Figures.Verdict)
	if about.ImageDigest != of.Image.Digest {
		if m.MeasuredOn = about.otherVersion(of); m.MeasuredOn == "" || r.Facts.Subject != of.Name {
			return nil, fmt.Errorf("report: it is about kernel %q with image %q, not about image %s: %w", r.Facts.Subject, about.ImageDigest, of.Image.Digest, kb.ErrInvalid)
		}
	}
	if a := r.Facts.application(r.Facts.Application); a != nil {
		m.Workload = a.Test.Workload
	}
	m.Report = digest.Of(text)
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return &m, nil
}

// measurement of a verdict, without what stands beside it in a report.
func measurement(v verdict.Verdict) kb.Measurement {
	m := kb.Measurement{Outcome: v.Outcome, Reason: kb.OneLine(v.Reason)}
	for _, g := range v.Gains {
		gain := &kb.Gain{
			Kernel: *percent(&g.Change), Chance: g.Standing == verdict.Unclear, Unequal: len(g.Unequal) > 0, Whole: percent(g.Whole),
		}
		if g.Share != nil {
			gain.Share, gain.Source = percent(&g.Share.Estimate), g.Share.Source
			for _, r := range g.Share.Runs[:min(len(g.Share.Runs), kb.MaxShareRuns)] {
				gain.Runs = append(gain.Runs, r.Run)
			}
		}
		switch g.Baseline {
		case verdict.BaselineSlim:
			m.ToSlim = gain
		case verdict.BaselineStock:
			m.ToStock = gain
		default:
			continue
		}
		m.Metric = g.Metric
	}
	return m
}

// percent rounds to four digits behind the point.
func percent(e *verdict.Estimate) *kb.Estimate {
	if e == nil {
		return nil
	}
	round := func(share float64) float64 {
		if v := math.Round(share*1e6) / 1e4; v != 0 {
			return v
		}
		return 0 // which has no sign
	}
	return &kb.Estimate{Percent: round(e.Value), Low: round(e.Low), High: round(e.High)}
}
