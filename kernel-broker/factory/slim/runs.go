// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// RunCoverage is what came of one run's trace: how much of it the kernel that is
// slimmed has, and which objects stay for it alone.
type RunCoverage struct {
	Run      uint64      `json:"run"`
	Results  []JobResult `json:"results"`
	Releases []string    `json:"releases"`
	// Named are the functions and calls that the job used, Found those of them
	// that this kernel has.
	Named int `json:"named"`
	Found int `json:"found"`
	// Added are objects that the workload did not need, and this run did.
	Added []string `json:"added,omitempty"`
	// Unknown are the first of the names that this kernel does not have: it is of
	// another version, or the compiler made no function of them.
	Unknown []string `json:"unknown,omitempty"`
	// Refused are system calls, and Lacking file systems, that this kernel does not
	// have whatever slimming does: no fragment of the recipe asks for them.
	Refused []string `json:"refused,omitempty"`
	Lacking []string `json:"lacking,omitempty"`
}

// notThere is the object of the calls that a kernel was built without.
const notThere = "kernel/sys_ni.o"

// mostUnknown names of a run are kept.
const mostUnknown = 20

// usage is why an object counts as used: by what a run saw it.
type usage struct {
	run uint64
	by  []string
}

// AddRuns lets objects count as used by the workload that hold what jobs were seen
// to use. It only ever adds use.
//
// A few names stand in several objects: what headers define and the compiler made a
// function of in each. Such a name decides nothing where one of its objects is used
// anyway, since that explains it; else it speaks for all of them.
func (u Uses) AddRuns(traces []JobTrace, names Names, calls Calls) []RunCoverage {
	l := runMatcher{names: names, calls: calls, seen: map[string][]usage{}}
	runs := make([]RunCoverage, len(traces))
	for i, trace := range traces {
		runs[i] = l.match(trace)
	}
	alone := l.seen
	l.seen = map[string][]usage{}
	for _, shared := range l.shared {
		if !slices.ContainsFunc(shared.objects, func(object string) bool { return u[object].Coverage == Hot || len(alone[object]) > 0 }) {
			for _, object := range shared.objects {
				l.add(object, shared.run, shared.words+", which stands in several objects")
			}
		}
	}
	maps.Copy(alone, l.seen) // what no run saw alone
	for _, object := range slices.Sorted(maps.Keys(alone)) {
		use, known := u[object]
		if !known || use.Coverage == Hot {
			continue
		}
		use.Coverage, use.Seen = Hot, words(alone[object])
		u[object] = use
		for _, s := range alone[object] {
			i := slices.IndexFunc(traces, func(t JobTrace) bool { return t.Run == s.run })
			runs[i].Added = append(runs[i].Added, object)
		}
	}
	return runs
}

// runMatcher compares traces with a kernel.
type runMatcher struct {
	names  Names
	calls  Calls
	seen   map[string][]usage
	shared []sharedName
}

type sharedName struct {
	run     uint64
	words   string
	objects []string
}

func (l *runMatcher) match(trace JobTrace) RunCoverage {
	w := RunCoverage{Run: trace.Run, Results: trace.Results, Releases: trace.Releases}
	for _, call := range trace.Calls {
		if l.refuses(call) {
			w.Named++
			w.Refused = append(w.Refused, call)
			continue
		}
		found := false
		for _, entry := range l.calls.entries(call) {
			found = l.found(trace.Run, entry, "system call "+call) || found
		}
		w.count(call, found)
	}
	for _, function := range trace.Functions {
		w.count(function, l.found(trace.Run, function, "function "+function))
	}
	return w
}

// refuses reports whether the kernel was built without a call that its source has.
func (l *runMatcher) refuses(call string) bool {
	if call == foreignCalls {
		return !slices.ContainsFunc(compatEntries, func(entry string) bool { return len(l.names[entry]) > 0 })
	}
	return l.calls[call] != "" && slices.Contains(l.names["__x64_"+l.calls[call]], notThere)
}

