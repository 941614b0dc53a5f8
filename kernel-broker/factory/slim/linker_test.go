// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMapOfThisLinker has the real linker write a map, for two objects in a
// thin archive, as kbuild makes one, that each have a local function f.
func TestMapOfThisLinker(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/x.s": "f: nop\nret\n.globl g\ng: call f\ncall h\nret\n",
		"b/x.s": "f: ret\n.globl h\nh: call f\nnop\nret\n.section .init.text,\"ax\"\nret\n",
		"lds":   "SECTIONS { . = 0xffffffff81000000; .text : { *(.text) } .init.text : { *(.init.text) } }",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		{"as", "-o", "a/x.o", "a/x.s"},
		{"as", "-o", "b/x.o", "b/x.s"},
		{"ar", "cDPrST", "vmlinux.a", "a/x.o", "b/x.o"},
		{"ld", "-m", "elf_x86_64", "--script=lds", "-Map=map", "-o", "vmlinux", "--whole-archive", "vmlinux.a"},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	pieces, err := ReadFile(filepath.Join(dir, "map"), ReadLinkMap)
	if err != nil {
		t.Fatal(err)
	}
	uses := Measure(pieces, Spans{{0xffffffff8100000d, 0xffffffff8100000e}}, nil)
	a, b := uses["a/x.o"], uses["b/x.o"]
	if a.Coverage != Cold || b.Coverage != Hot || a.Text != 13 || b.Text != 8 || b.Start != 1 || b.Ran != 1 {
		t.Errorf("a/x.o %+v\nb/x.o %+v", a, b)
	}
}
