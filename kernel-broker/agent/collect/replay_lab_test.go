// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"encoding/json"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// said is the replay's report about itself.
type said struct {
	OK       bool
	Patterns map[string]did
	Total    did
}

type did struct{ Files, Reads, Writes, Seeks, Bytes uint64 }

// replay repeats MITgcm's input and output. The program creates its input files itself, with pwrite and before it
// counts; the patterns keep them apart.
func replay(t *testing.T) {
	j := newJob(t, nil, files.Collector{}, syscalls.Collector{})
	out, err := j.command("mitgcm-io", "--dir", t.TempDir(), "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var program said
	if err := json.Unmarshal(out, &program); err != nil || !program.OK {
		t.Fatalf("the replay said %s: %v", out, err)
	}
	result := j.result()
	for _, p := range result.IO.Patterns {
		t.Logf("%s | %s | %d files, %d reads, %d writes, %d bytes, %d seeks (%d idle)", p.Behaviour, p.Shape, p.Files,
			p.Read.Calls, p.Write.Calls, p.Bytes, p.Seeks, p.IdleSeeks)
		for _, a := range p.Advice {
			t.Logf("    %s: %s", a.What, a.Why)
		}
	}
	j.call(result, "write", float64(program.Total.Writes+1)) // and one for its report
	j.call(result, "lseek", float64(program.Total.Seeks))
	for name, want := range map[string]struct{ behaviour, ending string }{
		"meta": {patterns.OneSmallWrite, ".meta"},
		"data": {patterns.SmallAppends, ".data"},
		"log":  {patterns.SmallAppends, ".log"},
		"bin":  {patterns.BlockReads, "/input_*.bin"},
	} {
		got, ok := found(result.IO, want.behaviour, want.ending)
		p := program.Patterns[name]
		if !ok || got.Files != p.Files || got.Write.Calls != p.Writes || got.Read.Calls != p.Reads ||
			got.Bytes != p.Bytes || got.Seeks != p.Seeks {
			t.Errorf("%s: found %+v, was %+v", name, got, p)
		}
	}
	if bin, _ := found(result.IO, patterns.BlockReads, "/input_*.bin"); bin.Read.Most != 4096 {
		t.Errorf("bin: %+v", bin.Read)
	}
}

// found is the pattern of that behaviour whose files have this ending.
func found(io *profiling.IO, behaviour, ending string) (profiling.Pattern, bool) {
	for _, p := range io.Patterns {
		if p.Behaviour == behaviour && len(p.Shape) >= len(ending) && p.Shape[len(p.Shape)-len(ending):] == ending {
			return p, true
		}
	}
	return profiling.Pattern{}, false
}
