// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

const two = `{"format": 3, "unended": 0, "unbalanced": 0, "lost": 0, "regions": [
{"marker": 1, "user": {"instructions": 100, "rep_iterations": 0, "strings": 0, "string_bytes": 0, "branches": 0, "taken_branches": 0, "mispredictions": 0, "l1i_misses": 0, "itlb_misses": 1, "l1d_misses": 4, "dtlb_misses": 6}, "kernel": {"instructions": 5000, "rep_iterations": 40, "strings": 3, "string_bytes": 320, "branches": 30, "taken_branches": 20, "mispredictions": 3, "l1i_misses": 2, "itlb_misses": 1, "l1d_misses": 50, "dtlb_misses": 8}, "text_lines": 90, "text_pages": 11},
{"marker": 2, "user": {"instructions": 7, "rep_iterations": 0, "strings": 0, "string_bytes": 0, "branches": 0, "taken_branches": 0, "mispredictions": 0, "l1i_misses": 0, "itlb_misses": 0, "l1d_misses": 0, "dtlb_misses": 0}, "kernel": {"instructions": 9000, "rep_iterations": 0, "strings": 0, "string_bytes": 0, "branches": 0, "taken_branches": 0, "mispredictions": 0, "l1i_misses": 0, "itlb_misses": 0, "l1d_misses": 0, "dtlb_misses": 0}, "text_lines": 0, "text_pages": 0}]}
`

var said = []workload.Region{{Marker: 1, Name: "one", Operations: 10}, {Marker: 2, Name: "two", Operations: 3}}

func read(t *testing.T, text string, said []workload.Region) ([]Region, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counts.json")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return readCounts(path, said)
}

