// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"
	"strings"
	"testing"
)

var rules = DefaultRules()

func sample(kernel string, exact bool, values ...float64) Sample {
	return Sample{
		Workload: "write8", Metric: KernelWeighed, Unit: "instructions/operation", Kernel: kernel,
		Exact: exact, Values: values, Size: 50000, Seed: 7, Operations: 50000,
	}
}

func side(kernel string, exact bool, values ...float64) Side {
	return Side{Kernel{Name: kernel}, sample(kernel, exact, values...)}
}

func TestCompare(t *testing.T) {
	cases := []struct {
		name   string
		a, b   Side
		want   Standing
		method string
		reason string
	}{
		{"exact and fewer", side("pgo", true, 1230), side("slim", true, 1280), Better, ByExactCount, "fewer"},
		{"exact and more", side("pgo", true, 1282, 1282), side("slim", true, 1280), Worse, ByExactCount, "more"},
		{"exact, and too near", side("pgo", true, 1281, 1281), side("slim", true, 1280), Unclear, ByExactCount, "no more than 0.1 %, which builds of one kernel"},
		{"varied, and too near", side("pgo", false, 99_999, 99_999, 99_999), side("slim", false, 100_000, 100_000, 100_000), Unclear, ByWelch, "no more than 0.1 %"},
		{"exact and the same", side("pgo", true, 1280), side("slim", true, 1280, 1280), Equal, ByExactCount, "same"},
		{"varied and apart", side("pgo", false, 90, 91, 92), side("slim", false, 100, 101, 102), Better, ByWelch, "p ="},
		{"within the spread", side("pgo", false, 90, 95, 110), side("slim", false, 99, 99, 99), Unclear, ByWelch, "within the spread of 10"},
		// The quartiles are near, and the few far values make it chance.
		{"beyond the spread, by chance", side("pgo", false, 1, 90, 90, 90, 90), side("slim", false, 100, 100, 100, 100, 280), Unclear, ByWelch, "not significant"},
		{"too few", side("pgo", false, 90, 91), side("slim", false, 100, 101, 102), Unclear, ByWelch, "2 repetitions on pgo, 3 are needed"},
		{"exact against varied", side("pgo", true, 90), side("slim", false, 100, 101, 102), Better, ByWelch, "p ="},
		{"exact in word only", side("pgo", true, 90, 91, 92), side("slim", true, 100, 101, 102), Better, ByWelch, "said to be exact"},
		{"no value", side("pgo", true), side("slim", true, 1), Incomparable, "", "pgo: no value"},
		{"a bad value", side("pgo", true, 1), side("slim", true, -1), Incomparable, "", "slim: -1"},
	}
	for _, c := range cases {
		got := Compare(c.a, c.b, rules)
		if got.Standing != c.want || got.Method != c.method || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: %s by %q: %s; want %s by %q: %s", c.name, got.Standing, got.Method, got.Reason, c.want, c.method, c.reason)
		}
	}
}

// Mostly faster, and now and then so slow that the mean is worse.
func TestMedianAgainstMean(t *testing.T) {
	values := slices.Concat(slices.Repeat([]float64{90}, 80), slices.Repeat([]float64{200}, 20))
	got := Compare(side("pgo", false, values...), side("slim", true, 100), rules)
	if got.Standing != Unclear || !strings.Contains(got.Reason, "contradict") {
		t.Errorf("%s: %s", got.Standing, got.Reason)
	}
}

// As two kernels that differ in nothing, of which one was measured while the host was busy.
func TestTheHostsClockTellsNothing(t *testing.T) {
	a, b := side("pgo", false, 90, 91, 90), side("slim", false, 99, 99, 99)
	if got := Compare(a, b, rules); got.Standing != Better {
		t.Fatalf("%s: %s", got.Standing, got.Reason)
	}
	b.Sample.HostClock = true
	got := Compare(a, b, rules)
	if got.Standing != Unclear || !strings.Contains(got.Reason, "the host's clock") || !got.HostClock || got.Test == nil {
		t.Errorf("%s: %s, %+v", got.Standing, got.Reason, got)
	}
	if whole := CompareAll([]Side{a, a}, []Side{b, b}, rules); whole.Standing != Unclear {
		t.Errorf("in parts: %s: %s", whole.Standing, whole.Reason)
	}
}

