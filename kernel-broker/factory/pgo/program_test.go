// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cSource has a function that runs often, one that runs never, and one whose
// branch is rarely taken.
const cSource = `
#include <stdio.h>
#include <stdlib.h>

static int rare(int x)
{
	if (x > 5)
		printf("rare %d\n", x);
	return x * 3;
}

int never(int a, int b)
{
	int sum = 0;

	for (int i = 0; i < a; i++)
		sum += b * i + rare(i);
	return sum;
}

__attribute__((noinline)) int often(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum = i % 1000 == 999 ? sum + rare(i) : sum ^ i;
	return sum;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1000;

	printf("%d\n", often(n));
	return n == 77 ? never(n, argc) : 0;
}
`

// program is a C program compiled for counting, in a folder below another as
// a kernel's objects are.
type program struct {
	t       *testing.T
	source  string
	objects string
}

func newProgram(t *testing.T, source string) program {
	t.Helper()
	if _, err := exec.LookPath("gcc-12"); err != nil {
		t.Skipf("needs gcc-12, which is in .ci/packages.txt: %v", err)
	}
	dir := t.TempDir()
	p := program{t: t, source: filepath.Join(dir, "a.c"), objects: filepath.Join(dir, "counting")}
	if err := os.MkdirAll(filepath.Join(p.objects, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.source, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	p.gcc(p.objects, "-O2", "--coverage", "-c", "-o", "sub/a.o", p.source)
	p.gcc(p.objects, "--coverage", "-o", "a", "sub/a.o")
	return p
}

func (p program) gcc(dir string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command("gcc-12", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C")
	said, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("gcc-12 %v: %v\n%s", args, err, said)
	}
	return string(said)
}

// run returns the .gcda file of one run, as GCC's own library wrote it.
func (p program) run(argument string) []byte {
	p.t.Helper()
	file := filepath.Join(p.objects, "sub/a.gcda")
	_ = os.Remove(file) // of a run before; libgcov would add to it
	if said, err := exec.Command(filepath.Join(p.objects, "a"), argument).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, said)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

// asKernel is the same counters as a kernel shows them: without the object
// summary, with zeros written out, without a word at the end.
func asKernel(t *testing.T, data []byte) []byte {
	t.Helper()
	file, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	full := file.Encode(1, file.Max())
	kernel := bytes.Clone(full[:headerSize])
	binary.LittleEndian.PutUint32(kernel[8:], 0xdeadbeef) // some stamp
	return append(kernel, full[headerSize+2*word+summarySize:len(full)-word]...)
}

// shown puts a .gcda file where a guest's debugfs would show it.
func shown(t *testing.T, objects string, data []byte) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, objects, "sub/a.gcda")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// compile compiles the program with a profile, in a folder of its own, and
// returns its sections and what the compiler said.
func (p program) compile(mode Mode, profile string) (map[string]uint64, string) {
	p.t.Helper()
	objects := p.t.TempDir()
	if err := os.Mkdir(filepath.Join(objects, "sub"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	flags := []string{"-O2"}
	if mode != "" {
		use, err := mode.Flags(profile, objects)
		if err != nil {
			p.t.Fatal(err)
		}
		flags = append(flags, use...)
	}
	said := p.gcc(objects, append(flags, "-c", "-o", "sub/a.o", p.source)...)
	file, err := elf.Open(filepath.Join(objects, "sub/a.o"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read from
	sizes := map[string]uint64{}
	for _, section := range file.Sections {
		if strings.HasPrefix(section.Name, ".text") {
			sizes[section.Name] = section.Size
		}
	}
	return sizes, said
}
