// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func TestWhatARunGives(t *testing.T) {
	traced := profiling.Result{Collectors: []profiling.Collector{"syscalls"}, Syscalls: &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "read", Count: 1}}}}
	counted := profiling.Result{Collectors: []profiling.Collector{"pgo"}, PGO: &profiling.PGO{Archives: []profiling.Archive{{Node: "n1"}}}}
	both := traced
	both.PGO = counted.PGO
	noise := profiling.Result{Collectors: []profiling.Collector{"io", "noise"}, Noise: &profiling.Noise{}, IO: &profiling.IO{Files: []profiling.File{{FileSystem: "ext4"}}}}
	refused := profiling.Result{Collectors: []profiling.Collector{"noise"}, Refused: []profiling.Refusal{
		{Node: "n1", Unsupported: profiling.Unsupported{Collector: "syscalls", Detail: "no BTF\x1b[31m", Remedy: "build it in"}}}}
	all := build.Recipe{Name: "mitgcm", Slimming: build.SlimmingTrace, Optimisation: build.OptimisePGO}
	slims := build.Recipe{Name: "mitgcm", Slimming: build.SlimmingTrace, Optimisation: build.OptimiseO2}
	profiles := build.Recipe{Name: "mitgcm", Slimming: build.SlimmingNone, Optimisation: build.OptimisePGOSafe}
	plain := build.Recipe{Name: "mitgcm", Optimisation: build.OptimiseO2}
	const stock, counting = "stock", "mitgcm-instrumented"
	for name, c := range map[string]struct {
		result       profiling.Result
		kernel       string
		recipe       build.Recipe
		instrumented bool
		want         string // trace, counters, both; or words of the refusal
	}{
		"a trace": {traced, stock, all, false, "trace"}, "for the kernel that counts": {traced, stock, all, true, "trace"},
		"of any kernel": {traced, "lammps", slims, false, "trace"},
		"counters":      {counted, counting, all, false, "counters"}, "without slimming": {counted, counting, profiles, false, "counters"},
		"both": {both, counting, all, false, "both"}, "both, for the kernel that counts": {both, counting, all, true, "trace"},
		"both, and no profile": {both, counting, slims, false, "trace"}, "both, and no slimming": {both, counting, profiles, false, "counters"},
		"both, of another profile":                             {both, "lammps-instrumented", all, false, "run 7 was on the kernel lammps-instrumented: kernel mitgcm is made from counters of mitgcm-instrumented"},
		"both, of another profile, for the kernel that counts": {both, "lammps-instrumented", all, true, "trace"},
		"counters of another profile":                          {counted, "lammps-instrumented", all, false, "run 7 was on the kernel lammps-instrumented"},
		"counters for the kernel that counts":                  {counted, counting, all, true, "run 7 has counters alone: they were taken on a kernel that counts"},
		"a trace and no slimming":                              {traced, stock, profiles, false, "run 7 tells what its job used of its kernel, and the recipe mitgcm does not slim (slimming: trace)"},
		"the same for the kernel that counts":                  {traced, stock, profiles, true, "the recipe mitgcm does not slim"},
		"counters and no profile":                              {counted, counting, slims, false, "run 7 has counters, and the recipe mitgcm takes no profile (optimisation: pgo or pgo-safe)"},
		"both and nothing to make of it":                       {both, counting, plain, false, "the recipe mitgcm does not slim"},
		"noise":                                                {noise, stock, all, false, "run 7 tells nothing to make a kernel of, it has io, noise: sbatch --kernel-profiling=syscalls,callgraph"},
		"collectors that could not":                            {refused, stock, all, false, "it has noise (node \"n1\": collector \"syscalls\": no BTF\x1b[31m; build it in)"},
		"nothing":                                              {profiling.Result{}, stock, all, true, "it has no collector's result: sbatch"},
	} {
		f := Run{ID: 7, Kernel: kb.Ref{Profile: c.kernel}, Result: c.result}
		g, err := f.inputs(c.recipe, c.instrumented)
		got := map[runInputs]string{{trace: true}: "trace", {counters: true}: "counters", {trace: true, counters: true}: "both"}[runInputs{trace: g.trace, counters: g.counters}]
		if err != nil {
			got = err.Error()
			if !errors.Is(err, kb.ErrFailedPrecondition) || g != (runInputs{}) {
				t.Errorf("%s: %+v, %v", name, g, err)
			}
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		// What is left aside of a run is said.
		if aside := err == nil && c.result.PGO != nil && c.result.Syscalls != nil && got != "both"; aside != (g.aside != "") {
			t.Errorf("%s: %q is said", name, g.aside)
		}
	}
}