func TestCompareOnlyLikeWithLike(t *testing.T) {
	for name, change := range map[string]func(*Sample){
		"workloads":             func(s *Sample) { s.Workload = "tcp" },
		"metrics":               func(s *Sample) { s.Metric = TakenBranches },
		"units":                 func(s *Sample) { s.Unit = "seconds" },
		"sizes":                 func(s *Sample) { s.Size++ },
		"seeds":                 func(s *Sample) { s.Seed++ },
		"numbers of operations": func(s *Sample) { s.Operations-- },
	} {
		a, b := side("pgo", true, 90), side("slim", true, 100)
		change(&a.Sample)
		got := Compare(a, b, rules)
		if got.Standing != Incomparable || !strings.Contains(got.Reason, "different "+name) {
			t.Errorf("%s differ: %s, %s", name, got.Standing, got.Reason)
		}
	}
	stray := side("pgo", true, 90)
	stray.Sample.Kernel = "clang"
	if got := Compare(stray, side("slim", true, 100), rules); got.Standing != Incomparable {
		t.Errorf("another kernel's sample: %s", got.Standing)
	}
}

func TestUnequalMitigationsStandInTheTitle(t *testing.T) {
	a, b := side("pgo", true, 90), side("stock", true, 100)
	a.Kernel.Mitigations = []string{"pti", "retpoline"}
	b.Kernel.Mitigations = []string{"retpoline", "pti"}
	if got := Compare(a, b, rules); got.Unequal != nil {
		t.Errorf("the order of mitigations counts: %v", got.Unequal)
	}
	b.Kernel.Mitigations = []string{"retpoline", "ibrs"}
	got := Compare(a, b, rules)
	title := "pgo against stock: write8, kernel instructions (strings weighed) - AT unequal mitigations: ibrs, pti"
	if got.Title() != title {
		t.Errorf("title %q", got.Title())
	}
	if got.Change == nil || !near(*got.Change, -0.1) {
		t.Errorf("change %v", got.Change)
	}
}

// As a kernel with KVM and one without say of themselves on one machine.
func TestMitigationsOfHostsDoNotCount(t *testing.T) {
	slim := []string{"itlb_multihit: Processor vulnerable", "l1tf: Mitigation: PTE Inversion", "meltdown: Mitigation: PTI", "vmscape: Not affected"}
	stock := []string{"itlb_multihit: KVM: Mitigation: VMX unsupported", "l1tf: Mitigation: PTE Inversion; VMX: EPT disabled", "meltdown: Mitigation: PTI", "vmscape: Mitigation: IBPB before exit to userspace"}
	for _, c := range []struct {
		slim, stock []string
		want        string
	}{
		{slim, stock, ""},
		{slim[1:], stock, ""},
		{append(slim[:2:2], "meltdown: Vulnerable"), stock, "unequal mitigations: meltdown"},
		{[]string{"l1tf: Vulnerable", "meltdown: Mitigation: PTI"}, stock, "unequal mitigations: l1tf"},
	} {
		got := unequalMitigations(Kernel{Name: "slim", Mitigations: c.slim}, Kernel{Name: "stock", Mitigations: c.stock})
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.slim, got, c.want)
		}
	}
}

func TestTrainingDataIsNoTest(t *testing.T) {
	cases := []struct {
		trained Run
		want    string
	}{
		{Run{"write8", 1, 20000}, ""},
		{Run{"tcp", 7, 50000}, ""},
		{Run{"write8", 7, 50000}, "seed 7 and size 50000"},
		{Run{"write8", 7, 20000}, "with seed 7"},
		{Run{"write8", 1, 50000}, "with size 50000"},
	}
	for _, c := range cases {
		for _, swap := range []bool{false, true} {
			a, b := side("pgo", true, 90), side("slim", true, 100)
			a.Kernel.Trained = []Run{{"lmbench", 1, 1}, c.trained}
			if swap {
				a, b = b, a
			}
			got := strings.Join(Compare(a, b, rules).Unequal, "")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("trained on %+v: %q, want %q", c.trained, got, c.want)
			}
		}
	}
}

func TestCompareWithNothing(t *testing.T) {
	got := Compare(side("pgo", true, 5), side("slim", true, 0), rules)
	if got.Change != nil || got.Standing != Worse {
		t.Errorf("from 0: change %v, %s", got.Change, got.Standing)
	}
}

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{
		0: "0 %", -0.045: "-4.5 %", 0.4: "+40.0 %", -0.00004: "-0.004 %", 0.000000123: "+1e-5 %",
	} {
		if got := Percent(share); got != want {
			t.Errorf("%v: %q, want %q", share, got, want)
		}
	}
}
