// SPDX-License-Identifier: Apache-2.0

//go:build lab

package measure

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// TestPluginCountsWhatIsKnown: QEMU's translator decides what a block is, and another version of it may do so in another
// way. A guest without a kernel has string instructions and instructions that cross a page.
func TestPluginCountsWhatIsKnown(t *testing.T) {
	dir := t.TempDir()
	object, guest, out := filepath.Join(dir, "guest.o"), filepath.Join(dir, "guest"), filepath.Join(dir, countsFile)
	for _, args := range [][]string{
		{"cc", "-c", "-o", object, "plugin/tests/guest.S"},
		{"ld", "-N", "-Ttext=0x100000", "-e", "start", "-o", guest, object},
		{"qemu-system-x86_64", "-M", "q35", "-cpu", "Haswell", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-m", "64",
			"-kernel", guest, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-plugin", top + "/build/measure/kbcount.so,data=1,out=" + out},
	} {
		if said, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args[0], err, said)
		}
	}
	want := []struct {
		name string
		Counts
	}{
		{"64 bytes by stosb", Counts{Instructions: 6, TakenBranches: 2, Strings: 1, RepIterations: 64, StringBytes: 64}},
		{"64 bytes by stosq", Counts{Instructions: 6, TakenBranches: 2, Strings: 1, RepIterations: 8, StringBytes: 64}},
		{"no bytes", Counts{Instructions: 6, TakenBranches: 2, Strings: 1}},
		{"scasb up to the count", Counts{Instructions: 7, TakenBranches: 2, Strings: 1, RepIterations: 64, StringBytes: 64}},
		// The one that finds it is not counted.
		{"scasb up to the fourth", Counts{Instructions: 7, TakenBranches: 2, Strings: 1, RepIterations: 3, StringBytes: 3}},
		{"a move that crosses", Counts{Instructions: 8, TakenBranches: 4}},
		{"a call that crosses", Counts{Instructions: 8, TakenBranches: 6}},
		{"stosq that crosses", Counts{Instructions: 10, TakenBranches: 4, Strings: 1, RepIterations: 8, StringBytes: 64}},
		{"a branch that crosses", Counts{Instructions: 46, TakenBranches: 13, Branches: 10}},
		{"stosq up to the page's end", Counts{Instructions: 10, TakenBranches: 4, Strings: 1, RepIterations: 8, StringBytes: 64}},
		{"a branch up to the page's end", Counts{Instructions: 46, TakenBranches: 13, Branches: 10}},
		{"a return up to the page's end", Counts{Instructions: 7, TakenBranches: 4}},
	}
	said := make([]workload.Region, len(want))
	for i, w := range want {
		said[i] = workload.Region{Marker: i + 1, Name: w.name, Operations: 1}
	}
	regions, err := readCounts(out, said)
	if err != nil {
		t.Fatal(err)
	}
	for i, region := range regions {
		got := region.User
		got.Mispredictions, got.L1IMisses, got.ITLBMisses, got.L1DMisses, got.DTLBMisses = 0, 0, 0, 0, 0
		if got != want[i].Counts {
			t.Errorf("%s: %+v, want %+v", region.Name, got, want[i].Counts)
		}
	}
}
