package slim

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const keptCommand = `cmd_vmlinux := sh /src/scripts/link-vmlinux.sh "ld" "-m elf_x86_64 -z noexecstack" "--build-id=sha1 --orphan-handling=warn";  true

source_vmlinux := /src/scripts/link-vmlinux.sh
`

func TestLinkFlags(t *testing.T) {
	flags, err := linkFlags(keptCommand)
	if got := strings.Join(flags, " "); err != nil || got != "-m elf_x86_64 -z noexecstack --build-id=sha1 --orphan-handling=warn" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := linkFlags("cmd_vmlinux := ld -o vmlinux a.o\n"); err == nil {
		t.Error("flags of a command that is not known")
	}
}

// linkedFolder is an object folder like that of a kernel, with two objects
// that each have a local function f.
func linkedFolder(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"as", "ld", "ar", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here, and a link map is what binutils write", tool)
		}
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, arguments ...string) {
		if err := command(context.Background(), dir, name, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	write("a/x.s", "f: nop\nret\n.globl g\ng: call f\ncall h\nret\n")
	write("b/x.s", "f: ret\n.globl h\nh: call f\nnop\nret\n")
	write("lib/lib.a", "!<thin>\n")
	write("arch/x86/kernel/vmlinux.lds", "SECTIONS { . = 0xffffffff81000000; .text : { *(.text) } }")
	write(".vmlinux.cmd", strings.ReplaceAll(keptCommand, " --orphan-handling=warn", ""))
	for _, name := range []string{"a/x", "b/x"} {
		run("as", "-o", name+".o", name+".s")
	}
	run("ar", "cDPrST", "vmlinux.a", "a/x.o", "b/x.o")
	run("ld", "-m", "elf_x86_64", "--build-id=sha1", "--script=arch/x86/kernel/vmlinux.lds", "-o", "vmlinux",
		"--whole-archive", "vmlinux.a")
	return dir
}

func TestWriteLinkMap(t *testing.T) {
	objects := linkedFolder(t)
	table := filepath.Join(t.TempDir(), "map")
	if err := WriteLinkMap(context.Background(), objects, table); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pieces, err := ReadLinkMap(file)
	if err != nil {
		t.Fatal(err)
	}
	text := func(object string) int {
		return slices.IndexFunc(pieces, func(p Piece) bool { return p.Object == object && p.Section == ".text" })
	}
	a, b := text("a/x.o"), text("b/x.o")
	if a < 0 || b < 0 || pieces[a].Begin < 0xffffffff81000000 || pieces[b].Begin < pieces[a].Begin+pieces[a].Size {
		t.Errorf("pieces %+v", pieces)
	}
	left, err := os.ReadDir(filepath.Dir(table))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLinkMapOfAnotherKernel(t *testing.T) {
	objects := linkedFolder(t)
	// Somebody compiled since the kernel was linked.
	if err := os.WriteFile(filepath.Join(objects, "b/x.s"), []byte("f: ret\n.globl h\nh: ret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := command(context.Background(), objects, "as", "-o", "b/x.o", "b/x.s"); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(t.TempDir(), "map")
	err := WriteLinkMap(context.Background(), objects, table)
	if err == nil || !strings.Contains(err.Error(), "the code differs") {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(table); err == nil {
		t.Error("a wrong map was left")
	}
}
