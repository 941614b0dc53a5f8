// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

var update = flag.Bool("update", false, "write testdata anew")

// Sites keep what they measured for months, and every run of every kernel hangs
// on these inputs: a change here has all of it measured again. It has to be
// meant, and is then written down with -update.
func TestInputsStay(t *testing.T) {
	b := fixedBench(t)
	w := everyKey(t)
	var got strings.Builder
	for _, cpus := range []int{2, 1} { // with an exact clock and without
		w.CPUs = cpus
		inputs, err := b.Inputs(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		guest := guestOf(t, b, w)
		sum := sha256.Sum256(guest)
		if want := "sha256:" + hex.EncodeToString(sum[:]); inputs["guest"] != want {
			t.Errorf("the guest is %s, its initrd %s", inputs["guest"], want)
		}
		// The guest has the host's busybox in it; what is ours stands below.
		delete(inputs, "guest")
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			fmt.Fprintf(&got, "%d CPU: %s: %s\n", cpus, name, inputs[name])
		}
		got.WriteString(listing(t, guest))
	}
	const golden = "testdata/inputs.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("inputs, %v; were\n%s\nand are\n%s", err, want, got.String())
	}
}

// everyKey is a workload that says something for each key.
func everyKey(t *testing.T) workload.Workload {
	t.Helper()
	text, err := os.ReadFile("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, err := workload.Parse("every-key.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// fixedBench is one on which nothing depends on this machine: a QEMU that only
// says its version, and a package that is unpacked already.
func fixedBench(t *testing.T) Bench {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("bin/qemu-system-x86_64", "#!/bin/sh\necho QEMU emulator version 0\n")
	put("bin/apt-get", "#!/bin/sh\necho \"'http://some.host/served_1_amd64.deb' served_1_amd64.deb 100 SHA256:aa\"\n")
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	line := sha256.Sum256([]byte("served_1_amd64.deb 100 SHA256:aa"))
	put("cache/package/served-"+hex.EncodeToString(line[:8])+"/usr/share/served/data", "data\n")
	put("programs/own", "own\n")
	put("programs/kbmark", "kbmark\n")
	return Bench{
		Plugin: put("kbcount.so", "plugin\n"),
		Places: workload.Places{Programs: filepath.Join(dir, "programs"), Cache: filepath.Join(dir, "cache")},
	}
}

func guestOf(t *testing.T, b Bench, w workload.Workload) []byte {
	t.Helper()
	root, err := w.Root(t.Context(), b.Places, w.Test, "", workload.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := vm.WriteInitrd(t.Context(), root, &archive); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// listing has a line for each entry of an initramfs but busybox and its names:
// mode, bytes, what is in it, place.
func listing(t *testing.T, archive []byte) string {
	t.Helper()
	var lines strings.Builder
	for {
		field := func(i int) int {
			value, err := strconv.ParseInt(string(archive[6+8*i:14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(value)
		}
		mode, size, length := field(1), field(6), field(11)
		name := string(archive[110 : 110+length-1])
		if name == "TRAILER!!!" {
			return lines.String()
		}
		begin := (110 + length + 3) &^ 3
		data := archive[begin : begin+size]
		archive = archive[(begin+size+3)&^3:]
		if name != "usr/bin/busybox" && string(data) != "busybox" {
			sum := sha256.Sum256(data)
			fmt.Fprintf(&lines, "%06o %5d %x %s\n", mode, size, sum[:6], name)
		}
	}
}
