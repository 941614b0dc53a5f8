// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
)

// A job on another kernel was seen to use an option that the workload's trace alone
// takes out: it stays, and the slimming says for which run.
func TestWhatAJobUsedStays(t *testing.T) {
	p := slimmed(t)
	trace := slim.JobTrace{Run: 3, Results: []slim.JobResult{{Node: "n1", Digest: "sha256:" + strings.Repeat("ab", 32)}}, Releases: []string{"6.1.0-56-amd64"},
		Calls: []string{"io_uring_setup", "name_to_handle_at", "write"}, Functions: []string{"nfs_file_read", "vfs_write"}}
	p.fromTrace(trace, "config")
	for _, step := range []string{"source", "traced", "trace"} {
		if !p.step("tiny", step).Cached {
			t.Errorf("step %s was done again for a trace", step)
		}
	}
	var outcome slim.Outcome
	decode(t, string(p.file("tiny", "slim", "slim.json")), &outcome)
	if len(outcome.Gone) > 0 || len(outcome.Runs) != 1 {
		t.Fatalf("gone %+v, witnesses %+v", outcome.Gone, outcome.Runs)
	}
	w := outcome.Runs[0]
	if w.Named != 5 || w.Found != 3 || !slices.Equal(w.Added, []string{"fs/fhandle.o"}) || !slices.Equal(w.Refused, []string{"io_uring_setup"}) || !slices.Equal(w.Unknown, []string{"nfs_file_read"}) {
		t.Errorf("%+v", w)
	}
	i := slices.IndexFunc(outcome.Stayed, func(d slim.Decision) bool { return d.Symbol == "FHANDLE" })
	if i < 0 || outcome.Stayed[i].Reason != "fs/fhandle.o was used by a job, run 3: system call name_to_handle_at" {
		t.Errorf("what stayed: %+v", outcome.Stayed)
	}
	config, err := kconfig.ReadConfig(filepath.Join(p.step("tiny", "config").Dir, build.ConfigFile))
	if err != nil || config["FHANDLE"] != "y" {
		t.Errorf("FHANDLE is %q, %v", config["FHANDLE"], err)
	}
}

// A run that the slimming learns nothing new from changes no kernel: none is compiled
// again, the one that counts is found, and is named after the run where it is published.
func TestARunThatAddsNothing(t *testing.T) {
	p, made := whole(t)
	step := p.fromTrace(slim.JobTrace{Run: 5, Results: []slim.JobResult{{Node: "n1", Digest: "sha256:" + strings.Repeat("cd", 32)}}, Calls: []string{"write"}},
		"instrumented-of-runs")
	if now := p.step("tiny", "instrumented"); !now.Cached || now.Key != made.step("instrumented").Key {
		t.Errorf("the kernel that counts was made again: %+v", now)
	}
	manifest, err := build.ReadManifest(p.step("tiny", step).Dir)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := build.ReadManifest(made.step("instrumented").Dir)
	if err != nil || manifest.BuildID != counts.BuildID || counts.Runs != nil {
		t.Errorf("build %s of a run, %s without: %v", manifest.BuildID, counts.BuildID, err)
	}
	want := []build.RunPart{{Run: 5, Node: "n1", Use: build.RunForSlimming, Digest: "sha256:" + strings.Repeat("cd", 32)}}
	if !slices.Equal(manifest.Runs, want) {
		t.Errorf("made of %+v", manifest.Runs)
	}
	if err := manifest.Verify(p.step("tiny", step).Dir); err != nil {
		t.Error(err)
	}
}

// fromTrace builds up to a step, in this process, and has what a run's job used.
func (p place) fromTrace(trace slim.JobTrace, until string) (step string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "trace.json")
	if err := trace.Write(file); err != nil {
		p.t.Fatal(err)
	}
	o := pipeline.Options{Name: "tiny", Catalog: catalog, Cache: p.dir, Jobs: 2, Traces: []string{file},
		Programs: built() + "/workloads", Plugin: built() + "/measure/kbcount.so"}
	if err := o.Absolute(); err != nil {
		p.t.Fatal(err)
	}
	build, err := pipeline.Open(p.t.Context(), o)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := build.Build(p.t.Context(), &graph.Runner{Store: build.Store, Parallel: 1}, until); err != nil {
		p.t.Fatal(err)
	}
	return until
}

// Each option that slimming takes out of the catalog's kernel by the workload's trace
// stays when a job was seen in a function of it, and no other goes for that. Nothing is
// built: the traced kernel has to be in the project's cache.
func TestTracesOnTheCatalogsKernel(t *testing.T) {
	status, err := pipeline.StoreIn(project).Status("mitgcm", "")
	if err != nil {
		t.Skip("there is no traced kernel to look at: kernelctl kernel build mitgcm --train --until slim --publish never")
	}
	dir := map[string]string{}
	for _, name := range []string{"traced", "trace", "slim"} {
		step, _ := status.Step(name)
		if dir[name] = step.Dir; step.Dir == "" {
			t.Skipf("the newest build of mitgcm did not come to %s", name)
		}
	}
	builder := &build.Builder{Catalog: top + "/catalog", Cache: build.Cache{Dir: project}, Jobs: 1, FindSource: build.FindSource}
	plan, err := builder.Plan(t.Context(), "mitgcm")
	if err != nil {
		t.Fatal(err)
	}
	source, err := builder.Fetch(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	config, err := kconfig.ReadConfig(filepath.Join(dir["traced"], build.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	files := slim.Files{Tree: source.Tree, Config: config, LinkMap: filepath.Join(dir["traced"], build.LinkMapFile),
		Trace: filepath.Join(dir["trace"], "run.trace"), RegionTrace: filepath.Join(dir["trace"], "work.trace"), Keep: top + "/catalog/keep", KeepToo: plan.Recipe.Keep}
	for _, option := range plan.Merged.Options {
		files.Asked = append(files.Asked, option.Symbol)
	}
	facts, _, err := files.Read()
	if err != nil {
		t.Fatal(err)
	}
	var objects map[string]string // of functions whose name no other object has
	decode(t, string(read(t, filepath.Join(dir["slim"], "objects.json"))), &objects)
	plain := slim.Propose(facts)
	goes := decisions(plain)
	if len(goes) == 0 {
		t.Fatal("slimming proposes nothing: there is nothing to keep")
	}
	for _, symbol := range slices.Sorted(maps.Keys(goes)) {
		object := goes[symbol].Objects[0]
		function := ""
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if objects[name] == object && !strings.Contains(name, ".") && !strings.HasPrefix(name, "__x64_") {
				function = name
			}
		}
		with := facts
		with.Uses, with.Keep = maps.Clone(facts.Uses), maps.Clone(facts.Keep)
		witnesses, err := files.AddRuns(&with, []slim.JobTrace{{Run: 3, Functions: []string{function}}}, filepath.Join(dir["traced"], build.SystemMapFile))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s of %s: %s", symbol, function, object, witnesses[0])
		after := decisions(slim.Propose(with))
		if _, still := after[symbol]; still || len(witnesses[0].Added) == 0 {
			t.Errorf("%s goes though a job was in %s of %s", symbol, function, object)
		}
		for other := range after {
			if _, before := goes[other]; !before {
				t.Errorf("%s goes because %s stays", other, symbol)
			}
		}
	}
}

// decisions to let an option go, by its name.
func decisions(p slim.Proposal) map[string]slim.Decision {
	goes := map[string]slim.Decision{}
	for _, d := range p.Decisions {
		if d.Goes {
			goes[d.Symbol] = d
		}
	}
	return goes
}
