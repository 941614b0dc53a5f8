// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"slices"
	"testing"
)

func TestLinkFlags(t *testing.T) {
	cold := []string{"-mllvm", "-inline-cold-callsite-threshold=225", "-mllvm", "-inlinecold-threshold=225", "-mllvm", "-pgso=0"}
	usual := append([]string{"-mllvm", "-import-hot-multiplier=200"}, cold...)
	for name, c := range map[string]struct {
		sampling Sampling
		want     []string
	}{
		"all":             {Sampling{CallTargets: true, AtLink: true}, append([]string{"--lto-sample-profile=P"}, usual...)},
		"not at the link": {Sampling{}, usual},
		"others": {Sampling{LLVM: map[string]int{"import-hot-multiplier": 10, "a": 1, "pgso": 1}}, []string{
			"-mllvm", "-a=1", "-mllvm", "-import-hot-multiplier=10", "-mllvm", "-inline-cold-callsite-threshold=225", "-mllvm", "-inlinecold-threshold=225", "-mllvm", "-pgso=1",
		}},
		"a higher level": {Sampling{AtLink: true, Level: "O3"}, append([]string{"--lto-sample-profile=P", "--lto-O3"}, usual...)},
	} {
		if got := c.sampling.LinkFlags("P"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	use := Sampling{Level: "O3", LLVM: map[string]int{"a": 1}}.UseFlags("P")
	if want := []string{"-fprofile-sample-use=P", "-fprofile-sample-accurate", "-O3", "-mllvm", "-a=1"}; !slices.Equal(use, append(want, cold...)) {
		t.Errorf("the compiler's are %q", use)
	}
	if lines, probes := (Sampling{}).MarkFlags(), (Sampling{Probes: true}).MarkFlags(); len(probes) != len(lines)+2 || slices.Contains(lines, "-fpseudo-probe-for-profiling") {
		t.Errorf("%q and %q", lines, probes)
	}
}

// The binary form is of the same profile, and the same each time.
func TestBinary(t *testing.T) {
	k := buildKernel(t)
	dir := t.TempDir()
	text, one, two, back := dir+"/text", dir+"/one", dir+"/two", dir+"/back"
	if err := tools.FromBranches(t.Context(), k.vmlinux, k.branches(t, 0, 1000), text); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{one, two} {
		if err := tools.Binary(t.Context(), text, path); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "cmp", one, two)
	mustRun(t, "llvm-profdata-19", "merge", "--sample", "--text", "--output="+back, one)
	mustRun(t, "cmp", text, back)
	if err := tools.Binary(t.Context(), dir+"/none", one); err == nil {
		t.Error("a file that is not there has a binary form")
	}
}
