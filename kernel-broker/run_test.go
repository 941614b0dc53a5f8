// SPDX-License-Identifier: Apache-2.0

package kernelbroker_test

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestValidateRunFiles(t *testing.T) {
	file := func(name string, size uint64) kb.Document {
		return kb.Document{Name: name, Digest: "sha256:" + strings.Repeat("ab", 32), Size: size}
	}
	result := file(kb.ResultFile, 10)
	for name, files := range map[string][]kb.Document{
		"none": nil, "no result": {file("a.tar.gz", 1)}, "twice": {result, result}, "a path": {result, file("../x", 1)},
		"hidden": {result, file(".x", 1)}, "a space": {result, file("a b", 1)}, "no name": {result, file("", 1)}, "a long name": {result, file(strings.Repeat("x", 200), 1)},
		"too large": {result, file("a", 95)}, "very large": {result, file("a", 1<<63)}, "too many": {result, file("a", 1), file("b", 1), file("c", 1), file("d", 1)},
		"no digest": {{Name: kb.ResultFile}},
	} {
		if err := kb.ValidateRunFiles(files, 100); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := kb.ValidateRunFiles([]kb.Document{result, file("gcov-Node1.tar.gz", 90)}, 100); err != nil {
		t.Error(err)
	}
}

func TestWants(t *testing.T) {
	for _, c := range []struct {
		run  kb.Run
		want bool
	}{
		{kb.Run{Application: "mitgcm"}, true},
		{kb.Run{Profile: "mitgcm"}, true},
		{kb.Run{Profile: "lammps"}, false},
		{kb.Run{Application: "LAMMPS"}, false},
		{kb.Run{}, false},
		{kb.Run{Profile: "mitgcm", Job: kb.JobID{Job: 7}}, false},
		{kb.Run{Profile: "mitgcm", State: kb.RunFailed}, false},
	} {
		if got := c.run.Wants("mitgcm", "MITgcm"); got != c.want {
			t.Errorf("%+v: %v", c.run, got)
		}
	}
}

// Only job_submit.lua's own part of the comment counts.
func TestProfilingOfAComment(t *testing.T) {
	for comment, want := range map[string]string{
		"kernel-broker: mitgcm requested; profiling=io,noise; norequeue | x": "io,noise",
		"JS1:H4s | kernel-broker: mitgcm requested; profiling=io; norequeue": "io",
		"a\nb | kernel-broker: mitgcm requested; profiling=io":               "io",
		"kernel-broker: x; profiling=noise | kernel-broker: y; profiling=io": "io",
		"kernel-broker: mitgcm requested\n; profiling=io":                    "none",
		"kernel-broker: stock requested; profiling=io":                       "io",
		"kernel-broker: stock requested; profiling=":                         "",
		"kernel-broker: mitgcm requested":                                    "none",
		"kernel-broker: mitgcm requested | ; profiling=io":                   "none",
		"; profiling=io": "none",
		"":               "none",
	} {
		j := kb.SlurmJob{AdminComment: comment}
		got, asked := j.Profiling()
		if !asked {
			got = "none"
		}
		if got != want {
			t.Errorf("%q: %q", comment, got)
		}
	}
	again := kb.Comment{Text: "runs on a@1 | b,\nkernel 6.1", Collectors: []string{"io", "noise"}}.String()
	if got, asked := (kb.SlurmJob{AdminComment: "x | " + again}).Profiling(); !asked || got != "io,noise" {
		t.Errorf("%q: %q", again, got)
	}
	for comment, want := range map[string]bool{
		"kernel-broker: a requested; norequeue": true, "JS1:H4s | kernel-broker: a requested; norequeue": true, "kernel-broker: a requested | JS1:; norequeue": false,
		"kernel-broker: a requested; profiling=io; norequeue | x": true,
		"kernel-broker: a requested":                              false, "kernel-broker: a requested | ; norequeue": false, "; norequeue": false,
	} {
		if got := (kb.SlurmJob{AdminComment: comment}).SaidNoRequeue(); got != want {
			t.Errorf("%q: norequeue %v", comment, got)
		}
	}
}
