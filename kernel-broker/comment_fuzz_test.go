// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"slices"
	"strings"
	"testing"
)

// An AdminComment keeps its earlier content and the user's choices that job_submit.lua removed from the job.
func FuzzAdminCommentOfAJob(f *testing.F) {
	for _, seed := range []string{
		"kernel-broker: mitgcm@3 requested; norequeue", "kernel-broker: mitgcm requested; profiling=io,noise | profiling=x",
		"kernel-broker: stock requested", "kernel-broker: ; profiling=io", "x | kernel-broker: mitgcm requested", "JS1:H4sIAA | kernel-broker: mitgcm requested; norequeue", "two\nlines | kernel-broker: mitgcm requested", "kernel-broker: ../x requested",
	} {
		f.Add(seed, "io")
	}
	f.Fuzz(func(t *testing.T, comment, collector string) {
		j := SlurmJob{AdminComment: comment}
		if ref, asked := j.Requested(); asked {
			if again, err := ParseRef(ref.String()); err != nil || again != ref || ref.IsStock() || !j.Submitted() {
				t.Errorf("%q asks for %q", comment, ref)
			}
		}
		if _, asked := j.Profiling(); asked && !j.Submitted() {
			t.Errorf("%q asks for collectors", comment)
		}
		if j.SaidNoRequeue() && !j.Submitted() {
			t.Errorf("%q parses as --no-requeue", comment)
		}
		if plain := (SlurmJob{AdminComment: Comment{Text: comment}.String()}); plain.SaidNoRequeue() || strings.Contains(plain.Comment(), commentProfiling) {
			t.Errorf("the text %q asks for something: %q", comment, plain.AdminComment)
		}
		if strings.ContainsAny(collector, ";,|\n") || collector == "" {
			return
		}
		// What is written of it is one part, whatever is in it, and behind whatever others write.
		part := Comment{Text: comment, Collectors: []string{collector, "noise"}}.String()
		for _, whole := range []string{part, comment + " | " + part, "JS1:H4s | kernel-broker: x | " + part} {
			with := SlurmJob{AdminComment: whole}
			if list, asked := with.Profiling(); !asked || !slices.Equal(strings.Split(list, ","), []string{collector, "noise"}) {
				t.Errorf("%q with %q has %q", comment, collector, list)
			}
		}
	})
}
