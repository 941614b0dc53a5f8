// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestPhases(t *testing.T) {
	timeline := []Event{
		{at(1), "", "accepted"},
		{at(2), "n1", "loaded"}, {at(3), "n2", "loaded"},
		// n1 is ahead: the job waits for n2.
		{at(2.5), "n1", "booted"}, {at(6), "n2", "booted"},
		{at(6.5), "", "ready"},
		{at(6.9), "", "running"}, // seen by the broker before us
		{at(20), "n1", "booted"}, // the boot back
	}
	got := phases(timeline, at(0), at(7))
	want := []phase{{"accepted", 1}, {"loaded", 2}, {"booted", 3}, {"ready", 0.5}, {"running", 0.5}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	sum := 0.0
	for i := range want {
		sum += got[i].seconds
		if got[i].name != want[i].name || math.Abs(got[i].seconds-want[i].seconds) > 1e-6 {
			t.Errorf("phase %d: got %v, want %v", i, got[i], want[i])
		}
	}
	if math.Abs(sum-7) > 1e-6 {
		t.Errorf("the phases sum up to %v, the switch took 7 s", sum)
	}
}

// A broker that wrote nothing down leaves one phase, which is the whole time.
func TestPhasesOfNothing(t *testing.T) {
	got := phases(nil, at(0), at(7))
	if len(got) != 1 || got[0].seconds != 7 {
		t.Errorf("got %v", got)
	}
}

func TestParseMoment(t *testing.T) {
	m, err := parseMoment("17 1000000000 3500000000 9")
	if err != nil || m.job != "17" || m.seconds() != 2.5 || m.looks != 9 {
		t.Errorf("got %v, %v", m, err)
	}
	for _, line := range []string{"", "17 1 2", "17 2 1 1", "17 1 2 0", "17 x 2 1", "17 1 2 3 4"} {
		if m, err := parseMoment(line); err == nil {
			t.Errorf("%q: accepted as %v", line, m)
		}
	}
}

func filled(switched, reuse, stock float64) *figures.Book {
	b := &figures.Book{}
	for name, v := range map[string]float64{
		switchTime: switched, floorTime: 4, plainStock: 1, resetTime: 20, reuseTime: reuse, plainHandover: 1, productStock: stock,
	} {
		b.Add(name, "", v)
	}
	return b
}

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		name string
		in   *figures.Book
		met  string
	}{
		{"all met", filled(5.7, 1.5, 1.01), "+++++"},
		{"a slow switch", filled(8, 1.5, 1.01), "-++++"},
		{"slower than half a reset", filled(11, 1.5, 1.01), "---++"},
		{"slower than half a reset, and faster than half of one and a start", filled(10.3, 1.5, 1.01), "--+++"},
		{"slow reuse", filled(5.7, 2.5, 1.01), "+++-+"},
		{"slow stock jobs", filled(5.7, 1.5, 1.2), "++++-"},
	} {
		met := ""
		for _, g := range goals(c.in) {
			met += map[bool]string{true: "+", false: "-"}[g.Met]
		}
		if met != c.met {
			t.Errorf("%s: got %s, want %s", c.name, met, c.met)
		}
	}
	if got := goals(&figures.Book{}); len(got) != 0 {
		t.Errorf("goals of nothing: %v", got)
	}
}

func TestPrint(t *testing.T) {
	b := filled(8, 1.5, 1.01)
	r := Result{Measures: b.Measures, Goals: goals(b), Trouble: []string{"something"}}
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"goal met", "goal not met", "1.60", "did not work: something", "8.00-8.00"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("%q is not in:\n%s", word, out.String())
		}
	}
}
