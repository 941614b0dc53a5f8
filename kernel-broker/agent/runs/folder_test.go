// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Incompleteness fits in one short line: each reason appears once for all its collectors, with the remedy.
func TestPartialSummary(t *testing.T) {
	refusal := func(node string, c profiling.Collector, part, detail, remedy string) profiling.Refusal {
		return profiling.Refusal{Node: node, Part: part, Unsupported: profiling.Unsupported{Collector: c, Detail: detail, Remedy: remedy}}
	}
	for name, c := range map[string]struct {
		result profiling.Result
		want   string
	}{
		"nothing":             {profiling.Result{}, ""},
		"a part is no reason": {profiling.Result{Refused: []profiling.Refusal{refusal("n1", "io", "seeks", "none", "")}}, ""},
		"one reason for two, on two nodes": {profiling.Result{Refused: []profiling.Refusal{
			refusal("n1", "io", "", "no types", "take another kernel; this one has none"),
			refusal("n2", "io", "", "no types", "take another kernel; this one has none"),
			refusal("n1", "noise", "", "no types", "take another kernel; this one has none"),
		}}, "io, noise: no types: take another kernel"},
		"two reasons, and what was missed": {profiling.Result{
			Refused: []profiling.Refusal{refusal("n1", "io", "", "no types", ""), refusal("n1", "callgraph", "", "no clock", "mend it")},
			Partial: []profiling.Partial{{Collector: "syscalls", Why: "lost"}, {Why: "late"}},
		}, "io: no types; callgraph: no clock: mend it; syscalls: lost; late"},
	} {
		if got := partial(c.result); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// part is a result of one node, in a file of this name.
func (f folder) part(t *testing.T, name, node string) {
	t.Helper()
	content, err := profiling.Result{Format: profiling.Format, Job: 7, Nodes: []profiling.Node{{Name: node}}}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// nodes of the one result that is in the folder.
func (f folder) nodes(t *testing.T) (names []string) {
	t.Helper()
	results, err := f.results(true)
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, n := range results[0].Nodes {
		names = append(names, n.Name)
	}
	return names
}

// An agent may be killed at each point of a merge; what was merged stays merged.
func TestKilledWhileMerging(t *testing.T) {
	for name, left := range map[string][]string{
		"nothing removed":      {"1.earlier", "2.earlier", kb.ResultFile},
		"one part removed":     {"2.earlier", kb.ResultFile},
		"all but the result":   {kb.ResultFile},
		"only the merged one":  nil,
		"without a result yet": {"1.earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			f := folder(t.TempDir())
			f.part(t, mergedFile, "merged")
			for _, part := range left {
				f.part(t, part, "part")
			}
			if before, err := f.open(); !before || err != nil {
				t.Fatal(before, err)
			}
			if names := f.nodes(t); !slices.Equal(names, []string{"merged"}) {
				t.Errorf("nodes %q", names)
			}
		})
	}
}

// A single result is delivered as it is where there is no space to note what it lacks.
func TestNoSpaceForNotes(t *testing.T) {
	f := folder(t.TempDir())
	f.part(t, "1.earlier", "n1")
	if err := os.MkdirAll(filepath.Join(f.path(mergedFile), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := f.gather("n1", 0, true, nil, []string{whyLate})
	if err != nil || len(got.files) != 1 || got.partial != whyLate {
		t.Fatalf("%+v, %v", got, err)
	}
	if names := f.nodes(t); !slices.Equal(names, []string{"n1"}) {
		t.Errorf("nodes %q", names)
	}
}

// Each step's result is within the limit; those of a job with many steps are not, together.
func TestManyStepsFitTheLimit(t *testing.T) {
	f := folder(t.TempDir())
	large := profiling.Result{Format: profiling.Format, Nodes: []profiling.Node{{Name: "n1"}}, IO: &profiling.IO{}}
	for i := range 100 {
		large.IO.Files = append(large.IO.Files, profiling.File{Node: "n1", Path: fmt.Sprintf("/out/%d", i)})
	}
	content, err := large.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1.earlier", "2.earlier", kb.ResultFile} {
		if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	most := 2 * len(content)
	if err := errors.Join(f.mergeSteps("n1", most), f.keepEarlier()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2.earlier", kb.ResultFile} {
		if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.gather("n1", most, true, nil, nil)
	if err != nil || got.partial != whyLarge || got.files[0].Size > uint64(most) {
		t.Fatalf("%+v, %v", got, err)
	}
	content, err = os.ReadFile(f.path(kb.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := profiling.ParseResult(content); err != nil || r.IO.FilesLeftOut != 500 || len(r.IO.Files) != 0 {
		t.Errorf("%d files left out, %v", r.IO.FilesLeftOut, err)
	}
}

// Each step counts from zero, and its counters take the place of those before.
func TestCountersOfTheLastStep(t *testing.T) {
	f := folder(t.TempDir())
	content, err := profiling.Result{Format: profiling.Format, Nodes: []profiling.Node{{Name: "n1"}},
		PGO: &profiling.PGO{Archives: []profiling.Archive{{Node: "n1", Name: "counters.tar.gz"}}}}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"counters.tar.gz", kb.ResultFile}
	for steps, want := range []string{"", string(profiling.CollectPGO) + ": " + whyCounters} {
		for _, name := range files {
			if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := f.gather("n1", 0, true, nil, nil); err != nil || got.partial != want || len(got.files) != 2 {
			t.Errorf("%d more steps: %+v, %v", steps, got, err)
		}
		files = append(files, "1.earlier")
	}
	// An agent that is restarted before the delivery finds them merged.
	if got, err := f.gather("n1", 0, true, nil, nil); err != nil || strings.Count(got.partial, whyCounters) != 1 {
		t.Errorf("merged already: %+v, %v", got, err)
	}
}

// A full disk does not stop the upload of existing results.
func TestNoSpaceToPack(t *testing.T) {
	w := newWorld(t)
	w.desired(nil)
	w.until("it is ready", w.said("3 ready"))
	w.populate(1)
	before, err := os.Stat(filepath.Join(w.dir, "runs", "3"))
	if err != nil || before.Mode().Perm() != 0o700 {
		t.Errorf("the folder, in which a user's files are named: %v, %v", before.Mode(), err)
	}
	w.end(0)
	w.until("it is delivered", func() bool { return len(w.got) == 1 })
	written, err := os.Stat(w.sessions[0].written)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Stat(w.got[0].Path)
	if err != nil || !os.SameFile(written, packed) {
		t.Errorf("a complete result was rewritten (%v)", err)
	}
}
