// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// inWords writes a value in its unit.
func inWords(value float64, unit string) string {
	if strings.HasPrefix(unit, "seconds") {
		return report.Seconds(value)
	}
	return report.Count(value)
}

func amount(value float64, unit string) report.Cell {
	return report.Figure(value, inWords(value, unit))
}

// withSpread adds the spread where there is one.
func withSpread(s stats.Summary, unit string) report.Cell {
	cell := amount(s.Median, unit)
	if s.Spread > 0 && s.Median > 0 {
		cell.Text += " ± " + strings.TrimPrefix(verdict.Percent(s.Spread/2/s.Median), "+")
	}
	return cell
}

// change of a comparison, marked where it may be chance.
func change(c verdict.Comparison) report.Cell {
	if c.Change == nil || c.Standing == verdict.Incomparable {
		return report.Missing()
	}
	cell := share(*c.Change)
	if c.Standing == verdict.Unclear {
		cell.Text, cell.Shade = cell.Text+" ?", 0
	}
	return cell
}

// share as a shaded cell: a tint for 1, 5 and 15 per cent.
func share(by float64) report.Cell {
	cell := report.Figure(by, verdict.Percent(by))
	for _, step := range []float64{0.01, 0.05, 0.15} {
		if math.Abs(by) >= step {
			cell.Shade++
		}
	}
	if by < 0 {
		cell.Shade = -cell.Shade
	}
	return cell
}

// Relative is the change that a ratio stands for, shaded.
func Relative(ratio *float64) report.Cell {
	if ratio == nil {
		return report.Missing()
	}
	return share(*ratio - 1)
}

// chance is the p of a comparison.
func chance(c verdict.Comparison) report.Cell {
	switch {
	case c.Test != nil:
		return report.Figure(c.Test.P, fmt.Sprintf("%.3g", c.Test.P))
	case c.Method == verdict.ByExactCount:
		return report.Text("exact")
	}
	return report.Missing()
}

// passed stands out where a check did not.
func passed(check verdict.CheckRun) report.Cell {
	switch {
	case check.NotChecked:
		return report.Text("not checked")
	case check.Passed:
		return report.Text("passed")
	}
	return report.Cell{Text: "FAILED", Strong: true, Shade: 3}
}

// known is a number of which 0 is not known.
func known(n any) any {
	if reflect.ValueOf(n).IsZero() {
		return report.Missing()
	}
	return n
}

func size(bytes int64) report.Cell {
	if bytes == 0 {
		return report.Missing()
	}
	return report.Figure(float64(bytes), report.Bytes(bytes))
}

// sentence begins with a capital and ends with a full stop.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return capital(text)
	}
	return capital(text) + "."
}

func capital(text string) string {
	first, width := utf8.DecodeRuneInString(text)
	if width == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + text[width:]
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", report.Count(float64(n)), thing)
}

// join texts and lists of them.
func join(parts ...any) string {
	var all []string
	for _, part := range parts {
		if list, ok := part.([]string); ok {
			all = append(all, list...)
		} else {
			all = append(all, fmt.Sprint(part))
		}
	}
	return strings.TrimSpace(strings.Join(all, " "))
}

// took formats a time, from tenths of a second to hours.
func took(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
