// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/perftest"
)

// thunkSource is a kernel with an indirect call under mitigations: by way of a thunk.
const thunkSource = `
typedef int (*step)(int);
__attribute__((noinline)) int counted(int n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline)) int never(int n) { __asm__ volatile(""); return n + 2; }
step volatile next = never;
int start(int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++)
		sum += next(i);
	return sum;
}
__asm__(".section .text.thunks, \"ax\"\n"
	".globl __indirect_thunk_start, __indirect_thunk_end, __x86_indirect_thunk_r11\n"
	"__indirect_thunk_start:\n"
	"__x86_indirect_thunk_r11:\n"
	"	call 2f\n"
	"1:	pause\n"
	"	lfence\n"
	"	jmp 1b\n"
	"2:	mov %r11, (%rsp)\n"
	"	ret\n"
	"__indirect_thunk_end:\n");
`

// thunkKernel has the addresses of one round of start's loop.
type thunkKernel struct {
	source, vmlinux                                                 string
	site, thunk, inner, leave, counted, returns, after, again, head uint64
}

func thunkFlags() []string {
	return append(Sampling{}.MarkFlags(), "-O2", "-fno-unroll-loops", "-mcmodel=kernel", "-ffreestanding", "-fno-pic",
		"-mretpoline", "-mretpoline-external-thunk", "-c")
}

func buildThunkKernel(t *testing.T) thunkKernel {
	t.Helper()
	dir := t.TempDir()
	k := thunkKernel{source: filepath.Join(dir, "kernel.c"), vmlinux: filepath.Join(dir, "vmlinux")}
	object := filepath.Join(dir, "kernel.o")
	if err := os.WriteFile(k.source, []byte(thunkSource), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, compiler, append(thunkFlags(), "-o", object, k.source)...)
	mustRun(t, "ld.lld-19", "-Ttext=0xffffffff81000000", "--defsym=_text=0xffffffff81000000", "-e", "start", "-o", k.vmlinux, object)
	text := mustRun(t, "llvm-objdump-19", "-d", "--no-show-raw-insn", k.vmlinux)
	find := func(pattern string, addresses ...*uint64) {
		found := regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(text)
		if len(found) != len(addresses)+1 {
			t.Fatalf("no %s in\n%s", pattern, text)
		}
		for i, one := range addresses {
			*one = address(t, found[i+1])
		}
	}
	find(`^([0-9a-f]+) <counted>:`, &k.counted)
	find(`(?s)<counted>:.*?([0-9a-f]+):\s+retq`, &k.returns)
	find(`^([0-9a-f]+):\s+callq\s+0x([0-9a-f]+) <__x86_indirect_thunk_r11>\n([0-9a-f]+):`, &k.site, &k.thunk, &k.after)
	find(`^([0-9a-f]+):\s+jne\s+0x([0-9a-f]+) <start`, &k.again, &k.head)
	find(`^([0-9a-f]+):\s+movq\s+%r11, \(%rsp\)\n([0-9a-f]+):`, &k.inner, &k.leave)
	return k
}

// round is a round of the loop, the newest branch first, as a processor records it.
func (k thunkKernel) round(moved uint64) [][2]uint64 {
	round := [][2]uint64{{k.again, k.head}, {k.returns, k.after}, {k.leave, k.counted}, {k.thunk, k.inner}, {k.site, k.thunk}, {k.again, k.head}}
	for i := range round {
		round[i][0] += moved
		round[i][1] += moved
	}
	return round
}

func TestThunksOf(t *testing.T) {
	k, joined := buildThunkKernel(t), Sampling{CallTargets: true}
	thunks, err := joined.Thunks(k.vmlinux)
	if err != nil || !thunks.has(k.thunk) || !thunks.has(k.leave) || thunks.has(k.site) || thunks.has(thunks.End) {
		t.Errorf("%+v, %v", thunks, err)
	}
	if thunks, err = joined.Thunks(buildKernel(t).vmlinux); err != nil || thunks != (Thunks{}) || thunks.has(0) {
		t.Errorf("a kernel without any: %+v, %v", thunks, err)
	}
	if _, err = joined.Thunks(k.source); err == nil {
		t.Error("a text has symbols")
	}
}

