// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// compiler is the one of the catalog's recipes.
const compiler = "clang-19"

// kernelSource is a kernel of two functions, where a linker script would put it.
const kernelSource = `
__attribute__((noinline)) int counted(int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++)
		__asm__ volatile("" : "+r"(sum));
	return sum;
}
__attribute__((noinline)) int never(int n) { __asm__ volatile(""); return n + 2; }
int start(int n) { return n > 7 ? never(n) : counted(n); }
`

type branch struct{ from, to uint64 }

// kernel is one that was compiled with lines, and two of its branches.
type kernel struct {
	vmlinux    string
	loop, call branch
}

func buildKernel(t *testing.T) kernel {
	t.Helper()
	dir := t.TempDir()
	source, object := filepath.Join(dir, "kernel.c"), filepath.Join(dir, "kernel.o")
	if err := os.WriteFile(source, []byte(kernelSource), 0o600); err != nil {
		t.Fatal(err)
	}
	k := kernel{vmlinux: filepath.Join(dir, "vmlinux")}
	flags := append(Sampling{}.MarkFlags(), "-O2", "-fno-unroll-loops", "-mcmodel=kernel", "-ffreestanding", "-fno-pic", "-c", "-o", object, source)
	mustRun(t, compiler, flags...)
	mustRun(t, "ld.lld-19", "-Ttext=0xffffffff81000000", "--defsym=_text=0xffffffff81000000", "-e", "start", "--build-id=sha1", "-o", k.vmlinux, object)
	text := mustRun(t, "llvm-objdump-19", "-d", "--no-show-raw-insn", k.vmlinux)
	for _, found := range regexp.MustCompile(`(?m)^([0-9a-f]+):\s+j\w+\s+0x([0-9a-f]+) <counted(\+0x\w+)?>`).FindAllStringSubmatch(text, -1) {
		b := branch{address(t, found[1]), address(t, found[2])}
		switch {
		case found[3] == "":
			k.call = b
		case b.to < b.from:
			k.loop = b
		}
	}
	if k.loop.to == 0 || k.call.to == 0 {
		t.Fatalf("no loop and no call in\n%s", text)
	}
	return k
}

func address(t *testing.T, text string) uint64 {
	t.Helper()
	value, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := output(context.Background(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// branches is what the emulator's plugin writes of calls of ten rounds each, with
// all addresses off by the same.
func (k kernel) branches(t *testing.T, off uint64, calls int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "branches")
	text := fmt.Sprintf("2\n%x-%x:%d\n%x-%x:%d\n2\n%x->%x:%d\n%x->%x:%d\n",
		k.call.to+off, k.loop.from+off, calls, k.loop.to+off, k.loop.from+off, 9*calls,
		k.call.from+off, k.call.to+off, calls, k.loop.from+off, k.loop.to+off, 9*calls)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