func TestReadCounts(t *testing.T) {
	got, err := read(t, two, said)
	want := []Region{
		{Name: "one", Operations: 10, Marker: 1, User: Counts{Instructions: 100, ITLBMisses: 1, L1DMisses: 4, DTLBMisses: 6}, Kernel: Counts{
			Instructions: 5000, RepIterations: 40, Strings: 3, StringBytes: 320, Branches: 30, TakenBranches: 20, Mispredictions: 3, L1IMisses: 2, ITLBMisses: 1, L1DMisses: 50, DTLBMisses: 8},
			TextLines: 90, TextPages: 11},
		{Name: "two", Operations: 3, Marker: 2, User: Counts{Instructions: 7}, Kernel: Counts{Instructions: 9000}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("regions are %+v, %v", got, err)
	}
	swapped := []workload.Region{said[1], said[0]}
	for name, c := range map[string]struct {
		text string
		said []workload.Region
		want string
	}{
		"nothing":          {"", said, "EOF"},
		"cut":              {two[:200], said, "unexpected EOF"},
		"more behind":      {two + "{}", said, "more than one value"},
		"the old format":   {strings.Replace(two, `"format": 3`, `"format": 2`, 1), said, "format 2, only 3 is known"},
		"without data":     {strings.Replace(two, `, "l1d_misses": 50, "dtlb_misses": 8`, "", 1), said, "a key is missing"},
		"without strings":  {strings.Replace(two, `"strings": 3, "string_bytes": 320, `, "", 1), said, "a key is missing"},
		"without text":     {strings.Replace(two, `, "text_pages": 11`, "", 1), said, "a key is missing"},
		"a key twice":      {strings.Replace(two, `"text_pages": 11`, `"text_pages": 11, "text_pages": 11`, 1), said, "stands twice"},
		"below nothing":    {strings.Replace(two, `"l1d_misses": 50`, `"l1d_misses": -1`, 1), said, "cannot unmarshal number -1"},
		"a null":           {strings.Replace(two, `"l1d_misses": 50`, `"l1d_misses": null`, 1), said, "a key is missing"},
		"an unknown key":   {strings.Replace(two, "unended", "unfinished", 1), said, "unknown field"},
		"without an end":   {strings.Replace(two, `"unended": 0`, `"unended": 1`, 1), said, "1 regions without an end"},
		"out of order":     {strings.Replace(two, `"unbalanced": 0`, `"unbalanced": 2`, 1), said, "2 markers out of order"},
		"lost":             {strings.Replace(two, `"lost": 0`, `"lost": 4`, 1), said, "4 regions lost"},
		"one too many":     {two, said[:1], "2 regions, the workload speaks of 1"},
		"in another order": {two, swapped, "region 1 is of marker 1, the workload says 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(t, c.text, c.said); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}

func measured(t *testing.T, kernel string, w workload.Workload, texts ...string) Measurement {
	t.Helper()
	m := Measurement{Kernel: kernel, Workload: w.Name}
	for _, text := range texts {
		regions, err := read(t, text, said)
		if err != nil {
			t.Fatal(err)
		}
		m.Runs = append(m.Runs, regions)
	}
	if err := m.samples(w, workload.Parameters{Seed: 7, Size: 10}); err != nil {
		t.Fatal(err)
	}
	return m
}

// A workload says itself what its regions are: it may say another thing each time.
func TestRepetitionsOfOtherRegions(t *testing.T) {
	one, two := Region{Marker: 1, Name: "one", Operations: 1}, Region{Marker: 2, Name: "two", Operations: 1}
	for want, runs := range map[string][][]Region{
		"repetition 2 has 1 regions, the first has 2":  {{one, two}, {one}},
		"repetition 3 has 2 regions, the first has 1":  {{one}, {one}, {one, two}},
		`region 1 of repetition 2 is "two", not "one"`: {{one}, {two}},
	} {
		m := Measurement{Runs: runs}
		if err := m.samples(workload.Workload{Name: "some"}, workload.Parameters{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Two kernels that move the same bytes and begin as often are equal in what decides, whatever the width of each of their
// strings; their iterations differ by up to eight times.
func TestWidthOfStringsDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Uint64Range(0, 1<<20), 1, 40).Draw(t, "lengths in eights")
		on := func(kernel string) verdict.Side {
			counts := Counts{Instructions: 1000 + uint64(len(lengths)), Strings: uint64(len(lengths))}
			for _, length := range lengths {
				width := rapid.SampledFrom([]uint64{1, 2, 4, 8}).Draw(t, "width on "+kernel)
				counts.RepIterations += length * 8 / width
				counts.StringBytes += length * 8
			}
			m := Measurement{Kernel: kernel, Workload: "w", Runs: [][]Region{{{Name: "all", Operations: 7, Kernel: counts}}}}
			if err := m.samples(workload.Workload{Name: "w", CPUs: 1}, workload.Parameters{}); err != nil {
				t.Fatal(err)
			}
			set, err := verdict.NewSet(m.Samples)
			if err != nil {
				t.Fatal(err)
			}
			sample, ok := set.Get(kernel, verdict.KernelWeighed, verdict.Run{Workload: "w"}, "")
			if !ok {
				t.Fatal("not weighed")
			}
			return verdict.Side{Kernel: verdict.Kernel{Name: kernel}, Sample: sample}
		}
		if c := verdict.Compare(on("one"), on("other"), verdict.DefaultRules()); c.Standing != verdict.Equal {
			t.Fatalf("%s: %s", c.Standing, c.Reason)
		}
	})
}

func TestSamples(t *testing.T) {
	w := workload.Workload{Name: "some", DiskMiB: 1, CPUs: 1}
	m := measured(t, "slim", w, two, strings.Replace(two, "5000", "5100", 1))
	if len(m.Samples) != 2*len(metrics) {
		t.Fatalf("%d samples", len(m.Samples))
	}
	want := verdict.Sample{
		Workload: "some", Part: "one", Metric: verdict.KernelWeighed, Unit: "instructions/operation",
		Kernel: "slim", Values: []float64{510, 520}, Size: 10, Seed: 7, Operations: 10,
	}
	if !reflect.DeepEqual(m.Samples[0], want) {
		t.Errorf("sample is %+v", m.Samples[0])
	}
	// What code ran is of the whole region, however many operations it had.
	for i, want := range map[int]float64{1: 10, 2: 500, 3: 10, 4: 0.3, 5: 32, 6: 2, 7: 0.3, 8: 0.2, 9: 0.1, 10: 5, 11: 0.8, 12: 90, 13: 11, 14: 3000} {
		if got := m.Samples[i].Values[0]; got != want {
			t.Errorf("%s of %s is %v, want %v", m.Samples[i].Metric, m.Samples[i].Part, got, want)
		}
	}
	w.DiskMiB = 0
	if m := measured(t, "slim", w, two); !m.Samples[0].Exact || len(m.Samples[0].Values) != 1 {
		t.Errorf("without a disk: %+v", m.Samples[0])
	}
}
