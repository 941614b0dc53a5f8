// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"encoding/json"
	"fmt"
	"math"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// ReadMeasurement reads from a report what the catalog keeps of it. It refuses a
// report that is not about the kernel with the image of that digest.
func ReadMeasurement(text []byte, image string) (*kb.Measurement, error) {
	var said struct {
		Format int `json:"format"`
		Facts  struct {
			Subject      string                `json:"subject"`
			Application  string                `json:"application"`
			Applications []verdict.Application `json:"applications"`
			Kernels      []struct {
				Name       string `json:"name"`
				Provenance struct {
					ImageDigest string `json:"image_digest"`
				} `json:"provenance"`
			} `json:"kernels"`
		} `json:"facts"`
		Figures struct {
			Verdict *verdict.Verdict `json:"verdict"`
		} `json:"figures"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("report: %w: %w", err, kb.ErrInvalid)
	}
	switch {
	case said.Format != Format:
		return nil, fmt.Errorf("report: format %d, only %d is known: %w: %w", said.Format, Format, ErrFormat, kb.ErrInvalid)
	case said.Figures.Verdict == nil:
		return nil, fmt.Errorf("report: it has no verdict, so it is not about one kernel: %w", kb.ErrInvalid)
	}
	about := ""
	for _, k := range said.Facts.Kernels {
		if k.Name == said.Facts.Subject {
			about = k.Provenance.ImageDigest
		}
	}
	if about != image {
		return nil, fmt.Errorf("report: it is about kernel %q with image %q, not about image %s: %w", said.Facts.Subject, about, image, kb.ErrInvalid)
	}
	m := measurement(*said.Figures.Verdict)
	for _, a := range said.Facts.Applications {
		if a.Name == said.Facts.Application {
			m.Workload = a.Test.Workload
		}
	}
	m.Report = digest.Of(text)
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return &m, nil
}

// measurement of a verdict, without what stands beside it in a report.
func measurement(v verdict.Verdict) kb.Measurement {
	m := kb.Measurement{Outcome: kb.Outcome(v.Outcome), Reason: kb.OneLine(v.Reason)}
	for _, g := range v.Gains {
		gain := &kb.Gain{
			Kernel: *percent(&g.Change), Chance: g.Standing == verdict.Unclear, Unequal: len(g.Unequal) > 0, Whole: percent(g.Whole),
		}
		if g.Share != nil {
			gain.Share, gain.Source = percent(&g.Share.Estimate), kb.ShareSource(g.Share.Source)
			for _, r := range g.Share.Runs {
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
