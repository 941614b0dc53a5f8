// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/tests/support/perftest"
)

// What a step reads after hours of compilation is found unfit before the first one.
func TestCheckInputs(t *testing.T) {
	write := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "given")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	recording := perftest.Recording{BuildID: "0123456789abcdef0123456789abcdef01234567", From: 0xffffffff81000010, To: 0xffffffff81000000, Samples: 3}
	unnamed, branchless := recording, recording
	unnamed.BuildID, branchless.Branchless = "", true
	const catalog, sampled, slimmed = "../../../catalog", "bench-autofdo-mitgcm", "mitgcm"
	nodes := write(`[{"node":"n1","pci":["8086:10d3"]}]`)
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"perf's data":             {Options{Name: sampled, Samples: []Samples{{Path: perftest.Data(t, recording), Weight: 1}}}, ""},
		"data without build ids":  {Options{Name: sampled, Samples: []Samples{{Path: perftest.Data(t, unnamed), Weight: 1}}}, "record again with --buildid-mmap"},
		"data without branches":   {Options{Name: sampled, Samples: []Samples{{Path: perftest.Data(t, branchless), Weight: 1}}}, "record again with -b"},
		"five bytes":              {Options{Name: sampled, Samples: []Samples{{Path: write("short"), Weight: 1}}}, "neither perf's data nor a profile"},
		"no modules.alias":        {Options{Name: slimmed, Nodes: []string{nodes}, Aliases: write("kernel/a.ko: kernel/b.ko\n")}, "no alias of a device in it"},
		"modules.alias is missed": {Options{Name: slimmed, Nodes: []string{nodes}}, "no modules.alias says what drives them"},
		"a report":                {Options{Name: slimmed, Nodes: []string{nodes}, Aliases: write("alias pci:v00008086d000010D3* e1000e\n")}, ""},
		"a damaged archive":       {Options{Name: slimmed, Counters: []Counters{{Run: 7, Node: "n1", Path: write("\x1f\x8b rubbish")}}}, `run 7, node "n1": counters:`},
		"another archive": {Options{Name: slimmed, Counters: []Counters{{Run: 7, Node: "n1", Path: archive(t, map[string]string{"etc/passwd": "x"})}}},
			`"etc/passwd" does not belong in an archive of counters`},
		"no such recipe": {Options{Name: "nothing"}, "no such recipe"},
	} {
		c.options.Catalog = catalog
		if err := c.options.CheckInputs(t.Context()); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}

	mine := t.TempDir()
	if err := os.CopyFS(mine, os.DirFS(catalog)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mine, "keep", "mine.yaml"), []byte("name: mine\nkept: [X]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for train, want := range map[bool]string{true: "keep/mine.yaml", false: ""} { // training data say what slimming found
		err := Options{Name: slimmed, Catalog: mine, Train: train}.CheckInputs(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a keep-list with another key, train %t: %v", train, err)
		}
	}
}

// A text that is no profile is found by the tool that merges profiles.
func TestProfileOfNothing(t *testing.T) {
	path := sampleFile(t, "this is a letter\nand no profile\n")
	if err := checkSamples(t.Context(), autofdo.Tools{Compiler: "clang-19"}, false, path); err == nil || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a letter: %v", err)
	}
	lines, probes := "vfs_write:30:10\n 1: 10\n", "vfs_write:30:10\n 1: 10\n !CFGChecksum: 281479271677951\n"
	for _, c := range []struct {
		text   string
		probes bool
		want   error
	}{{lines, false, nil}, {probes, true, nil}, {lines, true, ErrOtherKernel}, {probes, false, ErrOtherKernel}} {
		if err := checkSamples(t.Context(), autofdo.Tools{Compiler: "clang-19"}, c.probes, sampleFile(t, c.text)); !errors.Is(err, c.want) {
			t.Errorf("%q, probes %t: %v", c.text, c.probes, err)
		}
	}
}
