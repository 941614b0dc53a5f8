// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/callgraph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/noise"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

var all = []collect.Collector{files.Collector{}, syscalls.Collector{}, callgraph.Collector{}, noise.Collector{}}

// steady are the collectors without the one that samples 499 times a second by the host's clock: a slow emulated CPU
// would do nothing else.
var steady = []collect.Collector{files.Collector{}, syscalls.Collector{}, noise.Collector{}}

// job is a cgroup with collectors on it.
type job struct {
	t      *testing.T
	cgroup string
	run    *collect.Run
	folder string
}

var jobs atomic.Int32

func newJob(t *testing.T, change func(*collect.Request), collectors ...collect.Collector) *job {
	t.Helper()
	number := jobs.Add(1)
	j := &job{t: t, cgroup: fmt.Sprintf("/sys/fs/cgroup/job_%d", number), folder: t.TempDir()}
	// A step below the job, as Slurm has it: the ancestor counts.
	if err := os.MkdirAll(j.step(), 0o755); err != nil {
		t.Fatal(err)
	}
	request := collect.Request{
		Job: uint32(number), Node: "n1", Kernel: profiling.Kernel{Release: "test"},
		Cgroup: j.cgroup, Folder: j.folder,
	}
	if change != nil {
		change(&request)
	}
	run, err := collect.Start(request, collectors, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	j.run = run
	return j
}

func (j *job) step() string { return filepath.Join(j.cgroup, "step_0") }

// command that belongs to the job from its birth on.
func (j *job) command(name string, args ...string) *exec.Cmd {
	j.t.Helper()
	dir, err := os.Open(j.step())
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { dir.Close() })
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return cmd
}

// does runs the program and returns its own report.
func (j *job) does(name string, args ...string) map[string]float64 {
	j.t.Helper()
	return output(j.t, j.command(name, args...))
}

func output(t *testing.T, cmd *exec.Cmd) map[string]float64 {
	t.Helper()
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, complaint.Bytes())
	}
	figures := map[string]float64{}
	if err := json.Unmarshal(said, &figures); err != nil {
		t.Fatalf("%v said %q: %v", cmd.Args, said, err)
	}
	return figures
}

// result waits for the collectors to find that the job is over.
func (j *job) result() profiling.Result {
	j.t.Helper()
	result, err := j.run.Result(j.t.Context())
	if err != nil {
		j.t.Fatal(err)
	}
	for _, r := range result.Refused {
		j.t.Errorf("refused: %s %q: %v", r.Collector, r.Part, &r.Unsupported)
	}
	for _, p := range others(result) {
		j.t.Errorf("partial: %+v", p)
	}
	for _, o := range result.Overhead {
		j.t.Logf("overhead of %s: %d events, %d ns each, %.2f %% of %d ms CPU time in %d ms of windows", o.Collector, o.Events,
			o.SpentNS/max(o.Events, 1), 100*o.Share(), o.JobNS/1e6, o.WindowNS/1e6)
	}
	return result
}

// skipped is how many runs of its programs a collector missed, of which newer kernels tell.
func skipped(p profiling.Partial) (runs float64, is bool) {
	_, err := fmt.Sscanf(p.Why, "the kernel skipped %g runs", &runs)
	return runs, err == nil
}

// others are why a result is partial but for runs that were skipped.
func others(result profiling.Result) []profiling.Partial {
	return slices.DeleteFunc(slices.Clone(result.Partial), func(p profiling.Partial) bool { _, is := skipped(p); return is })
}

// skippedCalls is how many runs the collector of system calls missed.
func skippedCalls(result profiling.Result) float64 {
	for _, p := range result.Partial {
		if runs, is := skipped(p); is && p.Collector == profiling.CollectSyscalls {
			return runs
		}
	}
	return 0
}

// counted reports whether a count is the true one, or below it by no more than what the collector says that it missed.
func counted(result profiling.Result, count, truth float64) bool {
	return count <= truth && count+skippedCalls(result) >= truth
}

// call finds a system call, and checks that its parts add up to it.
func (j *job) call(result profiling.Result, name string, count float64) profiling.Syscall {
	j.t.Helper()
	call := result.Syscalls.Named(name)
	if !counted(result, float64(call.Count), count) || call.Times.Count() != call.Count {
		j.t.Errorf("%s: counted %d (histogram %d), were %v", name, call.Count, call.Times.Count(), count)
	}
	var sum uint64
	var parts []string
	for _, cause := range profiling.Causes() {
		if part, ok := call.Split[cause]; ok {
			sum += part.NS
			parts = append(parts, fmt.Sprintf("%s %d x %d us", cause, part.Count, part.NS/1000))
		}
	}
	if sum != call.NS && skippedCalls(result) == 0 {
		j.t.Errorf("%s: parts add up to %d ns, whole is %d", name, sum, call.NS)
	}
	if slow := j.slow(result, name); call.MostNS > 0 && (len(slow) == 0 || slow[0].NS != call.MostNS) {
		j.t.Errorf("%s: the longest took %d ns, the slowest are %+v", name, call.MostNS, slow)
	}
	j.t.Logf("%s: %d calls, %d us: %s", name, call.Count, call.NS/1000, strings.Join(parts, ", "))
	return call
}

// slow are the slowest single calls of that name; the parts of each add up to it.
func (j *job) slow(result profiling.Result, name string) []profiling.SlowCall {
	j.t.Helper()
	var all []profiling.SlowCall
	for _, c := range result.Syscalls.Slowest {
		if c.Name != name {
			continue
		}
		all = append(all, c)
		var sum uint64
		for _, part := range c.Split {
			sum += part.NS
		}
		if sum != c.NS && skippedCalls(result) == 0 {
			j.t.Errorf("a slow %s: parts add up to %d ns, whole is %d", name, sum, c.NS)
		}
	}
	if len(all) > profiling.MostSlow {
		j.t.Errorf("%d slow calls of %s", len(all), name)
	}
	return all
}

// near checks a figure with a tolerance.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	t.Logf("%s: %.0f, expected %.0f within %.0f %%", what, got, want, 100*tolerance)
	if got < want*(1-tolerance) || got > want*(1+tolerance) {
		t.Errorf("%s is %.0f, not %.0f within %.0f %%", what, got, want, 100*tolerance)
	}
}

// programs counts the BPF programs in the kernel.
func programs(t *testing.T) int {
	t.Helper()
	count := 0
	for id := ebpf.ProgramID(0); ; count++ {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return count
		}
		id = next
	}
}
