// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var slowBytes uint64 = 4096

// full has something of everything, and names that would break a page.
func full() profiling.Result {
	traffic := profiling.Traffic{Calls: 10, Bytes: 3600, Small: 10, Sequential: 10, Sizes: profiling.Histogram{0, 0, 0, 0, 0, 0, 0, 0, 10}}
	return profiling.Result{
		Format: profiling.Format, Job: 12, Collectors: profiling.Collectors(),
		Nodes:    []profiling.Node{{Name: "n1", Kernel: profiling.Kernel{Release: "6.1-x"}, CPUs: 2, Begin: noon, End: noon.Add(time.Second), JobNS: 1e9, UserNS: 6e8, SystemNS: 4e8}},
		Partial:  []profiling.Partial{{Node: "n1", Why: "disk full"}},
		Refused:  []profiling.Refusal{{Node: "n1", Part: "splice", Unsupported: profiling.Unsupported{Collector: profiling.CollectIO, Reason: profiling.NoTracepoint, Detail: "no tracepoint"}}},
		Overhead: []profiling.Overhead{{Node: "n1", Collector: profiling.CollectIO, WindowNS: 1e8, JobNS: 1e8, Events: 7, SpentNS: 1e6}},
		IO: &profiling.IO{Totals: []profiling.Total{{Kind: profiling.RegularFiles, Write: traffic}},
			Patterns: []profiling.Pattern{{Behaviour: "small writes in order", Shape: "/out/<script>alert(1)</script>*.data", Files: 1, Calls: 10, Bytes: 3600, Write: traffic}},
			Files:    []profiling.File{{Node: "n1", Path: "/out/</td>1.data", Write: traffic}}, FilesLeftOut: 3},
		Syscalls: &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "write", Count: 10, NS: 2e8, MostNS: 9e7, Times: profiling.Histogram{0, 0, 10},
			Split: map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: 1e8}, profiling.CauseWaitDevice: {Count: 1, NS: 1e8}}}},
			Processes: []profiling.ProcessCalls{{Node: "n1", PID: 7, Program: "a.out", Name: "write", Count: 10, NS: 2e8}},
			Slowest: []profiling.SlowCall{{Name: "write", Node: "n1", PID: 7, TID: 8, Program: "a.out", At: noon.Add(250 * time.Millisecond), NS: 9e7, Bytes: &slowBytes,
				File: "/out/</td>1.data", Device: "8:1", Inode: 5, Split: map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: 1e7}, profiling.CauseWaitDevice: {Count: 1, NS: 8e7}}}},
			LostAway: 2},
		CallGraph: &profiling.CallGraph{PeriodNS: 1e6, Kernel: 5, User: 9, Stacks: []profiling.Stack{{Frames: []string{"do_syscall_64", "vfs_write"}, Samples: 4}, {Frames: []string{"do_syscall_64"}, Samples: 1}}},
		Noise: &profiling.Noise{Method: "bpf", CPUs: []profiling.CPUNoise{{Node: "n1", CPU: 1, WantedNS: 1e9, LostNS: 1e7,
			Sources: []profiling.NoiseSource{{Kind: profiling.NoiseIRQ, Name: "timer", Count: 3, NS: 1e7, MostNS: 5e6, At: noon, Times: profiling.Histogram{3}}}}}},
		CallCounts: &profiling.CallCounts{Calls: 12, Lost: 1, Edges: []profiling.CallCount{{From: "ksys_write", To: "vfs_write", Calls: 12}}},
		PGO:        &profiling.PGO{Archives: []profiling.Archive{{Node: "n1", BuildID: "ab", Name: "counters.tar.gz", Files: 9, Bytes: 100}}},
	}
}

