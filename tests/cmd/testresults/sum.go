// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

type outcome int

const (
	passed outcome = iota
	failed
	skipped
)

// A result is one test's end.
type result struct {
	where   string // the package of a Go test
	name    string
	outcome outcome
	reason  string
}

func (r result) String() string {
	text := strings.TrimSpace(r.where + " " + r.name)
	if r.reason != "" {
		text += ": " + r.reason
	}
	return text
}

// A group is what one file says: one run of Go tests, of TAP programs, or all
// steps that have no such file.
type group struct {
	name    string
	results []result
}

func (g group) count(what outcome) int {
	n := 0
	for _, r := range g.results {
		if r.outcome == what {
			n++
		}
	}
	return n
}

type summaryOptions struct {
	dir        string
	expect     []string
	allowFile  string
	makeStatus int
}

// summarise prints what did not pass, a table, and as its last line the counts.
func summarise(options summaryOptions, out io.Writer) error {
	allowed, err := readAllowed(options.allowFile)
	if err != nil {
		return err
	}
	groups, err := readGroups(options.dir)
	if err != nil {
		return err
	}
	groups = append(groups, checkWhole(groups, options))
	total, refused := [3]int{}, 0
	for _, g := range groups {
		for _, r := range g.results {
			total[r.outcome]++
			switch {
			case r.outcome == failed:
				fmt.Fprintf(out, "FAILED   %s: %s\n", g.name, r)
			case r.outcome == skipped && !allowed.has(r.name):
				refused++
				fmt.Fprintf(out, "SKIPPED  %s: %s (should have run)\n", g.name, r)
			case r.outcome == skipped:
				fmt.Fprintf(out, "skipped  %s: %s\n", g.name, r)
			}
		}
	}
	fmt.Fprintf(out, "\n%-16s %8s %8s %8s\n", "", "passed", "failed", "skipped")
	for _, g := range groups {
		if len(g.results) > 0 {
			fmt.Fprintf(out, "%-16s %8d %8d %8d\n", g.name, g.count(passed), g.count(failed), g.count(skipped))
		}
	}
	if refused > 0 {
		fmt.Fprintf(out, "\n%d skipped that should have run: repair the machine, or give the reason in %s\n",
			refused, options.allowFile)
	}
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", total[passed], total[failed], total[skipped])
	if total[failed] > 0 || refused > 0 {
		return errFailed
	}
	return nil
}

// checkWhole adds the failures that no single file can know of.
func checkWhole(groups []group, options summaryOptions) group {
	whole := group{name: "run"}
	failures := 0
	for _, g := range groups {
		failures += g.count(failed)
	}
	for _, name := range options.expect {
		at := slices.IndexFunc(groups, func(g group) bool { return g.name == name })
		if at < 0 || groups[at].count(passed)+groups[at].count(failed) == 0 {
			whole.results = append(whole.results, result{name: name, outcome: failed, reason: "no test of it ran"})
			failures++
		}
	}
	if options.makeStatus != 0 && failures == 0 {
		whole.results = append(whole.results, result{name: "make", outcome: failed,
			reason: fmt.Sprintf("exit status %d with no failed test", options.makeStatus)})
	}
	return whole
}

func readGroups(dir string) ([]group, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var groups []group
	for _, entry := range entries {
		read := map[string]func(io.Reader) ([]result, error){
			".jsonl": readGoResults, ".tap": readTAPResults}[path.Ext(entry.Name())]
		if read == nil {
			continue
		}
		results, err := readFile(filepath.Join(dir, entry.Name()), read)
		if err != nil {
			return nil, err
		}
		groups = append(groups, group{strings.TrimSuffix(entry.Name(), path.Ext(entry.Name())), results})
	}
	return addSteps(groups, filepath.Join(dir, "steps"))
}

func readFile(name string, read func(io.Reader) ([]result, error)) (results []result, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return read(file)
}

// addSteps counts a step as one check, except one whose tests have a file of
// their own: that one counts only when it failed and its file does not say why.
func addSteps(groups []group, dir string) ([]group, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	steps := group{name: "steps"}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var step struct {
			Step    string
			Status  int
			Seconds float64
		}
		if err := json.Unmarshal(text, &step); err != nil {
			return nil, fmt.Errorf("step %q: %w", name, err)
		}
		now := result{name: step.Step, outcome: passed}
		if step.Status != 0 {
			now.outcome, now.reason = failed, fmt.Sprintf("exit status %d", step.Status)
		}
		at := slices.IndexFunc(groups, func(g group) bool { return g.name == step.Step })
		switch {
		case at < 0:
			steps.results = append(steps.results, now)
		case now.outcome == failed && groups[at].count(failed) == 0:
			groups[at].results = append(groups[at].results, now)
		}
	}
	return append(groups, steps), nil
}

// An allowList holds the patterns of tests that may skip.
type allowList []string

func (l allowList) has(name string) bool {
	return slices.ContainsFunc(l, func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return match && err == nil
	})
}

// readAllowed reads lines of `pattern  # reason`. A pattern without a reason
// is an error: a skip that nobody can explain is a test that nobody runs.
func readAllowed(name string) (list allowList, err error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scanner := bufio.NewScanner(file)
	for number := 1; scanner.Scan(); number++ {
		pattern, reason, _ := strings.Cut(scanner.Text(), "#")
		pattern, reason = strings.TrimSpace(pattern), strings.TrimSpace(reason)
		if pattern == "" {
			continue
		}
		if reason == "" {
			return nil, fmt.Errorf("%s:%d: %q has no reason", name, number, pattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", name, number, pattern, err)
		}
		list = append(list, pattern)
	}
	return list, scanner.Err()
}
