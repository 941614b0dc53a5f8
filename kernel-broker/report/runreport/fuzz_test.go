// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/pprof"
)

// FuzzReport makes a report of whatever a node delivers, merged with another
// node's. File names in it are the job's own: nothing in the text moves the
// reader's cursor, and no element of the page is theirs.
func FuzzReport(f *testing.F) {
	whole := profiling.Result{Format: profiling.Format, Nodes: []profiling.Node{{Name: "n1", CPUs: 2, JobNS: 5}}, Collectors: profiling.Collectors(),
		IO: &profiling.IO{Files: []profiling.File{{Node: "n1", Path: "/data/<script>\x1b[2J", Opens: 1,
			Write: profiling.Traffic{Calls: 3, Bytes: 30, Least: 10, Most: 10, Sizes: profiling.Histogram{0, 0, 0, 3}}}}},
		Syscalls: &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "write", Count: 3, NS: 30, MostNS: 20, Times: profiling.Histogram{0, 3},
			Split: map[profiling.Cause]profiling.Part{}}},
			Slowest: []profiling.SlowCall{{Name: "write", Node: "n1", Program: "\x1b[2J", NS: 20, Failed: true, File: "/data/<script>\x1b[2J",
				Split: map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: 20}}}}},
		CallGraph: &profiling.CallGraph{PeriodNS: 1, Kernel: 2, Stacks: []profiling.Stack{{Frames: []string{"a", "b"}, Samples: 2}}},
		Noise:     &profiling.Noise{Method: "bpf", CPUs: []profiling.CPUNoise{{Node: "n1", WantedNS: 5, LostNS: 1, Sources: []profiling.NoiseSource{{Kind: profiling.NoiseIRQ, Name: "x", Count: 1, NS: 1}}}}},
	}
	text, err := whole.JSON()
	if err != nil {
		f.Fatal(err)
	}
	empty, err := profiling.Result{Format: profiling.Format}.JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, text)
	f.Add(text, empty)
	f.Add(empty, []byte(`{"format":1,"io":{},"syscalls":{"calls":[{}],"slowest":[{},{"bytes":0,"at":"9999-01-01T00:00:00Z"}]},"callgraph":{"stacks":[{}]},"noise":{"cpus":[{}]},"pgo":{},"callcounts":{"edges":[{}]}}`))
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a, err := profiling.ParseResult(first)
		if err != nil {
			return
		}
		b, err := profiling.ParseResult(second)
		if err != nil {
			return
		}
		sum, err := profiling.Merge(a, b)
		if err != nil {
			return
		}
		r := New(Run{ID: 1, Job: "7"}, sum, now)
		var plain, html bytes.Buffer
		if err := r.WriteJSON(io.Discard); err != nil {
			t.Errorf("JSON: %v", err)
		}
		if err := r.WriteText(&plain); err != nil {
			t.Errorf("text: %v", err)
		}
		if err := r.WriteHTML(&html); err != nil {
			t.Errorf("page: %v", err)
		}
		if i := strings.IndexFunc(plain.String(), func(c rune) bool { return unicode.IsControl(c) && c != '\n' }); i >= 0 {
			t.Errorf("the text has %q", plain.String()[i:min(i+20, plain.Len())])
		}
		if bytes.Contains(html.Bytes(), []byte("<script>\x1b")) {
			t.Error("a file name became a part of the page")
		}
		if sum.CallGraph != nil {
			if err := pprof.Write(io.Discard, sum.CallGraph); err != nil {
				t.Errorf("pprof: %v", err)
			}
		}
	})
}
