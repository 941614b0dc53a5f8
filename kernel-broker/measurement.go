// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"slices"
)

// Measurement is what the factory measured of a version, as its registrant states
// it: the broker checks its form, and that the report it is from is stored.
type Measurement struct {
	Outcome Outcome `json:"outcome"`
	// Reason of the outcome in one line.
	Reason string `json:"reason,omitempty"`
	// Workload that was measured, and Metric, such as kernel_weighed_instructions.
	Workload string `json:"workload,omitempty"`
	Metric   string `json:"metric,omitempty"`
	// ToSlim is the gain against the slim kernel compiled with plain -O2, ToStock
	// against the distribution's; nil where it was not measured.
	ToSlim  *Gain `json:"to_slim,omitempty"`
	ToStock *Gain `json:"to_stock,omitempty"`
	// Report is the digest of the version's document with all figures.
	Report string `json:"report_digest"`
	// MeasuredOn is the version of the source that was measured, such as 6.1.192-2,
	// where this kernel is built from another version by the same recipe and profile;
	// empty if this very kernel was measured.
	MeasuredOn string `json:"measured_on,omitempty"`
}

// Outcome of a verdict on a kernel.
type Outcome string

// The outcomes.
const (
	// OutcomeBenefit: the kernel may be published for its application.
	OutcomeBenefit Outcome = "benefit"
	// OutcomeNoBenefit: it was measured, and it did not win; it stays a candidate.
	OutcomeNoBenefit Outcome = "no benefit"
	// OutcomeRefused: what there is allows no verdict; it stays a candidate.
	OutcomeRefused Outcome = "refused"
)

// Gain against one kernel. A negative change is a gain: less is needed.
type Gain struct {
	Kernel Estimate `json:"kernel"`
	// Chance: the difference may be chance. Unequal: not measured as equals, for
	// example at other processor mitigations; the report says why.
	Chance  bool `json:"may_be_chance,omitempty"`
	Unequal bool `json:"unequal,omitempty"`
	// Share of the whole that is spent in the kernel, Whole the change of all of
	// it; both or none.
	Share *Estimate `json:"kernel_share,omitempty"`
	Whole *Estimate `json:"whole,omitempty"`
	// Source of the share, and the profiling runs that it is from.
	Source ShareSource `json:"share_source,omitempty"`
	Runs   []uint64    `json:"share_runs,omitempty"`
}

// ShareSource says what a kernel's share is of.
type ShareSource string

// The sources of a share.
const (
	// ShareOfWorkload is of the instructions of the workload, counted in the run in
	// which the baseline was measured.
	ShareOfWorkload ShareSource = "workload"
	// ShareOfRuns is of the CPU time of the application's own jobs, in profiling runs.
	ShareOfRuns ShareSource = "runs"
)

// Estimate is a figure in percent with its spread.
type Estimate struct {
	Percent float64 `json:"percent"`
	Low     float64 `json:"low_percent"`
	High    float64 `json:"high_percent"`
}

// MaxShareRuns that a measurement names.
const MaxShareRuns = 64

const maxChangePercent = 1e6

// Validate checks everything but whether the report is stored.
func (m Measurement) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("measurement: %w: %w", fmt.Errorf(format, args...), ErrInvalid)
	}
	if !slices.Contains([]Outcome{OutcomeBenefit, OutcomeNoBenefit, OutcomeRefused}, m.Outcome) {
		return fail("outcome %.80q is not benefit, no benefit or refused", m.Outcome)
	}
	if m.Reason != OneLine(m.Reason) {
		return fail("reason is not one line of at most %d printable characters", MaxReason)
	}
	for _, word := range []struct{ what, text string }{{"workload", m.Workload}, {"metric", m.Metric}, {"source version", m.MeasuredOn}} {
		if !plainName(word.text, maxWord) || word.text == "" && word.what != "source version" && (m.ToSlim != nil || m.ToStock != nil) {
			return fail("%s %.80q is not a name", word.what, word.text)
		}
	}
	for _, gain := range []struct {
		what string
		gain *Gain
	}{{"slim", m.ToSlim}, {"stock", m.ToStock}} {
		if gain.gain == nil {
			continue
		}
		if err := gain.gain.validate(); err != nil {
			return fail("against %s: %w", gain.what, err)
		}
	}
	if err := ValidateDigest(m.Report); err != nil {
		return fmt.Errorf("measurement: report: %w", err)
	}
	return nil
}

func (g Gain) validate() error {
	if err := g.Kernel.within(-100, maxChangePercent); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	if (g.Share == nil) != (g.Whole == nil) || (g.Share == nil) != (g.Source == "") {
		return fmt.Errorf("the kernel's share, where it is from and the whole belong together")
	}
	if len(g.Runs) > MaxShareRuns || (len(g.Runs) > 0) != (g.Source == ShareOfRuns) {
		return fmt.Errorf("%d profiling runs with a share of source %q: only shares of runs have them, from 1 to %d", len(g.Runs), g.Source, MaxShareRuns)
	}
	if g.Share == nil {
		return nil
	}
	if g.Source != ShareOfWorkload && g.Source != ShareOfRuns {
		return fmt.Errorf("share source %.80q is neither %s nor %s", g.Source, ShareOfWorkload, ShareOfRuns)
	}
	if err := g.Share.within(0, 100); err != nil {
		return fmt.Errorf("kernel share: %w", err)
	}
	if err := g.Whole.within(-100, maxChangePercent); err != nil {
		return fmt.Errorf("whole: %w", err)
	}
	return nil
}

// within refuses what is not a number, too.
func (e Estimate) within(least, most float64) error {
	if !(least <= e.Low && e.Low <= e.Percent && e.Percent <= e.High && e.High <= most) {
		return fmt.Errorf("%v %% with a spread of %v to %v is not in order or not within %v to %v", e.Percent, e.Low, e.High, least, most)
	}
	return nil
}

// ValidateMeasured checks a version's measurement against its documents.
func (v ProfileVersion) ValidateMeasured() error {
	if v.Measured == nil {
		return nil
	}
	if err := v.Measured.Validate(); err != nil {
		return err
	}
	if !slices.ContainsFunc(v.Documents, func(d Document) bool { return d.Digest == v.Measured.Report }) {
		return fmt.Errorf("measurement: report %s is not one of the version's documents: %w", v.Measured.Report, ErrInvalid)
	}
	return nil
}
