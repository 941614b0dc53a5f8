// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// runs is RunService as a test set it.
type runs struct {
	api.UnimplementedRunServiceServer
	list      []*api.Run
	requested *api.RequestRunRequest
	figures   []*api.WatchRunResponse
}

func (r *runs) ListRuns(context.Context, *api.ListRunsRequest) (*api.ListRunsResponse, error) {
	return &api.ListRunsResponse{Runs: r.list}, nil
}

func (r *runs) GetRun(_ context.Context, q *api.GetRunRequest) (*api.GetRunResponse, error) {
	for _, run := range r.list {
		if run.GetId() == q.GetId() {
			return &api.GetRunResponse{Run: run}, nil
		}
	}
	return nil, fmt.Errorf("run %d: %w", q.GetId(), kb.ErrNotFound)
}

func (r *runs) RequestRun(_ context.Context, q *api.RequestRunRequest) (*api.RequestRunResponse, error) {
	r.requested = q
	return &api.RequestRunResponse{Run: &api.Run{Id: 9, Application: q.GetApplication(), Profile: q.GetProfile(), Collectors: []string{"io"}}}, nil
}

func (r *runs) CancelRun(_ context.Context, q *api.CancelRunRequest) (*api.CancelRunResponse, error) {
	return &api.CancelRunResponse{Run: &api.Run{Id: q.GetId()}}, nil
}

func (r *runs) WatchRun(_ *api.WatchRunRequest, stream api.RunService_WatchRunServer) error {
	for _, f := range r.figures {
		if err := stream.Send(f); err != nil {
			return err
		}
	}
	return nil
}

// nodeResult is a node's result: a second of CPU time, with that much in the kernel.
func nodeResult(node string, kernelMS uint64) profiling.Result {
	return profiling.Result{
		Format: profiling.Format, Job: 12, Collectors: []profiling.Collector{profiling.CollectSyscalls, profiling.CollectCallgraph},
		Nodes: []profiling.Node{{Name: node, Kernel: profiling.Kernel{Release: "6.1-x"}, CPUs: 1, Begin: noon, End: noon.Add(time.Second),
			JobNS: 1e9, UserNS: 1e9 - kernelMS*1e6, SystemNS: kernelMS * 1e6}},
		Syscalls:  &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "write", Count: 10, NS: kernelMS * 1e6, Times: profiling.Histogram{10}}}},
		CallGraph: &profiling.CallGraph{PeriodNS: 1e6, Kernel: 4, User: 9, Stacks: []profiling.Stack{{Frames: []string{"do_syscall_64", "vfs_write"}, Samples: 4}}},
		Overhead:  []profiling.Overhead{{Node: node, Collector: profiling.CollectSyscalls, WindowNS: 1e8, JobNS: 1e8, Events: 10, SpentNS: 1e6}},
	}
}

// store keeps a result as the broker would and returns its file.
func (f *fixture) store(result profiling.Result) *api.RunFile {
	f.t.Helper()
	content, err := result.JSON()
	if err != nil {
		f.t.Fatal(err)
	}
	return &api.RunFile{Name: kb.ResultFile, Digest: f.files.keep(content), Size: uint64(len(content))}
}

func (f *fixture) profiled() {
	run := func(id uint64, kernelMS uint64) *api.Run {
		return &api.Run{
			Id: id, State: api.RunState_RUN_STATE_PARTIAL, Reason: "n2: lost: delivered nothing", Collectors: []string{"syscalls", "callgraph"},
			RequestedBy: "alice", Requested: at(0), JobId: 14, Reference: "12_1", User: "alice", Uid: 1000, KernelProfile: "mitgcm", KernelVersion: 1,
			Began: at(1000), Ended: at(2000),
			Nodes: []*api.RunNode{
				{Name: "n1", State: api.RunNodeState_RUN_NODE_STATE_DELIVERED, Files: []*api.RunFile{f.store(nodeResult("n1", kernelMS))}},
				{Name: "n2", State: api.RunNodeState_RUN_NODE_STATE_LOST, Reason: "delivered nothing\x1b[31m"},
			},
		}
	}
	f.runs.list = []*api.Run{
		{Id: 9, State: api.RunState_RUN_STATE_REQUESTED, Collectors: []string{"io"}, RequestedBy: "root", Requested: at(5000), Application: "MITgcm"},
		run(8, 250), run(7, 400),
	}
}

