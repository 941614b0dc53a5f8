// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// In the lab's shell kernelctl finds its build requirements below its own prefix.
func TestBuildersFindRequirements(t *testing.T) {
	repo := t.TempDir()
	put := func(path string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(repo, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range frontFiles {
		put("build/bin/"+f.name, 0o755)
	}
	put("catalog/kernels/mitgcm.yaml", 0o644)
	put("build/workloads/replay", 0o755)
	put("build/measure/kbcount.so", 0o755)
	l := &Lab{layout: layout{filepath.Join(repo, "build/lab/default")}, state: state{Options: Options{Repo: repo, Product: filepath.Join(repo, "build")}}}
	for range 2 { // a lab is prepared at each "up"
		if err := l.installProduct(); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"kernelctl", "kernel-factory"} {
		to, err := os.Readlink(l.layout.path("root/usr/local/bin", program))
		if want := "/run/lab/product/usr/bin/" + program; err != nil || to != want {
			t.Errorf("%s leads to %q, %v; want %q", program, to, err, want)
		}
	}
	// /run/lab is the lab's folder.
	t.Chdir(t.TempDir())
	var o pipeline.Options
	o.Locate(l.layout.path("product/usr/bin/kernelctl"), t.Logf)
	for _, path := range []string{filepath.Join(o.Catalog, "kernels/mitgcm.yaml"), filepath.Join(o.Programs, "replay"), o.Plugin} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(o.Programs, "replay")); err == nil && info.Mode()&0o111 == 0 {
		t.Error("a workload's program cannot be run")
	}
}

// A lab comes up without the requirements of kernel builds.
func TestLabWithoutBuildRequirements(t *testing.T) {
	repo := t.TempDir()
	l := &Lab{layout: layout{filepath.Join(repo, "lab")}, state: state{Options: Options{Repo: repo, Product: filepath.Join(repo, "build")}}}
	if err := l.installFactory(); err != nil {
		t.Error(err)
	}
}
