// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/callcounts"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// TestProfilingKernelInGuest has what differs on a slim kernel with the fragment profiling.
func TestProfilingKernelInGuest(t *testing.T) {
	if !guest(t, "mitgcm-profiling", nil) {
		return
	}
	t.Run("calls", countsCallsOfFunctions)
	t.Run("copies", countsCopies)
}

// countsCallsOfFunctions has the program at all functions of the kernel.
func countsCallsOfFunctions(t *testing.T) {
	const calls, args = 20000, "20000"
	alone := time.Now()
	output(t, exec.Command("known", "calls", args))
	without := time.Since(alone)

	before := programs(t)
	j := newJob(t, nil, callcounts.Collector{})
	other := exec.Command("known", "calls", "5000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	j.does("known", "calls", args)
	with := time.Since(began)
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	counts := j.result().CallCounts
	t.Logf("%d calls by %d edges, %d lost; %v without the collector, %v with it: %.1f times", counts.Calls, len(counts.Edges), counts.Lost,
		without, with, with.Seconds()/without.Seconds())
	if counts.Lost != 0 {
		t.Errorf("%d calls lost", counts.Lost)
	}
	called := map[string]uint64{}
	for _, f := range counts.Functions() {
		called[f.Name] = f.Calls
	}
	// The process beside the job has none. The system call has two names, of which the first counts.
	for name, want := range map[string]uint64{"__do_sys_getppid": calls, "ksys_write": 1, "vfs_write": 1, "do_exit": 1} {
		if called[name] != want {
			t.Errorf("%s: called %d times, were %d", name, called[name], want)
		}
	}
	var sum, within uint64
	from := map[string]bool{}
	for _, e := range counts.Edges {
		sum += e.Calls
		if e.From == "__do_sys_getppid" && e.To == "__task_pid_nr_ns" {
			within = e.Calls
		}
		if e.To == "vfs_write" {
			from[e.From] = true
		}
		if strings.HasPrefix(e.To, "0x") || strings.HasPrefix(e.From, "0x") {
			t.Errorf("no name: %+v", e)
		}
	}
	if within != calls {
		t.Errorf("getppid called another function %d times, were %d", within, calls)
	}
	if sum != counts.Calls || len(from) != 1 || !from["ksys_write"] {
		t.Errorf("%d calls of %d, vfs_write from %v", sum, counts.Calls, from)
	}
	if after := programs(t); after != before {
		t.Errorf("%d BPF programs before, %d after", before, after)
	}
	tracing := t.TempDir()
	if err := unix.Mount("tracefs", tracing, "tracefs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(tracing, 0) }()
	if left, err := os.ReadFile(filepath.Join(tracing, "enabled_functions")); err != nil || len(left) > 0 {
		t.Errorf("still traced: %.200s, %v", left, err)
	}
}

// callCountsRefused names what Debian's kernel lacks.
func callCountsRefused(t *testing.T) {
	var lack *profiling.Unsupported
	if err := (callcounts.Collector{}).Check(); !errors.As(err, &lack) || lack.Reason != profiling.NoFunction || !strings.Contains(lack.Remedy, "CONFIG_FPROBE") {
		t.Errorf("refused with %v", err)
	}
}