// someFile removes a result's file name and size from a text: fields may be added.
func someFile(text string) string {
	text = regexp.MustCompile(`sha256:[0-9a-f]{64}`).ReplaceAllString(text, "DIGEST")
	return regexp.MustCompile(`("?size"?: )[1-9]\d*`).ReplaceAllString(text, "${1}SIZE")
}

func TestRuns(t *testing.T) {
	f := newFixture(t)
	f.must(0, "no profiling runs: sbatch --kernel-profiling makes one", "run", "list")
	f.profiled()
	for _, format := range []string{"table", "json", "yaml"} {
		golden(t, "run-list."+format, someFile(f.must(0, "", "run", "list", "-o", format)))
		golden(t, "run-show."+format, someFile(f.must(0, "", "run", "show", "7", "-o", format)))
	}
	f.must(3, "run 5: not found", "run", "show", "5")
	f.must(2, `"x" is not a run`, "run", "show", "x")
	if out := f.must(0, "", "run", "cancel", "9"); !strings.Contains(out, "run 9 is cancelled") {
		t.Error(out)
	}
}

func TestRunReport(t *testing.T) {
	f := newFixture(t)
	f.profiled()
	f.registerWith("lammps", "CONFIG_BTRFS_FS=y\n")
	out := f.must(0, "", "run", "report", "7")
	for _, part := range []string{"What would help", "at most 39 %", "--kernel-profile=NAME:", "lammps;", "node n2: lost delivered nothing", "write"} {
		if !strings.Contains(out, part) {
			t.Errorf("the report lacks %q:\n%s", part, out)
		}
	}
	var document struct {
		Run      struct{ ID uint64 }
		Decision struct{ Verdict string }
	}
	if err := json.Unmarshal([]byte(f.must(0, "", "run", "report", "7", "-o", "json")), &document); err != nil ||
		document.Run.ID != 7 || document.Decision.Verdict != "worth-a-kernel" {
		t.Errorf("%+v, %v", document, err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	f.must(0, "written", "run", "report", "7", "--html", file("a.html"), "--dot", file("a.dot"), "--pprof", file("a.pb.gz"), "--folded", file("a.folded"))
	for name, part := range map[string]string{"a.html": "vfs_write", "a.dot": "digraph", "a.pb.gz": "\x1f\x8b", "a.folded": "do_syscall_64;vfs_write 4"} {
		if text, err := os.ReadFile(file(name)); err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %q: %v", name, part, err)
		}
	}
	f.must(3, "has no results", "run", "report", "9")
	// Another user gets no digests.
	f.runs.list[1].Nodes[0].Files = nil
	f.must(3, "has no results for you: they are for user alice", "run", "report", "8")
	// A node speaks for itself alone.
	f.runs.list[1].Nodes[0].Files = []*api.RunFile{f.store(nodeResult("n9", 250))}
	f.must(3, `node "n1": its result is of node "n9"`, "run", "report", "8")
	// The stored content differs from the delivered one.
	f.files.replace(f.runs.list[2].GetNodes()[0].GetFiles()[0].GetDigest(), []byte("{}"))
	f.must(3, `node "n1"`, "run", "report", "7")
	// What the broker knows of the run is shown all the same.
	shown := f.must(0, "", "run", "show", "7")
	if !strings.Contains(shown, "n2: lost: delivered nothing") || !strings.Contains(shown, `The results cannot be read: run 7: node "n1"`) || strings.Contains(shown, "run report") {
		t.Error(shown)
	}
}

// TestCountedCallsAreDrawn draws counted calls where none were sampled. Other programs read samples only.
func TestCountedCallsAreDrawn(t *testing.T) {
	f := newFixture(t)
	f.profiled()
	counted := nodeResult("n1", 250)
	counted.CallGraph = nil
	counted.CallCounts = &profiling.CallCounts{Calls: 7, Edges: []profiling.CallCount{{From: "ksys_write", To: "vfs_write", Calls: 7}}}
	f.runs.list[1].Nodes[0].Files = []*api.RunFile{f.store(counted)}
	drawn := filepath.Join(t.TempDir(), "a.dot")
	f.must(0, "written", "run", "report", "8", "--dot", drawn)
	if text, err := os.ReadFile(drawn); err != nil || !strings.Contains(string(text), `"ksys_write" -> "vfs_write" [label="7"`) {
		t.Errorf("%s, %v", text, err)
	}
	f.must(3, "run 8 has no call graph", "run", "report", "8", "--folded", drawn)
}

func TestRunDiff(t *testing.T) {
	f := newFixture(t)
	f.profiled()
	out := f.must(0, "", "run", "diff", "7", "8")
	for _, part := range []string{"One run each: no significance can be stated.", "in the kernel", "-37.5 %", "untested"} {
		if !strings.Contains(out, part) {
			t.Errorf("the comparison lacks %q:\n%s", part, out)
		}
	}
	if out := f.must(0, "", "run", "diff", "7,7,7", "8,8,8", "-o", "json"); !strings.Contains(out, `"standing": "less"`) {
		t.Error(out)
	}
	page := filepath.Join(t.TempDir(), "diff.html")
	f.must(0, "no significance", "run", "diff", "7", "8", "--html", page)
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "run 7 beside run 8") {
		t.Error(err)
	}
	f.must(2, "is not a run", "run", "diff", "7,", "8")
}

