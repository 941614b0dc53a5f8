// SPDX-License-Identifier: Apache-2.0

// Package kernelreport says what a kernel is and what it was measured to be worth:
// as JSON, as a self-contained page, and as tables for a terminal.
//
// The idea: a report is Facts, which the build and the bench found, and
// Figures, which follow from the facts by package verdict and by nothing else.
// Anyone can pass a report's facts to Make again. The page and the tables are
// one document (package report), so that they cannot say different things.
//
// A report is of one kernel (Facts.Subject) and then has a verdict; without a
// subject it is of several kernels side by side, a bench.
package kernelreport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Format is the version of the JSON. A field that is added does not change it
// for writers; readers refuse a format that they do not know.
const Format = 1

// Report is facts with what follows from them.
type Report struct {
	Format  int     `json:"format"`
	Facts   Facts   `json:"facts"`
	Figures Figures `json:"figures"`
}

// Errors of reports.
var (
	ErrFormat = errors.New("unknown format")
	ErrFacts  = errors.New("facts do not fit together")
)

// Make checks the facts and works out the figures.
func Make(facts Facts) (Report, error) {
	figures, err := work(facts)
	if err != nil {
		return Report{}, fmt.Errorf("report %q: %w", facts.name(), err)
	}
	return Report{Format: Format, Facts: facts, Figures: figures}, nil
}

func (r Report) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report %q: %w", r.Facts.name(), err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("report %q: %w", r.Facts.name(), err)
	}
	return nil
}

// ReadVerdict reads the verdict of a report; nil if it has none.
func ReadVerdict(text []byte) (*verdict.Verdict, error) {
	r, err := read(text)
	return r.Figures.Verdict, err
}

func read(text []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return Report{}, fmt.Errorf("report: %w: %w", err, kb.ErrInvalid)
	}
	if r.Format != Format {
		return Report{}, fmt.Errorf("report: format %d, only %d is known: %w: %w", r.Format, Format, ErrFormat, kb.ErrInvalid)
	}
	return r, nil
}