func run() Run {
	return Run{ID: 3, State: "partial", Reason: "n1: disk full", Job: "12_1", User: "alice", Kernel: "mitgcm@3", RequestedBy: "alice", Began: noon, Ended: noon.Add(time.Second)}
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	result, err := os.ReadFile("../../profiling/schema/run.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"report.schema.json": Schema, "run.schema.json": result} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(name, document); err != nil {
			t.Fatal(err)
		}
	}
	compiled, err := c.Compile("report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func TestSchema(t *testing.T) {
	s := schema(t)
	for name, result := range map[string]profiling.Result{"everything": full(), "nothing": {Format: profiling.Format}} {
		var out bytes.Buffer
		if err := New(run(), result, noon).WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(&out)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The schema knows a wrong report when it sees one.
	for name, change := range map[string]func(m map[string]any){
		"an unknown key":     func(m map[string]any) { m["more"] = 1 },
		"no decision":        func(m map[string]any) { delete(m, "decision") },
		"an unknown verdict": func(m map[string]any) { m["decision"].(map[string]any)["verdict"] = "perhaps" },
		"a wrong result":     func(m map[string]any) { m["result"].(map[string]any)["job"] = "twelve" },
	} {
		content, err := json.Marshal(New(run(), full(), noon))
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(content, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		if err := s.Validate(m); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// Every section is there, each with what it cost beside it, and nothing from
// outside becomes markup.
func TestPage(t *testing.T) {
	r := New(run(), full(), noon)
	var html, text bytes.Buffer
	if err := r.Document().WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if err := r.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"What would help", "kernel builder", "The job", "System calls", "Input and output", "call graph", "Noise", "Counters", "What profiling cost",
		"This collector took 1 % of the job", "Nothing measured in this run what this collector cost", "vfs_write", "disk full", "no tracepoint", "timer", "3 more are in the patterns"} {
		if !strings.Contains(html.String(), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	if strings.Contains(html.String(), "<script>alert") || strings.Contains(html.String(), "/out/</td>") || strings.Contains(html.String(), `="http`) {
		t.Error("the page has markup from outside, or links there")
	}
	for line := range strings.Lines(text.String()) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("a line has more than 80 columns: %q", line)
		}
	}
	said := strings.Join(strings.Fields(text.String()), " ")
	for _, part := range []string{"/out/</td>1.data 250 ms 90 ms 4.00 KiB wait_device 80 a.out ms, call 10 ms", "write 7 8 n1"} {
		if !strings.Contains(said, part) {
			t.Errorf("the text lacks %q: %s", part, text.String())
		}
	}
}

// Agents of 0.1.0 looked for no slow calls.
func TestResultWithoutSlowCalls(t *testing.T) {
	result := full()
	if said := text(t, result); !strings.Contains(said, "Slowest single calls, at most three") {
		t.Error("no slow calls")
	}
	result.Syscalls.Slowest = nil
	content, err := result.JSON()
	if err != nil || bytes.Contains(content, []byte("slowest")) {
		t.Fatalf("%s, %v", content, err)
	}
	old, err := profiling.ParseResult(content)
	if err != nil {
		t.Fatal(err)
	}
	if said := text(t, old); strings.Contains(said, "lowest") || !strings.Contains(said, "Calls CALL") {
		t.Errorf("of an old result: %s", said)
	}
	sum, err := profiling.Merge(old, full())
	if err != nil || len(sum.Syscalls.Slowest) != 1 {
		t.Errorf("%+v, %v", sum.Syscalls, err)
	}
}

func TestEmptyPage(t *testing.T) {
	var html bytes.Buffer
	if err := New(run(), profiling.Result{}, noon).Document().WriteHTML(&html); err != nil || !strings.Contains(html.String(), "CPU time is not known") {
		t.Error(err)
	}
}

func TestComparisonPage(t *testing.T) {
	a, b := compare.Side{Name: "run 1"}, compare.Side{Name: "run 2"}
	a.Runs, b.Runs = []profiling.Result{full()}, []profiling.Result{full()}
	c, err := compare.Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := ComparisonDocument(c, noon).WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"One run each: no significance can be stated.", "write: time", "untested", "is partial: disk full"} {
		if !strings.Contains(html.String(), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
}

// slurmstepd waits all the time; with it on top nobody finds the job's calls.
func TestSlurmsOwnIsLeftOut(t *testing.T) {
	result := full()
	result.Syscalls.Calls = append(result.Syscalls.Calls, profiling.Syscall{Name: "wait4", Count: 1, NS: 9e11})
	result.Syscalls.Processes = append(result.Syscalls.Processes, profiling.ProcessCalls{Node: "n1", PID: 3, Program: "slurmstepd", Name: "wait4", Count: 1, NS: 9e11})
	r := New(run(), result, noon)
	text := func(r Report) string {
		var out bytes.Buffer
		if err := r.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	const line = "Left out as Slurm's own: 1 calls of slurmstepd that took 15m0s. kernelctl run report 3 --slurm shows them."
	if without := text(r); strings.Count(without, line) != 1 || strings.Contains(without, "wait4") {
		t.Errorf("without Slurm's:\n%s", without)
	}
	if with := text(r.WithSlurms()); strings.Contains(with, "Left out") || !strings.Contains(with, "wait4") {
		t.Errorf("with Slurm's:\n%s", with)
	}
}
