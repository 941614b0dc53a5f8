// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/perftest"
)

var tools = Tools{Compiler: compiler}

// sampleOf is the total that a profile has for a function, 0 for none.
func sampleOf(t *testing.T, profile, function string) int {
	t.Helper()
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + function + `:(\d+):\d+$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	total, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return total
}

func TestFromBranches(t *testing.T) {
	k := buildKernel(t)
	profile := filepath.Join(t.TempDir(), ProfileFile)
	if err := tools.FromBranches(t.Context(), k.vmlinux, k.branches(t, 0, 1000), profile); err != nil {
		t.Fatal(err)
	}
	if sampleOf(t, profile, "counted") == 0 || sampleOf(t, profile, "never") != 0 {
		text, _ := os.ReadFile(profile)
		t.Errorf("the profile is\n%s", text)
	}
	kept, again := filepath.Join(t.TempDir(), "vmlinux"), filepath.Join(t.TempDir(), ProfileFile)
	if err := errors.Join(tools.KeepLines(t.Context(), k.vmlinux, kept), tools.FromBranches(t.Context(), kept, k.branches(t, 0, 1000), again)); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(profile)
	if second, _ := os.ReadFile(again); string(second) != string(first) {
		t.Errorf("with what is kept of the kernel the profile is\n%s", second)
	}
	if n, err := Functions(profile); n != 2 || err != nil {
		t.Errorf("%d functions, %v", n, err)
	}
	source := filepath.Join(filepath.Dir(k.vmlinux), "kernel.c")
	object := filepath.Join(t.TempDir(), "kernel.o")
	flags := append(append(Sampling{}.UseFlags(profile), Sampling{}.MarkFlags()...), "-Werror", "-O2", "-ffunction-sections", "-c", "-o", object, source)
	mustRun(t, compiler, flags...)
	sections := mustRun(t, "llvm-readelf-19", "--sections", "--wide", object)
	if !strings.Contains(sections, ".text.unlikely.never") || strings.Contains(sections, ".text.unlikely.counted") {
		t.Errorf("what never ran is not set apart:\n%s", sections)
	}
}

func TestFromPerf(t *testing.T) {
	k := buildKernel(t)
	const id = "0123456789abcdef0123456789abcdef01234567"
	data := perftest.Data(t, perftest.Recording{BuildID: id, From: k.loop.from, To: k.loop.to, Samples: 100})
	if got, err := KernelOf(t.Context(), data); got != id || err != nil {
		t.Errorf("recorded on %q, %v", got, err)
	}
	profile := filepath.Join(t.TempDir(), ProfileFile)
	if err := tools.FromPerf(t.Context(), Sampling{}, k.vmlinux, data, profile); err != nil {
		t.Fatal(err)
	}
	if sampleOf(t, profile, "counted") == 0 {
		t.Error("the loop has no sample")
	}
}

// Data that cannot become a profile are told from those that can, with what to record again.
func TestCheckPerf(t *testing.T) {
	whole := perftest.Recording{BuildID: "0123456789abcdef0123456789abcdef01234567", From: 0xffffffff81000010, To: 0xffffffff81000000, Samples: 3}
	unnamed, branchless := whole, whole
	unnamed.BuildID, branchless.Branchless = "", true
	for _, c := range []struct {
		recording perftest.Recording
		want      error
		words     string
	}{
		{whole, nil, ""},
		{unnamed, ErrUnnamed, "--buildid-mmap"},
		{branchless, ErrBranchless, "record again with -b"},
	} {
		err := CheckPerf(t.Context(), perftest.Data(t, c.recording))
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
}

// A guest's kernel and a file of such a name are not the kernel that recorded.
func TestKernelIn(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	for name, want := range map[string]string{
		"[kernel.kallsyms]":            id,
		"[kernel.kallsyms]_text":       id,
		"[kernel.kallsyms]_stext":      id,
		"[kernel.kallsyms]_text/other": "",
		"[kernel.kallsyms].old":        "",
		"[guest.kernel.kallsyms]":      "",
		"[guest.kernel.kallsyms.42]":   "",
		"/tmp/kernel.kallsyms":         "",
	} {
		if got := kernelIn("ffff /bin/true\n" + id + " " + name + "\n"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A tool that complains of each sample fills no memory, and its last words are told.
func TestOutputIsBounded(t *testing.T) {
	kept := end{most: 10}
	for i := range 1000 {
		if n, err := kept.Write([]byte(strings.Repeat("x", i%30) + "0123456789")); n != i%30+10 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if string(kept.last()) != "0123456789" || cap(kept.text) > 100 {
			t.Fatalf("after %d: %q in %d bytes", i, kept.last(), cap(kept.text))
		}
	}
	_, err := output(t.Context(), "sh", "-c", "yes complaint | head -c 1000000 >&2; echo the end >&2; exit 1")
	if err == nil || !strings.HasSuffix(err.Error(), "the end") || len(err.Error()) > 600 {
		t.Errorf("%v", err)
	}
}

func TestMerge(t *testing.T) {
	k := buildKernel(t)
	dir := t.TempDir()
	one, sum := filepath.Join(dir, "one"), filepath.Join(dir, "sum")
	if err := tools.FromBranches(t.Context(), k.vmlinux, k.branches(t, 0, 10), one); err != nil {
		t.Fatal(err)
	}
	if err := tools.Merge(t.Context(), []Weighted{{one, 2}, {one, 5}}, sum); err != nil {
		t.Fatal(err)
	}
	if got, of := sampleOf(t, sum, "counted"), sampleOf(t, one, "counted"); got != 7*of {
		t.Errorf("%d after merging %d twice and five times", got, of)
	}
	again := filepath.Join(dir, "again")
	if err := tools.Merge(t.Context(), []Weighted{{one, 5}, {one, 2}}, again); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(sum)
	if second, _ := os.ReadFile(again); string(first) != string(second) || len(first) == 0 {
		t.Errorf("in another order the sum is\n%s\nand not\n%s", second, first)
	}
}

// TestWrongInput is what must not become a profile.
func TestWrongInput(t *testing.T) {
	k := buildKernel(t)
	profile := filepath.Join(t.TempDir(), ProfileFile)
	elsewhere := k.branches(t, 0x100000, 1000)
	if err := tools.FromBranches(t.Context(), k.vmlinux, elsewhere, profile); err == nil {
		t.Error("branches of another kernel make a profile")
	}
	none := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(none, []byte("0\n0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tools.FromBranches(t.Context(), k.vmlinux, none, profile); !errors.Is(err, ErrEmpty) {
		t.Errorf("no branches: %v", err)
	}
	if _, err := KernelOf(t.Context(), none); err == nil {
		t.Error("a text is perf's data")
	}
	if err := tools.Merge(t.Context(), []Weighted{{filepath.Join(t.TempDir(), "absent"), 1}}, profile); err == nil {
		t.Error("a file that is not there is merged")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tools.FromBranches(ctx, k.vmlinux, none, profile); err == nil {
		t.Error("a cancelled build goes on")
	}
}

// TestLinesStayOut: what a kernel loads is the same with lines and without.
func TestLinesStayOut(t *testing.T) {
	k := buildKernel(t)
	file, err := elf.Open(k.vmlinux)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, section := range file.Sections {
		if strings.HasPrefix(section.Name, ".debug") && section.Flags&elf.SHF_ALLOC != 0 {
			t.Errorf("%s is loaded", section.Name)
		}
	}
	if file.Section(".debug_line") == nil {
		t.Error("there are no lines")
	}
}
