// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// TestWholeInGuest checks exact counts on the distribution's kernel with two CPUs, and failures, in one boot.
func TestWholeInGuest(t *testing.T) {
	if !guest(t, "stock", nil) {
		return
	}
	before := programs(t)
	t.Run("calls", countsCalls)
	t.Run("slow", slowOnTwoCPUs)
	t.Run("faults", faultsInRead)
	t.Run("mitgcm", replay)
	t.Run("strace", stracesTheReplay)
	t.Run("copies", countsCopies)
	t.Run("no calls counted", callCountsRefused)
	t.Run("processes", thousandProcesses)
	t.Run("files", manyFiles)
	t.Run("two jobs", twoJobs)
	t.Run("live", figuresMeanwhile)
	t.Run("no space", diskFull)
	t.Run("killed", agentKilled)
	t.Run("stopped", stoppedEarly)
	if after := programs(t); after != before {
		t.Errorf("%d BPF programs before, %d after", before, after)
	}
}

func countsCalls(t *testing.T) {
	j := newJob(t, nil, syscalls.Collector{})
	// Calls of other processes do not count.
	other := exec.Command("known", "calls", "5000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	said := j.does("known", "calls", "20000")
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	result := j.result()
	j.call(result, "getppid", said["getppid"])
	j.call(result, "exit_group", 1)
	j.call(result, "write", 1)
	if share, ok := result.KernelShare(); !ok || share <= 0 || share >= 1 {
		t.Errorf("kernel's share is %v, %v", share, ok)
	}
	var listed float64
	for _, p := range result.Syscalls.Processes {
		if p.Name == "getppid" && p.Program == "known" {
			listed += float64(p.Count)
		}
	}
	if !counted(result, listed, said["getppid"]) {
		t.Errorf("processes: %v getppid of known, were %v", listed, said["getppid"])
	}
}

func faultsInRead(t *testing.T) {
	j := newJob(t, nil, syscalls.Collector{})
	said := j.does("known", "faults", "512")
	result := j.result()
	j.call(result, "pwrite64", said["pwrite64"])
	read := j.call(result, "read", said["reads"])
	fault := read.Split[profiling.CauseFault]
	if float64(fault.Count) != said["faults"] || fault.NS == 0 || fault.NS >= read.NS {
		t.Errorf("faults in the read: %+v of %d ns, were %v", fault, read.NS, said["faults"])
	}
	if outside := result.Syscalls.Named(profiling.PageFault); outside.Count == 0 {
		t.Error("no page fault outside of calls")
	}
}

// countsCopies checks calls that move bytes without the program's memory, as cp and shutil do: they read one file and
// write another.
func countsCopies(t *testing.T) {
	j := newJob(t, nil, files.Collector{})
	said := j.does("known", "copies", t.TempDir())
	type side struct{ calls, bytes, nothing, sequential uint64 }
	whole, piece := uint64(said["whole"]), uint64(said["piece"])
	want := map[string][2]side{
		// Three calls by sendfile, three by copy_file_range, one by splice. Two find the end, two begin anew.
		"source":  {{calls: 7, bytes: 2*whole + whole/2, nothing: 2, sequential: 3}, {calls: 1, bytes: whole, sequential: 1}},
		"sent":    {{}, {calls: 2, bytes: whole, sequential: 2}},
		"ranged":  {{}, {calls: 2, bytes: whole, sequential: 2}},
		"spliced": {{}, {calls: 1, bytes: whole / 2, sequential: 1}},
		"vectors": {{calls: 3, bytes: 2 * piece, nothing: 1, sequential: 2}, {calls: 2, bytes: 2 * piece, sequential: 2}},
	}
	result := j.result()
	for _, f := range result.IO.Files {
		name := filepath.Base(f.Path)
		sides, known := want[name]
		if !known {
			continue
		}
		delete(want, name)
		got := [2]side{}
		for i, d := range []profiling.Traffic{f.Read, f.Write} {
			got[i] = side{d.Calls, d.Bytes, d.Nothing, d.Sequential}
		}
		if got != sides {
			t.Errorf("%s: %+v, want %+v", name, got, sides)
		}
	}
	if len(want) != 0 {
		t.Errorf("not seen: %v", want)
	}
	if pipe := result.IO.Total("pipe").Read; pipe.Calls != 1 || pipe.Bytes != whole/2 {
		t.Errorf("read of a pipe: %+v", pipe)
	}
}

func thousandProcesses(t *testing.T) {
	j := newJob(t, nil, steady...)
	said := j.does("known", "processes", "1000")
	result := j.result()
	j.call(result, "getppid", said["getppid"])
	seen := map[uint32]bool{}
	for _, p := range result.Syscalls.Processes {
		if p.Name == "getppid" {
			seen[p.PID] = true
		}
	}
	if !counted(result, float64(len(seen)), said["getppid"]) || result.Syscalls.NotListed.Count != 0 {
		t.Errorf("%d processes listed, %d calls not, were %v", len(seen), result.Syscalls.NotListed.Count, said["getppid"])
	}
}

func manyFiles(t *testing.T) {
	const count = 20000
	j := newJob(t, nil, files.Collector{})
	said := j.does("known", "files", fmt.Sprint(count), t.TempDir())
	result := j.result()
	if result.IO.Overflow.Write.Calls != 0 {
		t.Errorf("overflow: %+v", result.IO.Overflow)
	}
	for _, p := range result.IO.Patterns {
		t.Logf("%s %s: %d files, %d writes, %d bytes, %d syncs", p.Behaviour, p.Shape, p.Files, p.Write.Calls, p.Write.Bytes, p.Syncs)
	}
	first := result.IO.Patterns[0]
	if float64(first.Files) != said["files"] || float64(first.Write.Calls) != said["files"] || float64(first.Syncs) != said["files"] {
		t.Errorf("first pattern: %+v", first)
	}
	if listed := uint64(len(result.IO.Files)) + result.IO.FilesLeftOut; listed < count || len(result.IO.Files) > profiling.MostFiles {
		t.Errorf("%d files listed, %d left out", len(result.IO.Files), result.IO.FilesLeftOut)
	}
	if info, err := os.Stat(j.folder + "/result.json"); err != nil || info.Size() > 32<<20 {
		t.Errorf("result: %v, %v", info, err)
	}
}
