// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
	ErrFormat        = errors.New("unknown format")
	ErrFacts         = errors.New("facts do not fit together")
	ErrContradiction = errors.New("verdict does not follow from the samples")
)

// Make checks the facts and works out the figures.
func Make(facts Facts) (Report, error) {
	if err := facts.check(); err != nil {
		return Report{}, fmt.Errorf("report %q: %w", facts.name(), err)
	}
	figures, err := work(facts)
	if err != nil {
		return Report{}, fmt.Errorf("report %q: %w", facts.name(), err)
	}
	return Report{Format: Format, Facts: facts, Figures: figures}, nil
}

// WriteJSON writes the report.
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

// Read a report. The figures are worked out again; where that leads to another
// verdict than the report's, the report is refused.
func Read(r io.Reader) (Report, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	if head.Format != Format {
		return Report{}, fmt.Errorf("report: format %d, only %d is known: %w", head.Format, Format, ErrFormat)
	}
	var said struct {
		Format  int             `json:"format"`
		Facts   Facts           `json:"facts"`
		Figures json.RawMessage `json:"figures"`
	}
	if err := strict(text, &said); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	made, err := Make(said.Facts)
	if err != nil {
		return Report{}, err
	}
	var figures struct {
		Verdict *verdict.Verdict `json:"verdict"`
	}
	if err := json.Unmarshal(said.Figures, &figures); err != nil {
		return Report{}, fmt.Errorf("report: figures: %w", err)
	}
	if a, b := outcome(figures.Verdict), outcome(made.Figures.Verdict); a != b {
		return Report{}, fmt.Errorf("report %q says %q, its samples say %q: %w", said.Facts.name(), a, b, ErrContradiction)
	}
	return made, nil
}

func outcome(v *verdict.Verdict) verdict.Outcome {
	if v == nil {
		return ""
	}
	return v.Outcome
}

// strict decoding: an unknown key, or anything after the end, is an error.
func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more after the end")
	}
	return nil
}
