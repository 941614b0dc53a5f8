// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// TestWholeWay follows README.md's "From a job to its kernel" line by line: a job on the instrumented kernel, a
// kernel built from its counts and published with its report, and a job on that. Kernels are compiled the first time and
// cached.
func TestWholeWay(t *testing.T) {
	p := &profiled{cluster: start(t, func(o *lab.Options) {
		o.Slurm.Cgroup = true
		o.ReadyTimeout = profilingLimit
		o.Slurm.Set["MessageTimeout"] = "100"
		// Emulated nodes on a loaded host need time to pack the counters.
		o.Agent = map[string]any{"profiling": map[string]any{"settle": "1m"}}
	})}
	w := wholeWay{profiled: p}
	w.prepare()
	for _, line := range readmeLines(t) {
		w.line(line)
	}
	w.check()
}

// readmeLines are the commands without the comments behind them.
func readmeLines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)### From a job to its kernel\n.*?```\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("README.md has no commands under \"From a job to its kernel\"")
	}
	var lines []string
	for line := range strings.Lines(string(block[1])) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

type wholeWay struct {
	*profiled
	build  []string // flags of a build that has its own cache and catalog
	jobs   []string
	built  string // output of the build from the run
	listed string // and the list of runs
}

// replayScript prints the kernel's build id, read from the kernel, and replays the ocean model.
const replayScript = `#!/bin/bash
srun --ntasks-per-node=1 bash -c 'd=/tmp/replay.$SLURM_JOB_ID; mkdir $d
od -An -v -tx1 /sys/kernel/notes | tr -d " \n" | grep -o "040000001400000003000000474e5500.\{40\}" | cut -c33-72
mitgcm-io --dir $d >/dev/null; e=$?; rm -r $d; exit $e'
`

func (w *wholeWay) prepare() {
	w.t.Helper()
	w.file("alice", "replay.sh", replayScript)
	cache, err := build.DefaultCacheDir()
	if err != nil {
		w.t.Fatal(err)
	}
	// The compiler sees real paths, and counting objects hold theirs.
	if cache, err = filepath.EvalSymlinks(cache); err != nil {
		w.t.Fatal(err)
	}
	own := filepath.Join(cache, "suites", "whole-way")
	if err := os.MkdirAll(own, 0o755); err != nil {
		w.t.Fatal(err)
	}
	for _, shared := range []string{"source", "ccache", "distribution"} {
		err := os.Symlink(filepath.Join(cache, shared), filepath.Join(own, shared))
		if err != nil && !errors.Is(err, os.ErrExist) {
			w.t.Fatal(err)
		}
	}
	build, err := filepath.Abs("../../build")
	if err != nil {
		w.t.Fatal(err)
	}
	catalog := filepath.Join(w.Dir(), "whole-way")
	w.catalog(catalog)
	holder, err := os.ReadFile(filepath.Join(w.Dir(), "run", "holder.pid"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.build = []string{"--broker", "unix:///proc/" + strings.TrimSpace(string(holder)) + "/root/run/kernel-broker/broker.sock",
		"--catalog", catalog, "--cache", own, "--programs", filepath.Join(build, "workloads"), "--plugin", filepath.Join(build, "measure/kbcount.so")}
}

// locally builds on this machine, where the compiler and its packages are: the lab's
// front-end has a /var of its own.
func (w *wholeWay) locally(argv []string) (lab.Result, error) {
	program := filepath.Join(w.Options().Product, "bin", argv[0])
	cmd := exec.CommandContext(w.ctx, program, append(argv[1:], w.build...)...)
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return lab.Result{Stdout: out.String(), Stderr: complaints.String(), Exit: cmd.ProcessState.ExitCode()}, err
}

// catalog is the project's with a recipe like mitgcm's. It has no training data, and no slimming, which needs another
// kernel and many boots and has its own tests.
func (w *wholeWay) catalog(dir string) {
	w.t.Helper()
	if err := os.CopyFS(dir, os.DirFS("../../catalog")); err != nil {
		w.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "kernels", "mitgcm.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	var recipe strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "slimming:") || strings.HasPrefix(line, "training:") {
			continue
		}
		recipe.WriteString(strings.NewReplacer("name: mitgcm\n", "name: ocean\n", "localversion: -mitgcm\n", "localversion: -ocean\n").Replace(line))
	}
	if err := os.WriteFile(filepath.Join(dir, "kernels", "ocean.yaml"), []byte(recipe.String()), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// line runs one, as an administrator or as a user.
func (w *wholeWay) line(line string) {
	w.t.Helper()
	argv, user := strings.Fields(line), "root"
	run := func() (lab.Result, error) { return w.Exec(w.ctx, user, argv...) } // however long it takes
	switch {
	case argv[0] == "sbatch":
		user, argv = "alice", append([]string{"sbatch", "--parsable", "--output=%j.out"}, argv[1:]...)
	case strings.HasPrefix(line, "kernelctl kernel build"):
		run = func() (lab.Result, error) { return w.locally(argv) }
	}
	w.t.Logf("%s: %s", user, strings.Join(argv, " "))
	r, err := run()
	if err != nil || r.Exit != 0 {
		w.t.Fatalf("%s: exit %d %v\n%s%s", line, r.Exit, err, r.Stdout, r.Stderr)
	}
	w.t.Log(strings.TrimSpace(r.Stdout))
	switch {
	case user == "alice":
		id, _, _ := strings.Cut(strings.TrimSpace(r.Stdout), ";")
		w.jobs = append(w.jobs, id)
		if strings.Contains(line, "pgo ") && strings.Contains(line, "--kernel-profiling") {
			w.counted(id)
		}
	case strings.Contains(line, "--from-run"):
		w.built = r.Stdout
	case strings.HasPrefix(line, "kernelctl run list"):
		w.listed = r.Stdout
	}
}

// counted: each node's counters are with the broker, whole.
func (w *wholeWay) counted(job string) {
	w.t.Helper()
	r := w.over(job, "COMPLETED", runComplete)
	if r.Profile != "ocean-instrumented" || len(r.Nodes) != 2 {
		w.t.Errorf("run %+v", r)
	}
	for _, n := range r.Nodes {
		if n.State != nodeDelivered || len(n.Files) != 2 || n.Files[1].Name != "gcov-"+n.Name+".tar.gz" {
			w.t.Errorf("node %+v", n)
		}
	}
}

// check examines the results.
func (w *wholeWay) check() {
	w.t.Helper()
	if len(w.jobs) != 2 || !strings.Contains(w.listed, "pgo") {
		w.t.Fatalf("jobs %v, runs:\n%s", w.jobs, w.listed)
	}
	if !strings.Contains(w.built, "ocean@1") || !strings.Contains(w.built, "benefit") {
		w.t.Errorf("the build from the run ended in\n%s", w.built)
	}
	if show := w.must("root", "kernelctl", "kernel", "show", "ocean@1"); !strings.Contains(show, "benefit: ") {
		w.t.Errorf("the broker's record of the kernel has no verdict:\n%s", show)
	}
	w.waitJob(w.jobs[1], "COMPLETED")
	for i, profile := range []string{"ocean-instrumented", "ocean"} {
		k := w.kernelOf(profile)
		said := strings.Fields(w.must("alice", "cat", w.jobs[i]+".out"))
		if len(said) != 2 || said[0] != k.buildID || said[1] != k.buildID {
			w.t.Errorf("job %s ran on %q, %s is %s", w.jobs[i], said, profile, k.buildID)
		}
	}
	w.settled()
}