func TestRunRequest(t *testing.T) {
	f := newFixture(t)
	if out := f.must(0, "", "run", "request", "MITgcm", "--collectors", "io,noise"); !strings.Contains(out, "run 9 waits for the next of MITgcm") {
		t.Error(out)
	}
	if q := f.runs.requested; q.GetApplication() != "MITgcm" || strings.Join(q.GetCollectors(), " ") != "io noise" || q.GetRequestId() == "" {
		t.Errorf("%v", q)
	}
	f.must(2, "name an application, or a profile", "run", "request")
	f.must(2, "name an application, or a profile", "run", "request", "x", "--profile", "y")
}

func TestRunWatch(t *testing.T) {
	f := newFixture(t)
	f.profiled()
	line, err := json.Marshal(profiling.Live{Format: profiling.Format, At: noon, Result: nodeResult("n1", 250)})
	if err != nil {
		t.Fatal(err)
	}
	running := &api.Run{Id: 8, State: api.RunState_RUN_STATE_RUNNING, Reference: "12_1", Nodes: []*api.RunNode{{}, {}}, Began: timestamppb.New(noon)}
	f.runs.figures = []*api.WatchRunResponse{{Run: running}, {Run: running, Node: "n1", Figures: line}}
	out := f.must(0, "run 8 of job 12_1: running", "run", "watch", "12_1")
	if !strings.Contains(out, "1 of 2 nodes, 25 % of the CPU time in the kernel") || !strings.Contains(out, "write") {
		t.Error(out)
	}
	if out := f.must(0, "", "run", "watch", "14", "-o", "json"); !strings.Contains(out, `"format":1`) {
		t.Error(out)
	}
	f.must(3, "no profiling run of job 99", "run", "watch", "99")
	f.runs.figures = []*api.WatchRunResponse{{Run: running, Node: "n1", Figures: []byte("junk")}}
	f.must(1, `figures of node "n1"`, "run", "watch", "14")
}