// What perf recorded of an indirect call makes the compiler call its target directly, wherever KASLR put the kernel.
func TestCallTargetsArePromoted(t *testing.T) {
	k := buildThunkKernel(t)
	var profiles []string
	for _, moved := range []uint64{0, 0x1c000000} {
		data := perftest.Data(t, perftest.Recording{BuildID: strings.Repeat("ab", 20), Stack: k.round(moved), Samples: 100, Moved: moved})
		profile := filepath.Join(t.TempDir(), ProfileFile)
		if err := tools.FromPerf(t.Context(), Sampling{CallTargets: true}, k.vmlinux, data, profile); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), " counted:100") || strings.Contains(string(text), "thunk") {
			t.Fatalf("the profile is\n%s", text)
		}
		profiles = append(profiles, string(text))
	}
	if profiles[0] != profiles[1] {
		t.Errorf("where the kernel lay is in its profile:\n%s\n%s", profiles[0], profiles[1])
	}
	profile, object := filepath.Join(t.TempDir(), ProfileFile), filepath.Join(t.TempDir(), "kernel.o")
	if err := os.WriteFile(profile, []byte(profiles[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, compiler, slices.Concat(thunkFlags(), Sampling{}.UseFlags(profile), []string{"-o", object, k.source})...)
	code := mustRun(t, "llvm-objdump-19", "-d", "-r", "--disassemble-symbols=start", object)
	if !strings.Contains(code, "R_X86_64_PLT32\tcounted") || !strings.Contains(code, "thunk") {
		t.Errorf("no call of counted beside the indirect one in\n%s", code)
	}
}

func TestFlow(t *testing.T) {
	const kernel = uint64(0xffffffff81000000)
	thunks := Thunks{kernel + 0x9000, kernel + 0xa000}
	at := func(from, to uint64) span { return span{kernel + from, kernel + to} }
	for name, c := range map[string]struct {
		stack            []span // the newest first
		ranges, branches []span
	}{
		"two branches":            {[]span{at(0x30, 0x10), at(0x20, 0x28)}, []span{at(0x28, 0x30)}, []span{at(0x20, 0x28), at(0x30, 0x10)}},
		"a call through a thunk":  {[]span{at(0x9010, 0x200), at(0x9000, 0x9010), at(0x20, 0x9000)}, nil, []span{at(0x20, 0x200)}},
		"a return through one":    {[]span{at(0x9ff0, 0x24), at(0x210, 0x9ff0), at(0x20, 0x200)}, []span{at(0x200, 0x210)}, []span{at(0x20, 0x200), at(0x210, 0x24)}},
		"the record begins in it": {[]span{at(0x300, 0x310), at(0x9010, 0x200)}, []span{at(0x200, 0x300)}, []span{at(0x300, 0x310)}},
		"a lost branch":           {[]span{at(0x10, 0x20), at(0x300, 0x400)}, nil, []span{at(0x300, 0x400), at(0x10, 0x20)}},
		"more than one lost":      {[]span{at(0x100010, 0x20), at(0x30, 0x10)}, nil, []span{at(0x30, 0x10), at(0x100010, 0x20)}},
		"a system call":           {[]span{{kernel + 0x40, 0x400100}, {0x400000, kernel}, {0x400800, 0x400000}}, []span{at(0, 0x40)}, nil},
	} {
		f := flow{map[span]uint64{}, map[span]uint64{}}
		f.add(c.stack, thunks)
		for what, pair := range map[string][2]any{"ranges": {f.ranges, once(c.ranges)}, "branches": {f.branches, once(c.branches)}} {
			if got, want := pair[0].(map[span]uint64), pair[1].(map[span]uint64); !equal(got, want) {
				t.Errorf("%s: %s %x, want %x", name, what, got, want)
			}
		}
	}
}

func once(spans []span) map[span]uint64 {
	all := map[span]uint64{}
	for _, s := range spans {
		all[s]++
	}
	return all
}

func equal(a, b map[span]uint64) bool {
	for s, n := range a {
		if b[s] != n {
			return false
		}
	}
	return len(a) == len(b)
}

func TestBranchesOf(t *testing.T) {
	const lay = "swapper 0 PERF_RECORD_MMAP -1/0: [0xffffffff9d000000(0x1000000) @ 0xffffffff9d000000]: x [kernel.kallsyms]_text\n"
	for said, c := range map[string]struct {
		ranges int
		words  string
	}{
		" 0xffffffff81000010/0xffffffff81000000/P/-/-/0/COND/-  0xffffffff81000010/0xffffffff81000000/-/-/-/0 \n": {1, ""},
		lay + " 0xffffffff9d000010/0xffffffff9d000000/P/-/-/0  0x7fff00000010/0xffffffff9d000000/-/-/-/0 \n":      {1, ""},
		"\n": {0, ""},
		"PERF_RECORD_MMAP2 12/12: [0x400000(0x1000) @ 0 08:01 1 1]: r-xp /bin/true\n": {0, ""},
		"0xffffffff81000010\n":                     {0, "not FROM/TO/"},
		"0xz/0x1/-\n":                              {0, "0xz"},
		strings.Replace(lay, "_text", "_start", 1): {0, "_start"},
	} {
		f, err := branchesOf(strings.NewReader(said), map[string]uint64{symbolText: 0xffffffff81000000}, Thunks{})
		if c.words != "" {
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%q: %v", said, err)
			}
			continue
		}
		if err != nil || len(f.ranges) != c.ranges || c.ranges > 0 && f.ranges[span{0xffffffff81000000, 0xffffffff81000010}] != 1 {
			t.Errorf("%q: %x, %v", said, f, err)
		}
	}
}
