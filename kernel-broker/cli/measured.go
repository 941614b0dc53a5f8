// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

const notMeasured = "not measured"

// readMeasurement reads what the factory's report in a file says of the kernel with an image; name is the file's for errors,
// and manifest the kernel's, if it has one.
func readMeasurement(path, name, image, manifest string) (*kb.Measurement, error) {
	of := build.Manifest{}
	if manifest != "" {
		made, err := os.ReadFile(manifest)
		if err != nil {
			return nil, err
		}
		// One by hand says less than the factory's, and is checked where it is registered.
		if parsed, err := build.ParseManifest(made); err == nil && parsed.Image.Digest == image {
			of = parsed
		}
	}
	of.Image.Digest = image
	text, err := safeopen.Read(path, catalog.MaxDocument, nil)
	if err != nil {
		return nil, err
	}
	m, err := kernelreport.ReadMeasurement(text, of)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// measuredOf is nil for a version of which nothing was measured.
func measuredOf(v *api.ProfileVersion) *kb.Measurement {
	return convert.MeasurementFromProto(v.GetMeasured())
}

// baselines of a measurement that have a gain, by the name that users read.
func baselines(m *kb.Measurement) (names []string, gains []*kb.Gain) {
	if m.ToSlim != nil {
		names, gains = append(names, "slim -O2"), append(gains, m.ToSlim)
	}
	if m.ToStock != nil {
		names, gains = append(names, "stock"), append(gains, m.ToStock)
	}
	return names, gains
}

// gainCells are the gain of a kernel and the one of the whole for a table: against stock, where that was measured.
func gainCells(m *kb.Measurement) (kernel, whole string) {
	switch {
	case m == nil:
		return notMeasured, ""
	case m.Outcome == kb.OutcomeNoBenefit:
		return "none", ""
	case m.Outcome != kb.OutcomeBenefit:
		return string(m.Outcome), ""
	}
	names, gains := baselines(m)
	if len(gains) == 0 {
		return string(m.Outcome), ""
	}
	last := len(gains) - 1
	kernel, whole = kernelText(gains[last]), wholeText(gains[last])
	if m.ToStock == nil {
		kernel += " to " + names[last]
	}
	if m.MeasuredOn != "" {
		kernel += ", " + measuredOn(m)
	}
	return kernel, whole
}

var interval = regexp.MustCompile(` ?\([^()]*\)`)

// figure leaves the interval around a figure to pages that have room for it.
func (p *page) figure(text string) string {
	if p.width == 0 {
		return text
	}
	return interval.ReplaceAllString(text, "")
}

func measuredOn(m *kb.Measurement) string { return "measured on " + m.MeasuredOn }

func shares(e kb.Estimate) verdict.Estimate {
	return verdict.Estimate{Value: e.Percent / 100, Low: e.Low / 100, High: e.High / 100}
}

// kernelText has a question mark where the change may be chance, as reports have.
func kernelText(g *kb.Gain) string {
	text := shares(g.Kernel).String()
	if g.Chance {
		text += " ?"
	}
	if g.Unequal {
		text += " - NOT AS EQUALS"
	}
	return text
}

func wholeText(g *kb.Gain) string {
	if g.Whole == nil {
		return verdict.ShareNotKnown
	}
	return shares(*g.Whole).String() + " of the " + sourceText(g)
}

func sourceText(g *kb.Gain) string {
	if g.Source == kb.ShareOfWorkload {
		return "workload"
	}
	return "job's time"
}

// shareText is the kernel's share and where it is from.
func shareText(g *kb.Gain) string {
	if g.Share == nil {
		return verdict.ShareNotKnown
	}
	text := shares(*g.Share).Part() + " of the "
	if g.Source == kb.ShareOfWorkload {
		return text + "workload's instructions"
	}
	var runs []string
	for _, id := range g.Runs {
		runs = append(runs, fmt.Sprint(id))
	}
	return text + "job's CPU time, run " + strings.Join(runs, ", ")
}

// outcomeText is the verdict in a line, without its figures.
func outcomeText(m *kb.Measurement) string {
	if m == nil {
		return notMeasured
	}
	text := string(m.Outcome)
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	if m.MeasuredOn != "" {
		text += ", " + measuredOn(m)
	}
	return text
}

func gainText(g *kb.Gain) string {
	text := "kernel " + kernelText(g)
	if g.Whole == nil {
		return text + "; " + verdict.ShareNotKnown
	}
	return fmt.Sprintf("%s; whole %s; kernel share %s", text, wholeText(g), shareText(g))
}

// sayMeasured tells the verdict on a version that is registered, or would be.
func (a *app) sayMeasured(ref string, m *kb.Measurement) {
	a.say("%s: %s", ref, outcomeText(m))
	if m == nil {
		return
	}
	names, gains := baselines(m)
	for i, g := range gains {
		a.say("  against %s: %s", names[i], gainText(g))
	}
}

// measuredRows are the same on a page about one kernel.
func measuredRows(p *page, m *kb.Measurement) {
	names, gains := baselines(m)
	for i, g := range gains {
		p.row("Against "+names[i]+":", gainText(g))
	}
}

// measuredPart is what was measured of a version, on a page about several.
func measuredPart(p *page, v *api.ProfileVersion) {
	m := measuredOf(v)
	if m == nil {
		return
	}
	p.line("")
	p.sentence("%s, %s", refOf(v), outcomeText(m))
	names, gains := baselines(m)
	if len(gains) == 0 {
		return
	}
	p.head("AGAINST", "KERNEL", "KERNEL SHARE", "WHOLE")
	for i, g := range gains {
		p.row(names[i], kernelText(g), shareText(g), wholeText(g))
	}
}
