// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// folder of a run on this node's disk.
type folder string

// earlierSuffix of the results of earlier steps, and of agents that were killed.
const earlierSuffix = ".earlier"

// mergedFile is the one result that supersedes all others. It is there only until they are removed.
const mergedFile = "merged.json"

// found is a run's result, ready for upload.
type found struct {
	files   []link.RunFile
	partial string
}

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// open makes the folder, and reports whether it was there: then an agent was at
// it that was killed.
func (f folder) open() (before bool, err error) {
	_, err = os.Stat(string(f))
	before = err == nil
	if _, err := os.Stat(f.path(mergedFile)); err == nil {
		if err := f.supersede(); err != nil {
			return before, err
		}
	}
	return before, f.keepEarlier()
}

// keepEarlier renames the files of a killed agent, or of a step, before new ones are written.
func (f folder) keepEarlier() error {
	// The content names a user's files.
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	for number := 1; ; number++ {
		name := f.path(fmt.Sprintf("%d%s", number, earlierSuffix))
		if _, err := os.Stat(name); err == nil {
			continue
		}
		err := os.Rename(f.path(kb.ResultFile), name)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
}

// mergeSteps adds the result of a step to that of the steps before, if there are any: a job may have many.
func (f folder) mergeSteps(node string, most int) error {
	names, err := filepath.Glob(f.path("*" + earlierSuffix))
	if err != nil || len(names) == 0 {
		return err
	}
	_, err = f.gather(node, most, true, nil, nil)
	return err
}

// gather merges all results in the folder into one of at most so many bytes, 0 for any number, and notes what is
// incomplete. Without any it returns the reason. It ignores this agent's result unless latest: a run without a job has none.
func (f folder) gather(node string, most int, latest bool, why error, notes []string) (found, error) {
	results, err := f.results(latest)
	if err != nil {
		return found{}, err
	}
	return f.pack(node, most, results, why, notes)
}

func (f folder) results(latest bool) ([]profiling.Result, error) {
	names, err := filepath.Glob(f.path("*" + earlierSuffix))
	if err != nil {
		return nil, err
	}
	if latest {
		names = append(names, f.path(kb.ResultFile))
	}
	var results []profiling.Result
	for _, name := range names {
		content, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		result, err := profiling.ParseResult(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		results = append(results, result)
	}
	return results, nil
}

func (f folder) pack(node string, most int, results []profiling.Result, why error, notes []string) (found, error) {
	if len(results) == 0 {
		return found{}, why
	}
	whole, err := profiling.Merge(results...)
	if err != nil {
		return found{}, err
	}
	for _, note := range notes {
		whole.Partial = append(whole.Partial, profiling.Partial{Node: node, Why: note})
	}
	// What was merged by an agent that was restarted since says so already.
	lost := profiling.Partial{Node: node, Collector: profiling.CollectPGO, Why: whyCounters}
	if replaced(whole.PGO) && !slices.Contains(whole.Partial, lost) {
		whole.Partial = append(whole.Partial, lost)
	}
	if len(results) > 1 {
		if err := fit(&whole, node, most); err != nil {
			return found{}, err
		}
	}
	out := found{partial: partial(whole)}
	if err := f.keep(whole, len(results), len(notes)); err != nil {
		return found{}, fmt.Errorf("result of node %q: %w", node, err)
	}
	names := []string{kb.ResultFile}
	if whole.PGO != nil {
		for _, a := range whole.PGO.Archives {
			// A restarted agent overwrote the counters of the previous one.
			if !slices.Contains(names, a.Name) {
				names = append(names, a.Name)
			}
		}
	}
	for _, name := range names {
		file, err := describe(f.path(filepath.Base(name)))
		if err != nil {
			return found{}, err
		}
		out.files = append(out.files, file)
	}
	return out, nil
}

// whyCounters: each step counts from zero, and so does an agent that was restarted.
const whyCounters = "the counters are those of the job's last step on this node, or since the agent was restarted"

// replaced: an archive took the place of another.
func replaced(counters *profiling.PGO) bool {
	if counters == nil {
		return false
	}
	seen := map[string]bool{}
	return slices.ContainsFunc(counters.Archives, func(a profiling.Archive) bool {
		again := seen[a.Name]
		seen[a.Name] = true
		return again
	})
}

// whyLarge: the broker refuses a delivery that is too large, and the run would be lost.
const whyLarge = "the results of the job's steps exceeded the size limit together: lists were left out"

// fit drops the lists of a merged result that is too large. Each part was within the limit, but a job may have many steps.
func fit(whole *profiling.Result, node string, most int) error {
	content, err := whole.JSON()
	if err != nil || most == 0 || len(content) <= most {
		return err
	}
	if whole.IO != nil {
		whole.IO.Bound(0)
	}
	if whole.Syscalls != nil {
		whole.Syscalls.Bound(0)
	}
	if whole.CallGraph != nil {
		whole.CallGraph.Bound(0)
	}
	if whole.CallCounts != nil {
		whole.CallCounts.Bound(0)
	}
	if large := (profiling.Partial{Node: node, Why: whyLarge}); !slices.Contains(whole.Partial, large) {
		whole.Partial = append(whole.Partial, large)
	}
	return nil
}

// keep leaves one result in the folder. A single one is already on the disk, which may be full.
func (f folder) keep(whole profiling.Result, parts, notes int) error {
	if parts == 1 && notes == 0 {
		return f.latest()
	}
	content, err := whole.JSON()
	if err != nil {
		return err
	}
	err = atomicfile.Write(f.path(mergedFile), content, 0o600)
	switch {
	case err == nil:
		return f.supersede()
	case parts == 1:
		return f.latest()
	default:
		return err
	}
}

// supersede replaces all results by the merged one. An agent that is killed meanwhile leaves the rest to the next: what the
// merged one contains is not to be merged with it again.
func (f folder) supersede() error {
	names, err := filepath.Glob(f.path("*" + earlierSuffix))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return os.Rename(f.path(mergedFile), f.path(kb.ResultFile))
}

// latest gives a single result its proper name.
func (f folder) latest() error {
	names, err := filepath.Glob(f.path("*" + earlierSuffix))
	if err != nil || len(names) == 0 {
		return err
	}
	// A run without a job has no result of this agent.
	return os.Rename(names[0], f.path(kb.ResultFile))
}

// partial describes in one line what is incomplete; empty if nothing is. A failed collector counts as incomplete.
func partial(r profiling.Result) string {
	words := refused(r.Refused)
	for _, p := range r.Partial {
		word := p.Why
		if p.Collector != "" {
			word = string(p.Collector) + ": " + word
		}
		words = append(words, word)
	}
	return kb.OneLine(strings.Join(words, "; "))
}

// refused groups collectors by reason: a kernel that lacks a feature for one often lacks it for all. Only the start of
// the remedy is included; the report has the rest.
func refused(all []profiling.Refusal) []string {
	collectors := map[string][]string{}
	var reasons []string
	for _, u := range all {
		if u.Part != "" {
			continue
		}
		reason := u.Detail
		if what, _, _ := strings.Cut(u.Remedy, ";"); what != "" {
			reason += ": " + what
		}
		if collectors[reason] == nil {
			reasons = append(reasons, reason)
		}
		if name := string(u.Collector); !slices.Contains(collectors[reason], name) {
			collectors[reason] = append(collectors[reason], name)
		}
	}
	words := make([]string, 0, len(reasons))
	for _, reason := range reasons {
		words = append(words, strings.Join(collectors[reason], ", ")+": "+reason)
	}
	return words
}

func describe(path string) (link.RunFile, error) {
	sum, size, err := digest.File(path)
	return link.RunFile{Path: path, Document: kb.Document{Name: filepath.Base(path), Digest: sum, Size: uint64(size)}}, err
}
