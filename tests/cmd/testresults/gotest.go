// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A goEvent is one line of `go test -json`, see `go doc test2json`.
type goEvent struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

func parseGoEvent(text []byte) (goEvent, bool) {
	var event goEvent
	if len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &event) != nil {
		return goEvent{}, false
	}
	return event, true
}

// A goPrinter shows package lines, failures with their output, and skips with
// their reason; with verbose also the coming and going of top-level tests, for
// suites whose tests take minutes.
type goPrinter struct {
	out     io.Writer
	verbose bool
	// output of tests that still run, by package and test
	output map[[2]string][]string
}

func newGoPrinter(out io.Writer, verbose bool) *goPrinter {
	return &goPrinter{out: out, verbose: verbose, output: map[[2]string][]string{}}
}

func (p *goPrinter) line(text []byte) {
	event, ok := parseGoEvent(text)
	if !ok {
		fmt.Fprintf(p.out, "%s\n", text)
		return
	}
	key := [2]string{event.Package, event.Test}
	switch event.Action {
	case "build-output":
		fmt.Fprint(p.out, event.Output)
	case "run":
		if p.verbose && !strings.Contains(event.Test, "/") {
			fmt.Fprintf(p.out, "    ... %s\n", event.Test)
		}
	case "output":
		p.output[key] = append(p.output[key], event.Output)
	case "pass", "fail", "skip":
		p.ended(event, p.output[key])
		delete(p.output, key)
	}
}

func (p *goPrinter) ended(event goEvent, output []string) {
	if event.Test == "" {
		p.packageEnded(event, output)
		return
	}
	switch {
	case event.Action == "fail":
		fmt.Fprintf(p.out, "--- %s %s\n%s", event.Package, event.Test, strings.Join(output, ""))
	case event.Action == "skip":
		fmt.Fprintf(p.out, "    skipped %s: %s\n", event.Test, skipReason(output))
	case p.verbose && !strings.Contains(event.Test, "/"):
		fmt.Fprintf(p.out, "    ok  %s (%.1f s)\n", event.Test, event.Elapsed)
	}
}

func (p *goPrinter) packageEnded(event goEvent, output []string) {
	if event.Action == "fail" {
		// What a package says by itself is a panic or a race: show all of it.
		fmt.Fprint(p.out, strings.Join(output, ""))
		return
	}
	for _, text := range output {
		if strings.HasPrefix(text, "ok ") {
			fmt.Fprint(p.out, text)
		}
	}
}

func (p *goPrinter) end() {}

// skipReason is what the test logged, without go test's own lines.
func skipReason(output []string) string {
	var reason []string
	for _, text := range output {
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
			continue
		}
		reason = append(reason, text)
	}
	if len(reason) == 0 {
		return "no reason given"
	}
	return strings.Join(reason, " ")
}

// readGoResults turns a stream into one result for each leaf test. A parent
// only repeats its subtests, unless it failed while they passed. A package
// that failed without a failing test (it did not compile, or it crashed)
// counts as one failure.
func readGoResults(stream io.Reader) ([]result, error) {
	run := goRun{ended: map[[2]string]result{}, parents: map[[2]string]bool{}, output: map[[2]string][]string{}}
	if err := eachLine(stream, run.line); err != nil {
		return nil, err
	}
	return run.results(), nil
}

type goRun struct {
	order   [][2]string
	ended   map[[2]string]result
	parents map[[2]string]bool
	output  map[[2]string][]string
}

func (r *goRun) line(text []byte) {
	event, ok := parseGoEvent(text)
	if !ok || event.Package == "" {
		return
	}
	key := [2]string{event.Package, event.Test}
	switch event.Action {
	case "run":
		r.began(key)
	case "output":
		r.output[key] = append(r.output[key], event.Output)
	case "pass", "fail", "skip":
		r.finish(key, event)
	}
}

func (r *goRun) began(key [2]string) {
	r.order = append(r.order, key)
	// Until its end is seen, a test that began has failed: a crash ends none.
	r.ended[key] = result{where: key[0], name: key[1], outcome: failed, reason: "did not end"}
	if cut := strings.LastIndexByte(key[1], '/'); cut >= 0 {
		r.parents[[2]string{key[0], key[1][:cut]}] = true
	}
}

func (r *goRun) finish(key [2]string, event goEvent) {
	if _, known := r.ended[key]; !known {
		r.order = append(r.order, key)
	}
	now := result{where: key[0], name: key[1]}
	switch event.Action {
	case "pass":
		now.outcome = passed
	case "fail":
		now.outcome = failed
	case "skip":
		now.outcome = skipped
		now.reason = skipReason(r.output[key])
	}
	r.ended[key] = now
	delete(r.output, key)
}

func (r *goRun) results() []result {
	failedBelow := map[[2]string]bool{}
	for key, now := range r.ended {
		if now.outcome != failed || key[1] == "" {
			continue
		}
		failedBelow[[2]string{key[0], ""}] = true
		for at := 0; at < len(key[1]); at++ {
			if key[1][at] == '/' {
				failedBelow[[2]string{key[0], key[1][:at]}] = true
			}
		}
	}
	var all []result
	for _, key := range r.order {
		now := r.ended[key]
		group := key[1] == "" || r.parents[key]
		if group && (now.outcome == passed || failedBelow[key]) {
			continue
		}
		if key[1] == "" && now.outcome == skipped {
			continue // a package without tests
		}
		all = append(all, now)
	}
	return all
}
