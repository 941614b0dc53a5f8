// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func fixture() Case {
	return Case{
		Application: Application{Name: "io", Test: Run{"write8", 7, 50000}, Kernel: "pgo"},
		Candidate:   Kernel{Name: "pgo", Trained: []Run{{"write8", 1, 20000}}},
		Current:     Kernel{Name: "slim"},
		Samples:     []Sample{sample("pgo", true, 1230), sample("slim", true, 1280)},
		Checks:      []CheckRun{{Workload: "write8", Kernel: "pgo", Passed: true}},
		Rules:       DefaultRules(),
	}
}

func inMetric(metric string, s Sample) Sample {
	s.Metric = metric
	return s
}

func TestDecide(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Case)
		want   kb.Outcome
		reason string
	}{
		{"a gain", func(*Case) {}, kb.OutcomeBenefit, "kernel instructions (strings weighed) -3.9 % on write8 (exact counts, and fewer)"},
		{"a loss", func(c *Case) { c.Samples[0].Values[0] = 1300 }, kb.OutcomeNoBenefit, "+1.6 %"},
		{"the same", func(c *Case) { c.Samples[0].Values[0] = 1280 }, kb.OutcomeNoBenefit, "the same"},
		// As measured of two builds that differ in a host name.
		{"another build of the same", func(c *Case) {
			c.Samples[0].Values[0], c.Samples[1].Values[0] = 5031.33, 5032.496
		}, kb.OutcomeNoBenefit, "builds of one kernel may differ"},
		{"a gain below the least", func(c *Case) { c.Rules.LeastGain = 0.05 }, kb.OutcomeNoBenefit, "less than the least gain of -5.0 %"},
		{
			"noise", func(c *Case) {
				c.Samples = []Sample{sample("pgo", false, 90, 95, 110), sample("slim", false, 99, 99, 99)}
			}, kb.OutcomeNoBenefit, "within the spread",
		},
		{
			"counts by the host's clock", func(c *Case) {
				c.Samples = []Sample{sample("pgo", false, 90, 90, 91), sample("slim", false, 99, 99, 99)}
				c.Samples[0].HostClock, c.Samples[1].HostClock = true, true
			}, kb.OutcomeRefused, "kernel instructions (strings weighed) -9.1 % on write8 (counted by the host's clock, so that the host's load is in it): a workload with one CPU allows a verdict",
		},
		{"a failed check", func(c *Case) {
			c.Checks = append(c.Checks, CheckRun{Workload: "fsx", Kernel: "pgo", Detail: "wrong bytes at 17"})
		}, kb.OutcomeNoBenefit, "not correct: fsx (wrong bytes at 17)"},
		{"somebody else's failed check", func(c *Case) {
			c.Checks = append(c.Checks, CheckRun{Workload: "fsx", Kernel: "slim", Detail: "wrong bytes"})
		}, kb.OutcomeBenefit, "fewer"},
		{"no check", func(c *Case) { c.Checks = nil }, kb.OutcomeRefused, "no check for correctness"},
		{"a workload without a check", func(c *Case) { c.Checks[0].NotChecked = true }, kb.OutcomeRefused, "no check for correctness ran on pgo"},
		{"the application's workload has no check", func(c *Case) {
			c.Checks[0].NotChecked, c.Required = true, []string{"write8"}
		}, kb.OutcomeRefused, `workload "write8" has no check: nothing says that pgo works`},
		{"one that fails without a check", func(c *Case) {
			c.Checks[0] = CheckRun{Workload: "write8", Kernel: "pgo", Detail: "run failed"}
		}, kb.OutcomeNoBenefit, "not correct: write8 (run failed)"},
		{"a check is missing", func(c *Case) { c.Required = []string{"write8", "fsx"} }, kb.OutcomeRefused, `check "fsx" did not run on pgo`},
		{"not measured", func(c *Case) { c.Samples = c.Samples[:1] }, kb.OutcomeRefused, "was not measured on both pgo and slim"},
		{"measured at another seed", func(c *Case) { c.Samples[1].Seed = 8 }, kb.OutcomeRefused, "seed 7"},
		{"measured on another workload", func(c *Case) {
			c.Samples[0].Workload, c.Samples[1].Workload = "tcp", "tcp"
		}, kb.OutcomeRefused, "write8"},
		{"measured twice", func(c *Case) { c.Samples = append(c.Samples, c.Samples[0]) }, kb.OutcomeRefused, "measured twice"},
		{"another amount of work", func(c *Case) { c.Samples[0].Operations = 1 }, kb.OutcomeRefused, "numbers of operations"},
		{"only models", func(c *Case) {
			for i := range c.Samples {
				c.Samples[i].Metric = L1IMisses
			}
		}, kb.OutcomeRefused, "was not measured"},
		{"mitigations off", func(c *Case) { c.Current.Mitigations = []string{"pti"} }, kb.OutcomeRefused, `unequal mitigations: pti is`},
		{"weaker than the current one", func(c *Case) {
			c.Candidate.Mitigations = []string{"meltdown: Vulnerable", "l1tf: Vulnerable"}
			c.Current.Mitigations = []string{"meltdown: Mitigation: PTI", "l1tf: Vulnerable"}
		}, kb.OutcomeRefused, `unequal mitigations: meltdown is "Vulnerable" on pgo, "Mitigation: PTI" on slim`},
		{"as weak as the current one, and weaker than stock", func(c *Case) {
			c.Candidate.Mitigations, c.Current.Mitigations = []string{"meltdown: Vulnerable"}, []string{"meltdown: Vulnerable"}
			c.Stock = Kernel{Name: "stock", Mitigations: []string{"meltdown: Mitigation: PTI"}}
		}, kb.OutcomeRefused, `"Mitigation: PTI" on stock`},
		{"as weak as the current one, and stock fails its workload", func(c *Case) {
			c.Candidate.Mitigations, c.Current.Mitigations = []string{"meltdown: Vulnerable"}, []string{"meltdown: Vulnerable"}
			c.Stock = Kernel{Name: "stock"}
			c.Checks = append(c.Checks, CheckRun{Workload: "write8", Kernel: "stock", Detail: "run failed"})
		}, kb.OutcomeRefused, "stock fails write8: what it does about the processor's flaws is not known"},
		{"stock fails its workload, where the site allows other mitigations", func(c *Case) {
			c.Rules.UnequalMitigations = true
			c.Stock = Kernel{Name: "stock"}
			c.Checks = append(c.Checks, CheckRun{Workload: "write8", Kernel: "stock", Detail: "run failed"})
		}, kb.OutcomeBenefit, "fewer)"},
		{"as stock", func(c *Case) {
			c.Candidate.Mitigations, c.Current.Mitigations = []string{"meltdown: Mitigation: PTI"}, []string{"meltdown: Mitigation: PTI"}
			c.Stock = Kernel{Name: "stock", Mitigations: []string{"meltdown: Mitigation: PTI"}}
		}, kb.OutcomeBenefit, "fewer)"},
		{"weaker, where the site allows it", func(c *Case) {
			c.Rules.UnequalMitigations = true
			c.Candidate.Mitigations, c.Current.Mitigations = []string{"meltdown: Vulnerable"}, []string{"meltdown: Mitigation: PTI"}
			c.Stock = Kernel{Name: "stock", Mitigations: []string{"meltdown: Mitigation: PTI", "mds: Mitigation: VERW"}}
		}, kb.OutcomeBenefit, "(exact counts, and fewer) - AT unequal mitigations: meltdown, against slim, which the site's policy allows - AT unequal mitigations: mds, meltdown, against stock"},
		{"trained on the test, where the site allows other mitigations", func(c *Case) {
			c.Rules.UnequalMitigations = true
			c.Candidate.Trained[0].Seed = 7
		}, kb.OutcomeRefused, "training data"},
		{"trained on the test", func(c *Case) { c.Candidate.Trained[0].Seed = 7 }, kb.OutcomeRefused, "training data"},
		{"the current one trained on the test", func(c *Case) {
			c.Current.Trained = []Run{{"write8", 7, 1}}
		}, kb.OutcomeRefused, "slim was trained"},
		{"itself", func(c *Case) { c.Current = c.Candidate }, kb.OutcomeRefused, "is the current kernel"},
		{"no rules", func(c *Case) { c.Rules = Rules{} }, kb.OutcomeRefused, "significance"},
		{"fewer instructions, more time", func(c *Case) {
			c.Samples = append(c.Samples,
				inMetric(WallTime, sample("pgo", false, 12, 12.1, 12.2)),
				inMetric(WallTime, sample("slim", false, 11, 11.1, 11.2)))
		}, kb.OutcomeNoBenefit, "wall time +9.0 %"},
		{"fewer instructions, unclear time", func(c *Case) {
			c.Samples = append(c.Samples,
				inMetric(WallTime, sample("pgo", false, 10, 11, 12)),
				inMetric(WallTime, sample("slim", false, 10, 11, 12.5)))
		}, kb.OutcomeBenefit, "wall time 0 % on write8 (the difference of 0 is within the spread"},
	}
	for _, c := range cases {
		one := fixture()
		c.change(&one)
		got := Decide(one)
		if got.Outcome != c.want || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: %s: %s; want %s: %s", c.name, got.Outcome, got.Reason, c.want, c.reason)
		}
	}
}

