// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A tool that somebody installs on the builder's host must not change kernels
// that have no use for it: pahole's version stands in each configuration.
func TestPahole(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, version := range []string{"v1.24", "v1.25"} {
		program := filepath.Join(bin, "pahole")
		write(t, program, "#!/bin/sh\necho "+version+"\n")
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
		f := newFakeFactory(t)
		without := f.plan()
		if inputs, err := (ConfigureInput{Variant: Plain}).Inputs(without); err != nil || inputs["pahole"] != "" || !slices.Contains(without.tools(Plain), "PAHOLE=not-used") {
			t.Errorf("without BTF: %v, %v, %v", inputs, without.tools(Plain), err)
		}
		f.fragment("btf", "# For BPF.\nCONFIG_DEBUG_INFO_BTF=y\n")
		f.recipe("base", "btf")
		with := f.plan()
		if inputs, err := (ConfigureInput{Variant: Plain}).Inputs(with); err != nil || inputs["pahole"] != version || slices.Contains(with.tools(Plain), "PAHOLE=not-used") {
			t.Errorf("with BTF: %v, %v, %v", inputs, with.tools(Plain), err)
		}
		if with.Key == without.Key {
			t.Error("the key is the same with and without")
		}
	}
}

// The build id is made of debug information, too: no folder of this machine is in
// it, and its objects are nobody else's.
func TestDebugInformation(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	write(t, filepath.Join(bin, "pahole"), "#!/bin/sh\necho v1.24\n")
	if err := os.Chmod(filepath.Join(bin, "pahole"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := newFakeFactory(t)
	f.fragment("btf", "# For BPF.\nCONFIG_DEBUG_INFO_BTF=y\n")
	b := f.builder()
	folders := map[string]bool{}
	for _, fragments := range [][]string{{"base"}, {"base", "btf"}} {
		f.recipe(fragments...)
		if _, err := f.build(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		plan := f.plan()
		objects, err := b.objectFolder(plan, Plain)
		if err != nil {
			t.Fatal(err)
		}
		folders[objects] = true
		want := ""
		if plan.Pahole != "" {
			want = "-fdebug-prefix-map=" + filepath.Dir(objects) + "=source -fdebug-prefix-map=" + objects + "=objects"
		}
		if got := f.flags(); got != want {
			t.Errorf("fragments %v: flags %q, want %q", fragments, got, want)
		}
	}
	if len(folders) != 2 {
		t.Errorf("with debug information and without, objects are in the same folder: %v", folders)
	}
}

// pahole's threads leave the order of types to chance.
func TestTypesAreInOrder(t *testing.T) {
	tree := t.TempDir()
	makefile := "srctree := .\nPAHOLE := pahole\nPAHOLE_FLAGS = none\nall:\n\t@echo $(PAHOLE_FLAGS)\n"
	write(t, filepath.Join(tree, "Makefile"), makefile)
	flags := func(pahole string) string {
		t.Helper()
		said, err := output(t.Context(), "make", append([]string{"-s", "-C", tree}, site{plan: Plan{Pahole: pahole}, tree: tree}.inOrder()...)...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	if got := flags("v1.24"); got != "none" {
		t.Errorf("a kernel that has no script of flags got %q", got)
	}
	script := filepath.Join(tree, "scripts/pahole-flags.sh")
	write(t, script, "#!/bin/sh\necho --for $PAHOLE -j --lang_exclude=rust\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := flags("v1.24"); got != "--for pahole -j1 --lang_exclude=rust" {
		t.Errorf("flags %q", got)
	}
	if got := flags(""); got != "none" {
		t.Errorf("a kernel without BTF got %q", got)
	}
}
