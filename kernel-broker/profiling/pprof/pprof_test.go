// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"bytes"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func TestWriteReadsBack(t *testing.T) {
	graph := &profiling.CallGraph{PeriodNS: 2000000, Stacks: []profiling.Stack{
		{Frames: []string{"entry", "write", "copy"}, Samples: 6}, {Frames: []string{"entry", "write"}, Samples: 3},
	}}
	var out bytes.Buffer
	if err := Write(&out, graph); err != nil {
		t.Fatal(err)
	}
	back, err := profile.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	if len(back.Sample) != 2 || len(back.Function) != 3 || back.Period != 2000000 {
		t.Fatalf("profile is %v", back)
	}
	first := back.Sample[0]
	if first.Value[0] != 6 || first.Value[1] != 12000000 {
		t.Errorf("values are %v", first.Value)
	}
	for i, want := range []string{"copy", "write", "entry"} {
		if got := first.Location[i].Line[0].Function.Name; got != want {
			t.Errorf("frame %d is %q, not %q", i, got, want)
		}
	}
}