// found notes the objects of a name.
func (l *runMatcher) found(run uint64, name, words string) bool {
	objects := l.names[name]
	if len(objects) > 1 {
		l.shared = append(l.shared, sharedName{run: run, words: words, objects: objects})
	} else if len(objects) == 1 {
		l.add(objects[0], run, words)
	}
	return len(objects) > 0
}

// add notes what a run saw of an object. The runs come one after the other.
func (l *runMatcher) add(object string, run uint64, by string) {
	seen := l.seen[object]
	last := len(seen) - 1
	if last < 0 || seen[last].run != run {
		l.seen[object] = append(seen, usage{run: run, by: []string{by}})
	} else if !slices.Contains(seen[last].by, by) {
		seen[last].by = append(seen[last].by, by)
	}
}

// plainName is what may be repeated of a name that this kernel does not have: it is
// what a node said.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func (w *RunCoverage) count(name string, found bool) {
	w.Named++
	if found {
		w.Found++
	} else if len(w.Unknown) < mostUnknown && plainName.MatchString(name) {
		w.Unknown = append(w.Unknown, name)
	}
}

// words say of an object who saw it used, and by what.
func words(seen []usage) string {
	var text strings.Builder
	for i, s := range seen {
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "run %d: %s", s.run, s.by[0])
		if more := len(s.by) - 1; more > 0 {
			fmt.Fprintf(&text, " and %d more", more)
		}
	}
	return text.String()
}

// String describes the coverage in a line.
func (w RunCoverage) String() string {
	text := fmt.Sprintf("run %d: %d of the %d functions and system calls that its job used are in this kernel", w.Run, w.Found, w.Named)
	if missing := w.Named - w.Found - len(w.Refused); missing > 0 {
		text += fmt.Sprintf("; %d are unknown to it: %s", missing, strings.Join(w.Unknown, " "))
		if missing > len(w.Unknown) {
			text += " ..."
		}
	}
	if len(w.Added) > 0 {
		text += "; for it stay " + strings.Join(w.Added, " ")
	} else {
		text += "; the workload needs all of that too"
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"system calls", w.Refused}, {"file systems", w.Lacking}} {
		if len(list.names) > 0 {
			text += fmt.Sprintf("; no fragment of the recipe asks for the %s %s", list.what, strings.Join(list.names, " "))
		}
	}
	return text
}

// KeepFileSystems keeps the types on which jobs had files, and notes in the
// runs what the configuration has never had.
func (k Keep) KeepFileSystems(traces []JobTrace, runs []RunCoverage, kbuild *Kbuild, config kconfig.Config) {
	config = modulesToo(config)
	for i, trace := range traces {
		for _, system := range trace.FileSystems {
			module := strings.ReplaceAll(system, "-", "_")
			symbols, built := kbuild.driver(module, config)
			switch {
			case len(symbols) == 0: // no module's name, or there in every kernel
			case !built:
				runs[i].Lacking = append(runs[i].Lacking, module)
			default:
				for _, symbol := range symbols {
					k.Add(symbol, fmt.Sprintf("run %d: its job had files on the file system %s", trace.Run, module))
				}
			}
		}
	}
}

// AddRuns adds to the facts what jobs were seen to use.
func (f Files) AddRuns(facts *Facts, traces []JobTrace, systemMap string) ([]RunCoverage, error) {
	if len(traces) == 0 {
		return nil, nil
	}
	pieces, err := ReadFile(f.LinkMap, ReadLinkMap)
	if err != nil {
		return nil, err
	}
	names, err := ReadFile(systemMap, func(file io.Reader) (Names, error) { return ReadNames(file, pieces) })
	if err != nil {
		return nil, err
	}
	calls, err := ReadFile(filepath.Join(f.Tree, callTable), ReadCalls)
	if err != nil {
		return nil, err
	}
	runs := facts.Uses.AddRuns(traces, names, calls)
	facts.Keep.KeepFileSystems(traces, runs, facts.Kbuild, f.Config)
	return runs, nil
}
