// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// result is a run with so many milliseconds in the kernel and one call of read.
func result(kernelMS uint64) profiling.Result {
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return profiling.Result{
		Nodes: []profiling.Node{{Name: "n1", Kernel: profiling.Kernel{Release: "6.1"}, Begin: begin, End: begin.Add(2 * time.Second),
			JobNS: 1e9, SystemNS: kernelMS * 1e6, UserNS: 1e9 - kernelMS*1e6}},
		Syscalls: &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "read", Count: 10, NS: kernelMS * 1e6}}},
	}
}

func side(name string, kernelMS ...uint64) Side {
	s := Side{Name: name}
	for _, ms := range kernelMS {
		s.Runs = append(s.Runs, result(ms))
	}
	return s
}

func (c Comparison) row(name string) Row {
	i := slices.IndexFunc(c.Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}
	}
	return c.Rows[i]
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name     string
		a, b     []uint64
		standing Standing
		says     string
	}{
		{"one run each", []uint64{100}, []uint64{50}, Untested, "One run each: no significance can be stated."},
		{"two and one", []uint64{100, 101}, []uint64{50}, Untested, "2 and 1 runs: no significance can be stated with fewer than 3"},
		{"clearly less", []uint64{100, 101, 102}, []uint64{50, 51, 52}, Less, "Welch's test gives p below 0.05"},
		{"clearly more", []uint64{50, 51, 52}, []uint64{100, 101, 102}, More, ""},
		{"chance", []uint64{100, 140, 60}, []uint64{95, 150, 70}, Unclear, ""},
		{"the same", []uint64{100, 100, 100}, []uint64{100, 100, 100}, Equal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Compare(side("a", c.a...), side("b", c.b...))
			if err != nil || !strings.Contains(got.Significance, c.says) {
				t.Fatalf("%v: %s", err, got.Significance)
			}
			if r := got.row("in the kernel"); r.Standing != c.standing || (r.P != nil) != (c.standing != Untested) || r.Change == nil {
				t.Errorf("%+v", r)
			}
			if len(got.Unequal) != 0 {
				t.Error(got.Unequal)
			}
		})
	}
}

func TestUnequal(t *testing.T) {
	a, b := side("a", 1), side("b", 1)
	a.Runs[0].Partial = []profiling.Partial{{Why: "disk full"}}
	b.Runs = append(b.Runs, result(1))
	b.Runs[1].Nodes = append(b.Runs[1].Nodes, b.Runs[1].Nodes[0])
	b.Runs[1].Nodes[1].Name = "n2"
	got, err := Compare(a, b)
	text := strings.Join(got.Unequal, "; ")
	if err != nil || !strings.Contains(text, "a run of a (its number 1) is partial: disk full") ||
		!strings.Contains(text, "the runs of b are not alike: 1 nodes on 6.1, and 2 nodes on 6.1") {
		t.Errorf("%v: %s", err, text)
	}
}

// Two versions of a profile's kernel have one release.
func TestUnequalBuilds(t *testing.T) {
	a, b := side("a", 1, 2), side("b", 1)
	for _, s := range []Side{a, b} {
		for i := range s.Runs {
			s.Runs[i].Nodes[0].Kernel.BuildID = "0123456789abcdef"
		}
	}
	got, err := Compare(a, b)
	if err != nil || len(got.Unequal) != 0 {
		t.Errorf("%v: %q", err, got.Unequal)
	}
	a.Runs[1].Nodes[0].Kernel.BuildID = "fedcba9876543210"
	got, err = Compare(a, b)
	const want = "the runs of a are not alike: 1 nodes on 6.1 (build 0123456789ab), and 1 nodes on 6.1 (build fedcba987654)"
	if err != nil || !slices.Equal(got.Unequal, []string{want}) {
		t.Errorf("%v: %q", err, got.Unequal)
	}
}

// A node whose agent was restarted, or whose job had pauses between its steps, has several parts in a run.
func TestPartsOfANode(t *testing.T) {
	a, b := side("a", 1), side("b", 1)
	second := b.Runs[0].Nodes[0]
	second.Begin, second.End = second.End, second.End.Add(time.Second)
	b.Runs[0].Nodes = append(b.Runs[0].Nodes, second)
	got, err := Compare(a, b)
	if err != nil || len(got.Unequal) != 0 {
		t.Errorf("%v: %q", err, got.Unequal)
	}
	if r := got.row("observed"); r.A.Median != 2 || r.B.Median != 3 {
		t.Errorf("observed: %+v and %+v", r.A, r.B)
	}
}

// A figure that only one side has is shown, and not judged.
func TestOneSided(t *testing.T) {
	a, b := side("a", 1, 2, 3), side("b", 1, 2, 3)
	for i := range b.Runs {
		b.Runs[i].Noise = &profiling.Noise{CPUs: []profiling.CPUNoise{{WantedNS: 10, LostNS: 1}}}
	}
	got, err := Compare(a, b)
	if r := got.row("taken by others"); err != nil || r.A != nil || r.B == nil || r.Standing != Untested || r.Change != nil {
		t.Errorf("%v: %+v", err, r)
	}
	if _, err := Compare(a, Side{Name: "b"}); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
}

// With the sides exchanged, less becomes more.
func TestAntisymmetric(t *testing.T) {
	opposite := map[Standing]Standing{Less: More, More: Less, Equal: Equal, Unclear: Unclear, Untested: Untested}
	rapid.Check(t, func(rt *rapid.T) {
		times := rapid.SliceOfN(rapid.Uint64Range(0, 900), 1, 5)
		a, b := side("a", times.Draw(rt, "a")...), side("b", times.Draw(rt, "b")...)
		one, err := Compare(a, b)
		if err != nil {
			rt.Fatal(err)
		}
		other, err := Compare(b, a)
		if err != nil {
			rt.Fatal(err)
		}
		for _, row := range one.Rows {
			if back := other.row(row.Name); back.Standing != opposite[row.Standing] {
				rt.Fatalf("%s is %s one way and %s the other", row.Name, row.Standing, back.Standing)
			}
		}
	})
}