// The kernel's share counts where it is the job's own: without what the measuring took,
// and not of a kernel that counts.
func TestShareOfARun(t *testing.T) {
	result := func(job, system, spent uint64) profiling.Result {
		return profiling.Result{Nodes: []profiling.Node{{Name: "n1", JobNS: job, SystemNS: system, UserNS: job - system}},
			Overhead: []profiling.Overhead{{Node: "n1", Collector: "io", JobNS: job, SpentNS: spent}}}
	}
	for name, c := range map[string]struct {
		kernel kb.Ref
		result profiling.Result
		want   *verdict.RunShare
	}{
		"of a profile":            {kb.Ref{Profile: "mitgcm", Version: 2}, result(1000, 250, 0), &verdict.RunShare{Run: 7, Kernel: "mitgcm@2", Share: 0.25}},
		"of the distribution's":   {kb.Ref{}, result(1000, 250, 0), &verdict.RunShare{Run: 7, Kernel: "stock", Share: 0.25}},
		"without the measuring":   {kb.Ref{}, result(1000, 375, 125), &verdict.RunShare{Run: 7, Kernel: "stock", Share: 0.25}},
		"measuring was all":       {kb.Ref{}, result(1000, 100, 125), nil},
		"of a kernel that counts": {kb.Ref{Profile: "mitgcm-instrumented", Version: 1}, result(1000, 250, 0), nil},
		"no time is known":        {kb.Ref{}, profiling.Result{}, nil},
		"more than there was":     {kb.Ref{}, result(1000, 2500, 0), nil},
	} {
		got := Run{ID: 7, Kernel: c.kernel, Result: c.result}.share()
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The command in a report makes the same kernel again: it names all that went in.
func TestCommandRepeatsTheBuild(t *testing.T) {
	for want, r := range map[string]Request{
		"kernelctl kernel build heat":                  {},
		"kernelctl kernel build heat --train":          {Options: pipeline.Options{Train: true}},
		"kernelctl kernel build heat --from-run 7":     {Runs: []uint64{7}, Options: pipeline.Options{Counters: []pipeline.Counters{{Run: 7}}}},
		"kernelctl kernel build heat --from-run 12,13": {Runs: []uint64{12, 13}, Options: pipeline.Options{Traces: []string{"a", "b"}}},
		"kernelctl kernel build heat --from-perf '/d/perf.data' --from-perf '/d/it'\\''s.data=3'": {
			Options: pipeline.Options{Samples: []pipeline.Samples{{Path: "/d/perf.data", Weight: 1}, {Path: "/d/it's.data", Weight: 3}}}},
		"kernelctl kernel build heat --nodes '/d/n1.json' --aliases '/d/modules.alias'": {
			Options: pipeline.Options{Nodes: []string{"/d/n1.json"}, Aliases: "/d/modules.alias"}},
	} {
		r.Options.Name = "heat"
		if got := r.command(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// What jobs cannot choose is not what they get today. The broker may have deleted the
// image of a retired version.
func TestCurrentKernelIsOneThatJobsGet(t *testing.T) {
	for name, v := range map[string]kb.ProfileVersion{
		"quarantined": {Quarantine: &kb.Quarantine{}}, "retired": {Retired: &kb.Retirement{}},
	} {
		v.Kernel.Version = 3
		profile := &kb.Profile{Name: "mitgcm", DefaultVersion: 3, Versions: []kb.ProfileVersion{v}}
		if dir, err := CurrentKernel(t.Context(), noImages{}, profile, t.TempDir()); dir != "" || err != nil {
			t.Errorf("%s: %q, %v", name, dir, err)
		}
	}
}

type noImages struct{ Broker }

func (noImages) Fetch(context.Context, string, uint64, string) error { return kb.ErrNotFound }

// A build takes hours. What others made the default meanwhile was not beaten by it.
func TestPublishOnlyOverWhatWasBeaten(t *testing.T) {
	of := func(digest string) *kb.Profile {
		v := kb.ProfileVersion{Kernel: kb.Kernel{Profile: "heat", Version: 1, ImageDigest: digest}}
		return &kb.Profile{Name: "heat", DefaultVersion: 1, Versions: []kb.ProfileVersion{v}}
	}
	for name, c := range map[string]struct {
		beaten string
		now    *kb.Profile
		want   bool
	}{
		"as it was": {"sha256:1", of("sha256:1"), true}, "stock as it was": {"", nil, true},
		"this very kernel":  {"sha256:1", of("sha256:9"), true},
		"another meanwhile": {"sha256:1", of("sha256:2"), false}, "one in place of stock": {"", of("sha256:2"), false},
	} {
		b := &catalogOf{profile: c.now}
		_, err := Publisher{Broker: b, Beaten: c.beaten}.Publish(t.Context(), pipeline.Candidate{Name: "heat", ImageDigest: "sha256:9"}, io.Discard)
		if c.want != (err == nil) || b.registered != c.want || !c.want && !errors.Is(err, kb.ErrFailedPrecondition) {
			t.Errorf("%s: registered %t, %v", name, b.registered, err)
		}
	}
}

// What jobs may not choose is not published, whatever it won.
func TestPublishOnlyWhatJobsMayChoose(t *testing.T) {
	quarantined := kb.ProfileVersion{Quarantine: &kb.Quarantine{Reason: "failed to boot 2 times"}}
	retired := kb.ProfileVersion{Retired: &kb.Retirement{Reason: "no longer used"}}
	for name, c := range map[string]struct {
		version   kb.ProfileVersion
		image     string
		arguments []string
		want      string // nothing: it is published
	}{
		"new, and the default is quarantined": {quarantined, "sha256:1", nil, ""},
		"quarantined":                         {quarantined, "sha256:9", nil, `"heat@3" is this one, and quarantined (failed to boot 2 times): find the cause, then kernelctl profile release heat@3`},
		"retired":                             {retired, "sha256:9", nil, `"heat@3" is this one, and retired (no longer used), which is final`},
		"quarantined with other arguments":    {quarantined, "sha256:9", []string{"quiet"}, ""},
	} {
		c.version.Kernel = kb.Kernel{Profile: "heat", Version: 3, ImageDigest: c.image, Arguments: c.arguments}
		b := &catalogOf{profile: &kb.Profile{Name: "heat", DefaultVersion: 3, Versions: []kb.ProfileVersion{c.version}}}
		_, err := Publisher{Broker: b}.Publish(t.Context(), pipeline.Candidate{Name: "heat", ImageDigest: "sha256:9"}, io.Discard)
		if b.registered != (c.want == "") || c.want == "" && err != nil ||
			c.want != "" && (!errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: registered %t, %v, want %q", name, b.registered, err, c.want)
		}
	}
}

type catalogOf struct {
	Broker
	profile    *kb.Profile
	registered bool
}

func (c *catalogOf) Profile(context.Context, string) (*kb.Profile, error) { return c.profile, nil }

func (c *catalogOf) Settings(*kb.Profile) (Settings, error) { return Settings{}, nil }

func (c *catalogOf) Register(context.Context, Registration) (kb.Ref, error) {
	c.registered = true
	return kb.Ref{}, nil
}
