// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/page"
)

// inWords writes a value in its unit.
func inWords(value float64, unit string) string {
	if strings.HasPrefix(unit, "seconds") {
		return page.Seconds(value)
	}
	return page.Count(value)
}

func amount(value float64, unit string) page.Cell {
	return page.Figure(value, inWords(value, unit))
}

// withSpread adds the spread where there is one.
func withSpread(s verdict.Summary, unit string) page.Cell {
	cell := amount(s.Median, unit)
	if s.Spread > 0 && s.Median > 0 {
		cell.Text += " ± " + strings.TrimPrefix(verdict.Percent(s.Spread/2/s.Median), "+")
	}
	return cell
}

// change of a comparison, marked where it may be chance.
func change(c *verdict.Comparison) page.Cell {
	if c == nil || c.Change == nil || c.Standing == verdict.Incomparable {
		return page.Missing()
	}
	cell := share(*c.Change)
	if c.Standing == verdict.Unclear {
		cell.Text, cell.Shade = cell.Text+" ?", 0
	}
	return cell
}

// share as a shaded cell: a tint for 1, 5 and 15 per cent.
func share(by float64) page.Cell {
	cell := page.Figure(by, verdict.Percent(by))
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

func relative(ratio *float64) page.Cell {
	if ratio == nil {
		return page.Missing()
	}
	return share(*ratio - 1)
}

func number(n int) page.Cell {
	if n == 0 {
		return page.Missing()
	}
	return page.Figure(float64(n), page.Count(float64(n)))
}

func size(bytes int64) page.Cell {
	if bytes == 0 {
		return page.Missing()
	}
	return page.Figure(float64(bytes), page.Bytes(bytes))
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

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%s %s", page.Count(float64(n)), many)
}
