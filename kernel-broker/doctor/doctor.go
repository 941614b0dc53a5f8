// SPDX-License-Identifier: Apache-2.0

// Package doctor finds what is wrong with a site before a job does: a Site of facts goes in, findings with their
// remedies come out.
//
// Each check is a pure function of the facts. Collecting them is another package's task, so that a check can be tried
// with any fault. A fact that could not be had makes its checks "not possible", with the reason: such a check has not
// passed.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// Severity of a finding.
type Severity string

// An error breaks jobs; a warning will, or hides something.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing that is wrong, and what to do.
type Finding struct {
	Check    string   `json:"check"`
	Object   string   `json:"object"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Remedy   string   `json:"remedy"`
	// Line of one of Slurm's files that mends it; nil if no line does.
	Line *Line `json:"line,omitempty"`
	// ofNode: the object is a node, and the finding may be true of others.
	ofNode bool
}

// Outcome of a check.
type Outcome string

// A check with an accepted finding only has passed. One that could do a part of its work and found nothing is not
// possible, because nobody knows about the rest.
const (
	Passed      Outcome = "passed"
	Found       Outcome = "found"
	NotPossible Outcome = "not possible"
)

// Result is what came of one check.
type Result struct {
	Check   string  `json:"check"`
	About   string  `json:"about"`
	Outcome Outcome `json:"outcome"`
	// Why it was not possible, or not for all objects.
	Why      []string  `json:"why,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	// Accepted are findings that the caller ignores.
	Accepted []Finding `json:"accepted,omitempty"`
}

// check is one row of the table.
type check struct {
	name, about string
	examine     func(*examination)
}

// Names of all checks, in the order of the report.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Ignored is a finding that the site accepts: the name of a check, or NAME=OBJECT for one of its objects.
type Ignored []string

// Validate rejects names of no check.
func (i Ignored) Validate() error {
	for _, one := range i {
		if name, _, _ := strings.Cut(one, "="); !slices.Contains(Names(), name) {
			return fmt.Errorf("there is no check %q (kernelctl doctor --all lists them)", name)
		}
	}
	return nil
}

// set has each name, and of a list of nodes each node.
func (i Ignored) set() map[string]bool {
	set := map[string]bool{}
	for _, one := range i {
		set[one] = true
		check, object, _ := strings.Cut(one, "=")
		nodes, _ := hostlist.Expand(object) // other objects are no lists
		for _, node := range nodes {
			set[check+"="+node] = true
		}
	}
	return set
}

// Examine runs every check.
func Examine(s *Site, ignored Ignored) []Result {
	accepts := ignored.set()
	var all []Result
	for _, c := range checks() {
		e := &examination{Site: s, check: c.name}
		c.examine(e)
		r := Result{Check: c.name, About: c.about, Why: e.why, Outcome: Passed}
		for _, f := range e.findings {
			if accepts[f.Check] || accepts[f.Check+"="+f.Object] {
				r.Accepted = append(r.Accepted, f)
			} else {
				r.Findings = append(r.Findings, f)
			}
		}
		r.Findings, r.Accepted = grouped(r.Findings), grouped(r.Accepted)
		switch {
		case len(r.Findings) > 0:
			r.Outcome = Found
		case len(r.Why) > 0:
			r.Outcome = NotPossible
		}
		all = append(all, r)
	}
	return all
}

// examination is one check at work.
type examination struct {
	*Site
	check    string
	findings []Finding
	why      []string
}

func (e *examination) add(s Severity, object, what, remedy string) {
	e.findings = append(e.findings, Finding{Check: e.check, Object: object, Severity: s, What: what, Remedy: remedy})
}

// wrong adds an error, warn a warning.
func (e *examination) wrong(object, what, remedy string) { e.add(Error, object, what, remedy) }
func (e *examination) warn(object, what, remedy string)  { e.add(Warning, object, what, remedy) }

// skip notes why the check, or a part of it, is not possible.
func (e *examination) skip(why string) {
	if !slices.Contains(e.why, why) {
		e.why = append(e.why, why)
	}
}

// need returns a fact. Without it the check is not possible.
func need[T any](e *examination, f Fact[T]) (T, bool) {
	if f.Value == nil {
		e.skip(cmp.Or(f.Why, "not examined"))
		var none T
		return none, false
	}
	return *f.Value, true
}

// checks is the table, in the order in which a job meets its parts.
func checks() []check {
	return slices.Concat(slurmChecks(), brokerChecks(), kernelChecks(), nodeChecks())
}

// names lists objects for a text, the first few.
func names(list []string) string {
	const most = 8
	slices.Sort(list)
	if n := len(list) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), n)
	}
	return strings.Join(list, ", ")
}