// Facts of before strings were weighed give the verdict and the gains that they gave; with a weighed count on one kernel
// they give none.
func TestPlainCountsDecideWhereNothingIsWeighed(t *testing.T) {
	c := fixture()
	c.Slim = c.Current
	for i := range c.Samples {
		c.Samples[i].Metric = KernelInstructions
	}
	own := user(sample("slim", true, 1280))
	own.Metric = UserInstructions
	c.Samples = append(c.Samples, own)
	got := Decide(c)
	if got.Outcome != kb.OutcomeBenefit || !strings.HasPrefix(got.Reason, "kernel instructions -3.9 % on write8") {
		t.Errorf("%s: %s", got.Outcome, got.Reason)
	}
	if len(got.Gains) != 1 || got.Gains[0].Metric != KernelInstructions || got.Gains[0].Share == nil || got.Gains[0].Share.Value != 0.5 {
		t.Errorf("gains are %+v", got.Gains)
	}
	c.Samples = append(c.Samples, sample("pgo", true, 1230))
	if got := Decide(c); got.Outcome != kb.OutcomeRefused || len(got.Gains) != 0 {
		t.Errorf("weighed on one kernel: %s: %s, %+v", got.Outcome, got.Reason, got.Gains)
	}
}

func TestRulesCheck(t *testing.T) {
	for _, bad := range []Rules{
		{Significance: 0, LeastRepetitions: 3}, {Significance: 1, LeastRepetitions: 3}, {Significance: 0.05, LeastRepetitions: 1},
		{0.05, 3, -1, 0, false}, {0.05, 3, 1, 0, false}, {0.05, 3, 0, -1, false}, {0.05, 3, 0, 1, false},
	} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	if err := DefaultRules().Check(); err != nil {
		t.Error(err)
	}
}
