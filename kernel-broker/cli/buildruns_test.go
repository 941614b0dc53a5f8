// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// counts makes run 7 one on the kernel that counts, with and without a trace.
func (f *fixture) counts(result profiling.Result) *api.Run {
	f.t.Helper()
	result.PGO = &profiling.PGO{Archives: []profiling.Archive{{Node: "n1", BuildID: "abcd", Name: "gcov-n1.tar.gz"}, {Node: "n1", BuildID: "abcd", Name: "gcov-n1.tar.gz"}}}
	sum := f.files.keep([]byte("counters"))
	run := f.runs.list[2]
	run.KernelProfile = "mitgcm-counters-instrumented"
	run.Nodes = []*api.RunNode{{Name: "n1", State: api.RunNodeState_RUN_NODE_STATE_DELIVERED,
		Files: []*api.RunFile{f.store(result), {Name: "gcov-n1.tar.gz", Digest: sum, Size: 8}}}}
	return run
}

func TestRunsForABuild(t *testing.T) {
	f := newFixture(t)
	f.profiled()
	bare := nodeResult("n1", 1)
	bare.Syscalls, bare.CallGraph = nil, nil
	run := f.counts(bare)
	var said strings.Builder
	a := &app{broker: "unix://" + f.socket, config: client.DefaultPath, Invocation: Invocation{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: &said}}
	t.Cleanup(func() { _ = a.conn.Close() })
	cache := t.TempDir()
	from := func(instrumented bool, runs ...string) (pipeline.Options, error) {
		ids, err := runIDs(runs)
		if err != nil {
			t.Fatal(err)
		}
		r := kernelbuild.Request{Runs: ids, Instrumented: instrumented, Say: a.say, Options: pipeline.Options{Name: "mitgcm-counters", Catalog: "../../catalog", Cache: cache}}
		err = r.TakeRuns(t.Context(), buildBroker{app: a})
		return r.Options, err
	}
	for range 2 { // the second time all of it is there
		got, err := from(false, "8,7", "8")
		if err != nil || len(got.Counters) != 1 || got.Counters[0].Run != 7 || got.Counters[0].Node != "n1" || got.Counters[0].BuildID != "abcd" || len(got.Traces) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if text, err := os.ReadFile(got.Counters[0].Path); err != nil || string(text) != "counters" {
			t.Errorf("%q, %v", text, err)
		}
		// Run 7 was on the kernel that counts, and has no share.
		if s := got.RunShares; len(s) != 1 || s[0].Run != 8 || s[0].Kernel == "" || !(s[0].Share > 0.239 && s[0].Share < 0.241) {
			t.Errorf("shares %+v", s)
		}
		traces, err := slim.ReadJobTraces(got.Traces)
		want := slim.JobTrace{Run: 8, Releases: []string{"6.1-x"}, Calls: []string{"write"}, Functions: []string{"do_syscall_64", "vfs_write"},
			Results: []slim.JobResult{{Node: "n1", Digest: f.runs.list[1].GetNodes()[0].GetFiles()[0].GetDigest()}}}
		if err != nil || len(traces) != 1 || !reflect.DeepEqual(traces[0], want) {
			t.Errorf("%+v, %v", traces, err)
		}
	}
	for _, words := range []string{"run 8: 1 system calls and 2 functions that its job used stay in the kernel; 24 % of its CPU time is the kernel's, by which the verdict judges the whole; it is not whole (node n2: lost delivered nothing[31m), and what there is of it counts\n",
		"run 7: counters in 1 archives\n"} {
		if !strings.Contains(said.String(), words) {
			t.Errorf("no %q in\n%s", words, said.String())
		}
	}
	kept := func() []string {
		names, err := filepath.Glob(filepath.Join(cache, "traces", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if names := kept(); len(names) != 1 {
		t.Errorf("kept %v", names)
	}
	// Both of one run, and with --instrumented the trace alone.
	f.counts(nodeResult("n1", 1))
	if got, err := from(false, "7"); err != nil || len(got.Counters) != 1 || len(got.Traces) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := from(true, "7,8"); err != nil || len(got.Counters) != 0 || len(got.Traces) != 2 || slices.Contains(got.Traces[:1], got.Traces[1]) {
		t.Errorf("%+v, %v", got, err)
	}
	run.Nodes[0].Files = run.Nodes[0].Files[:1]
	if _, err := from(false, "7"); err == nil || !strings.Contains(err.Error(), `node "n1" did not deliver`) {
		t.Error(err)
	}
	if got, err := from(false); err != nil || got.Traces != nil || got.Counters != nil {
		t.Errorf("no runs: %+v, %v", got, err)
	}
}

// The command itself refuses before anything is built.
func TestBuildFromRefusedRuns(t *testing.T) {
	f := newFixture(t)
	f.profiled()
	cache := t.TempDir()
	build := func(code int, words, name string, arguments ...string) {
		t.Helper()
		f.must(code, words, append([]string{"kernel", "build", name, "--cache", cache, "--catalog", "../../catalog"}, arguments...)...)
	}
	build(3, "run 7 tells what its job used of its kernel, and the recipe slim does not slim", "slim", "--from-run", "7")
	build(3, "run 9 is requested and has no results", "mitgcm", "--from-run", "9")
	build(3, "run 5: not found", "mitgcm", "--from-run", "8,5")
	build(1, `kernel "nothing": no such recipe`, "nothing", "--from-run", "8")
	bare := nodeResult("n1", 1)
	bare.Syscalls, bare.CallGraph = nil, nil
	f.counts(bare)
	build(3, "run 7 has counters alone", "mitgcm", "--instrumented", "--from-run", "7")
	// Somebody else's results are not handed out.
	f.runs.list[1].Nodes[0].Files = nil
	build(3, "has no results for you: they are for user alice", "mitgcm", "--from-run", "8")
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
