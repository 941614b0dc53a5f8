// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// files of a page: fenced blocks that name one behind the language.
func exampleFiles(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```[a-z]+ (\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// tool is one that the example needs of the host.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("needed for the example: %v", err)
	}
	return path
}

// The example of docs/ops/kernels.md without building a kernel: its program compiles, its recipe and its workload load
// with the catalog, the guest has all that the program needs, and the workload completes its two runs.
func TestYourOwnProgram(t *testing.T) {
	cc, busybox := tool(t, "cc"), tool(t, "busybox")
	files := exampleFiles(t, "docs/ops/kernels.md")
	const program, load, recipe = "heat.c", "catalog/workloads/heat.yaml", "catalog/kernels/heat.yaml"
	if len(files) != 3 || files[program] == "" || files[load] == "" || files[recipe] == "" {
		t.Fatalf("the page has %d files", len(files))
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "catalog"), os.DirFS(filepath.Join(root(t), "catalog"))); err != nil {
		t.Fatal(err)
	}
	// Replaces /opt/heat/bin/heat.
	heat := filepath.Join(dir, "heat")
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "/opt/heat/bin/heat", heat)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(argv ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	run(cc, "-O2", "-Wall", "-Werror", "-o", heat, filepath.Join(dir, program))
	bench := filepath.Join(root(t), "tests/workloads/bench")
	run(cc, "-O2", "-o", filepath.Join(dir, "kbmark"), filepath.Join(bench, "kbmark.c"), filepath.Join(bench, "mark.c"))

	r, err := build.LoadRecipe(filepath.Join(dir, "catalog"), "heat")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadFragments(filepath.Join(dir, "catalog"), r.Fragments); err != nil {
		t.Error(err)
	}
	w, err := workload.Load(filepath.Join(dir, "catalog"), r.Workload)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := w.Root(t.Context(), workload.Places{Programs: dir, Cache: filepath.Join(dir, "cache")}, w.Train, "", workload.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.BuildInitrd(t.Context(), guest, filepath.Join(dir, "initrd")); err != nil {
		t.Error(err)
	}
	for _, p := range []workload.Parameters{w.Train, w.Test} {
		runHere(t, busybox, dir, w, p)
	}
}

// runHere does a workload's parts as the guest does, in folders of its own.
func runHere(t *testing.T, busybox, programs string, w workload.Workload, p workload.Parameters) {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{w.Setup, w.Run, w.Check} {
		script := strings.NewReplacer("/out/", dir+"/", "/tmp/", dir+"/").Replace(strings.ReplaceAll(part, programs, "$PROGRAMS"))
		cmd := exec.CommandContext(t.Context(), busybox, "sh", "-ec", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PROGRAMS="+programs, "PATH="+programs+":"+os.Getenv("PATH"),
			"KB_SEED="+fmt.Sprint(p.Seed), "KB_SIZE="+fmt.Sprint(p.Size), "KB_CPUS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", part, err, out)
		}
	}
	regions, err := os.ReadFile(filepath.Join(dir, "regions"))
	if want := "1 steps " + fmt.Sprint(p.Size) + "\n"; err != nil || string(regions) != want {
		t.Errorf("regions %q, %v; want %q", regions, err, want)
	}
}
