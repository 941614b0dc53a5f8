// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// namesSlowCalls knows which calls of a program are slow, why, when and on which file.
func namesSlowCalls(t *testing.T) {
	t.Run("with io", func(t *testing.T) { slowCalls(t, true) })
	t.Run("alone", func(t *testing.T) { slowCalls(t, false) })
}

func slowCalls(t *testing.T, io bool) {
	folder := t.TempDir()
	collectors, large := []collect.Collector{syscalls.Collector{}}, "large"
	if io {
		collectors, large = append(collectors, files.Collector{}), filepath.Join(folder, "large")
	}
	j := newJob(t, nil, collectors...)
	began := time.Now()
	said := j.does("known", "slow", folder)
	result := j.result()
	only := func(name string) profiling.SlowCall {
		t.Helper()
		all := j.slow(result, name)
		if len(all) == 0 {
			t.Fatalf("no slow %s", name)
		}
		c := all[0]
		t.Logf("%s of %q by %s: %.3f ms, %s after the begin: %v", name, c.File, c.Program, float64(c.NS)/1e6, c.At.Sub(result.Nodes[0].Begin), c.Split)
		if c.Node != "n1" || c.Program != "known" || c.At.Before(began.Add(-time.Millisecond)) || c.At.After(time.Now()) {
			t.Errorf("%s: %+v", name, c)
		}
		return c
	}
	reads := j.slow(result, "read")
	if len(reads) != profiling.MostSlow {
		t.Fatalf("%d slow reads", len(reads))
	}
	for i, c := range reads {
		near(t, fmt.Sprintf("slow read %d", i), float64(c.NS), float64(20-i)*5e6, 0.05)
		if part := c.Split[profiling.CauseWaitJob]; part.Count != 1 || float64(part.NS) < 0.9*float64(c.NS) {
			t.Errorf("read %d did not wait for the job: %v", i, c.Split)
		}
		if c.File != "[pipe]" || c.Bytes == nil || *c.Bytes != 1 || c.Failed || float64(c.PID) != said["pid"] || c.TID != c.PID {
			t.Errorf("read %d: %+v", i, c)
		}
	}
	if late := only("read").At.Sub(time.Unix(0, int64(said["longest_at"]))); late < -time.Millisecond || late > time.Millisecond {
		t.Errorf("the longest read began %v after the program's word", late)
	}
	if c := only("openat"); c.File != "fifo" || c.Bytes != nil || c.NS < 20e6 || c.Split[profiling.CauseWaitJob].Count != 1 {
		t.Errorf("open: %+v", c)
	}
	if c := only("pread64"); c.File != large || c.Inode == 0 || c.Bytes == nil || *c.Bytes != 4<<20 || c.Split[profiling.CauseCall].NS < c.NS/2 {
		t.Errorf("large read: %+v", c)
	}
	if c := only("write"); c.File != large || c.Inode == 0 || *c.Bytes != 4<<20 {
		t.Errorf("large write: %+v", c)
	}
	c := only("recvfrom")
	// The limit counts in ticks of up to 10 ms.
	near(t, "the socket's time limit", float64(c.NS), 45e6, 0.15)
	if c.File != "[socket] UDP" || !c.Failed || c.Bytes != nil || c.Split[profiling.CauseWaitDevice].Count != 1 {
		t.Errorf("receive: %+v", c)
	}
	if c := only("close"); c.File != profiling.UnknownFile {
		t.Errorf("close: %+v", c)
	}
	if c := only("clock_nanosleep"); c.File != "" || c.Split[profiling.CauseWaitDevice].Count != 1 {
		t.Errorf("sleep: %+v", c)
	}
}

// leavesOutTheDaemon has Slurm's daemon wait for longer than the job does.
func leavesOutTheDaemon(t *testing.T) {
	known, err := exec.LookPath("known")
	if err != nil {
		t.Fatal(err)
	}
	daemon := filepath.Join(t.TempDir(), profiling.StepDaemon)
	if out, err := exec.Command("cp", known, daemon).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	j := newJob(t, nil, syscalls.Collector{})
	j.does(daemon, "slow", t.TempDir())
	j.does("known", "pipes", "2")
	result := j.result()
	if reads := j.slow(result, "read"); len(reads) != 2 || result.Syscalls.Named("read").Count != 22 {
		t.Errorf("slow reads are %+v", reads)
	}
	for _, c := range result.Syscalls.Slowest {
		if c.Program != "known" && c.Program != "self" {
			t.Errorf("%s's: %+v", profiling.StepDaemon, c)
		}
	}
}

// slowOnTwoCPUs: what two CPUs put into the table at one time is whole, and the longest is among it.
func slowOnTwoCPUs(t *testing.T) {
	const processes, count = 4, 50000
	j := newJob(t, nil, syscalls.Collector{})
	var all []*exec.Cmd
	for range processes {
		cmd := j.command("known", "calls", fmt.Sprint(count))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	result := j.result()
	j.call(result, "getppid", processes*count)
	type when struct {
		tid uint32
		at  time.Time
	}
	seen := map[when]bool{}
	for _, c := range j.slow(result, "getppid") {
		seen[when{c.TID, c.At}] = true
	}
	if len(seen) != profiling.MostSlow {
		t.Errorf("%d different slow calls", len(seen))
	}
}
