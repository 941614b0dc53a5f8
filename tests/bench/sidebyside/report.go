// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Report is the kernels' own report, with the table of every application on
// every kernel and what the kernels were to reach.
type Report struct {
	kernelreport.Report
	Cross []Cross `json:"cross"`
	Goals []Goal  `json:"goals,omitempty"`
}

// The files of a report in a folder.
const (
	JSONFile = "report.json"
	HTMLFile = "report.html"
	TextFile = "report.txt"
)

// Make works out the figures.
func Make(facts kernelreport.Facts) (Report, error) {
	made, err := kernelreport.Make(facts)
	if err != nil {
		return Report{}, err
	}
	set, err := verdict.NewSet(facts.Samples)
	if err != nil {
		return Report{}, err
	}
	kernels := make([]verdict.Kernel, len(facts.Kernels))
	for i, k := range facts.Kernels {
		kernels[i] = k.Kernel
	}
	r := Report{Report: made}
	instructions, _ := set.Instructions()
	for _, metric := range []string{instructions, verdict.WallTime} {
		if len(set.Runs(metric)) == 0 {
			continue
		}
		table, err := Tabulate(metric, facts.Applications, kernels, set, References{Stock: facts.Stock, Slim: facts.Slim}, facts.Rules)
		if err != nil {
			return Report{}, err
		}
		r.Cross = append(r.Cross, table)
	}
	r.Goals = goals(facts, made.Figures, r.Cross)
	return r, nil
}

// Document has the goals first, and the cross tables behind the figures that
// they are made of.
func (r Report) Document() report.Document {
	doc := r.Report.Document()
	behind := slices.IndexFunc(doc.Sections, func(s report.Section) bool {
		return slices.Contains([]string{"branches", "other", "checks", "options", "provenance", "how"}, s.ID)
	})
	doc.Sections = slices.Insert(doc.Sections, behind, r.cross())
	doc.Sections = slices.Insert(doc.Sections, 0, r.goals())
	doc.Sections = slices.DeleteFunc(doc.Sections, func(s report.Section) bool { return s.ID == "" })
	return doc
}

// Write puts the report into a folder, in its three forms.
func (r Report) Write(dir string) error {
	doc := r.Document()
	for name, write := range map[string]func(io.Writer) error{
		HTMLFile: doc.WriteHTML, TextFile: doc.WriteText,
		JSONFile: func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(r)
		},
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// Copy puts the files of a report into a folder, and its text to out.
func Copy(from, to string, out io.Writer) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, name := range []string{JSONFile, HTMLFile, TextFile} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o644)
		}
		if err == nil && name == TextFile {
			_, err = out.Write(text)
		}
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}
