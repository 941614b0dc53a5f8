// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

var (
	tapPoint = regexp.MustCompile(`^(not )?ok\b(?:\s+\d+)?\s*(?:- )?([^#]*?)\s*(?:#\s*(.*))?$`)
	tapPlan  = regexp.MustCompile(`^1\.\.(\d+)\s*(?:#\s*(.*))?$`)
)

// parseTAP reads one test point.
func parseTAP(text string) (result, bool) {
	match := tapPoint.FindStringSubmatch(text)
	if match == nil {
		return result{}, false
	}
	now := result{name: match[2], outcome: passed}
	if match[1] != "" {
		now.outcome = failed
	}
	if reason, skip := tapSkip(match[3]); skip {
		now.outcome, now.reason = skipped, reason
	}
	return now, true
}

func tapSkip(directive string) (reason string, skip bool) {
	if len(directive) < 4 || !strings.EqualFold(directive[:4], "skip") {
		return "", false
	}
	_, reason, _ = strings.Cut(directive, " ")
	return reason, true
}

type tapPrinter struct {
	out     io.Writer
	verbose bool
	count   [3]int
}

func newTAPPrinter(out io.Writer, verbose bool) *tapPrinter {
	return &tapPrinter{out: out, verbose: verbose}
}

func (p *tapPrinter) line(text []byte) {
	now, ok := parseTAP(string(text))
	if ok {
		p.count[now.outcome]++
	}
	if !ok || now.outcome != passed || p.verbose {
		fmt.Fprintf(p.out, "    %s\n", text)
	}
}

func (p *tapPrinter) end() {
	fmt.Fprintf(p.out, "    %d passed, %d failed, %d skipped\n", p.count[passed], p.count[failed], p.count[skipped])
}

// readTAPResults reads the streams of any number of test programs, one after
// the other in one file. Each has a plan, before or after its points; fewer
// points than planned means that a program died, more that it lost count.
func readTAPResults(stream io.Reader) ([]result, error) {
	var all []result
	planned, plans, points := 0, 0, 0
	err := eachLine(stream, func(raw []byte) {
		text := strings.TrimRight(string(raw), " \r")
		if now, ok := parseTAP(text); ok {
			points++
			all = append(all, now)
			return
		}
		if match := tapPlan.FindStringSubmatch(text); match != nil {
			plans++
			n, convErr := strconv.Atoi(match[1])
			if convErr != nil {
				n = -1
			}
			planned += n
			if reason, skip := tapSkip(match[2]); skip && n == 0 {
				all = append(all, result{name: "a whole TAP program", outcome: skipped, reason: reason})
			}
			return
		}
		if reason, bail := strings.CutPrefix(text, "Bail out!"); bail {
			all = append(all, result{name: "bail out", outcome: failed, reason: strings.TrimSpace(reason)})
		}
	})
	if plans == 0 || planned != points {
		all = append(all, result{name: "the TAP plan", outcome: failed,
			reason: fmt.Sprintf("%d plans for %d tests, %d tests ran", plans, planned, points)})
	}
	return all, err
}
