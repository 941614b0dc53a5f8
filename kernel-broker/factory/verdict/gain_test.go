// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gainsOf the fixture after a change, by baseline.
func gainsOf(change func(*Case)) map[string]Gain {
	c := fixture()
	c.Slim, c.Stock = c.Current, Kernel{Name: "stock"}
	change(&c)
	gains := map[string]Gain{}
	for _, g := range Decide(c).Gains {
		gains[g.Baseline] = g
	}
	return gains
}

func user(s Sample) Sample { return inMetric(UserWeighed, s) }

// part of a run, of which the workload did so many operations.
func part(name string, operations int64, s Sample) Sample {
	s.Part, s.Operations = name, operations
	return s
}

func TestGain(t *testing.T) {
	shares := func(values ...float64) (runs []RunShare) {
		for i, v := range values {
			runs = append(runs, RunShare{Run: uint64(i + 3), Kernel: "stock@1", Share: v})
		}
		return runs
	}
	none := Estimate{-1, -1, -1}
	exactly := func(v float64) Estimate { return Estimate{v, v, v} }
	for name, c := range map[string]struct {
		samples              []Sample
		runs                 []RunShare
		change, share, whole Estimate
	}{
		"an eighth of the workload": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000), user(sample("slim", true, 7000))}, nil,
			exactly(-0.25), exactly(0.125), exactly(-0.03125),
		},
		"the candidate's own instructions do not count": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000), user(sample("pgo", true, 7000))}, nil,
			exactly(-0.25), none, none,
		},
		"nothing else was counted": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000)}, nil, exactly(-0.25), none, none,
		},
		"counted, and none of the program's": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000), user(sample("slim", true, 0))}, nil,
			exactly(-0.25), exactly(1), exactly(-0.25),
		},
		"all of it varies": {
			[]Sample{sample("pgo", false, 70, 75, 80), sample("slim", false, 90, 100, 125), user(sample("slim", false, 875, 900, 910))}, nil,
			Estimate{-0.25, 70./125 - 1, 80./90 - 1}, Estimate{0.1, 0.09, 0.125}, Estimate{-0.025, 0.125 * (70./125 - 1), 0.09 * (80./90 - 1)},
		},
		"a loss": {
			[]Sample{sample("pgo", false, 110, 120, 130), sample("slim", true, 100), user(sample("slim", true, 300))}, nil,
			Estimate{0.2, 0.1, 0.3}, exactly(0.25), Estimate{0.05, 0.025, 0.075},
		},
		"either a gain or a loss": {
			[]Sample{sample("pgo", false, 90, 100, 120), sample("slim", true, 100)}, shares(0.5, 0.1, 0.2),
			Estimate{0, -0.1, 0.2}, Estimate{0.2, 0.1, 0.5}, Estimate{0, -0.05, 0.1},
		},
		"a run goes before the workload": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000), user(sample("slim", true, 7000))}, shares(0.02),
			exactly(-0.25), exactly(0.02), exactly(-0.005),
		},
		"runs differ": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000)}, shares(0.1, 0.3),
			exactly(-0.25), Estimate{0.2, 0.1, 0.3}, Estimate{-0.05, -0.075, -0.025},
		},
		"a run that cannot be": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000), user(sample("slim", true, 7000))}, shares(0.1, 1.5),
			exactly(-0.25), none, none,
		},
		"a run without a number": {
			[]Sample{sample("pgo", true, 750), sample("slim", true, 1000)}, shares(math.NaN()), exactly(-0.25), none, none,
		},
		// 3 * 100 and 1 * 700 of the kernel's beside 4 * 250 of the program's.
		"parts, by how often each was done": {
			[]Sample{
				part("a", 3, sample("pgo", true, 50)), part("a", 3, sample("slim", true, 100)), user(part("a", 3, sample("slim", true, 250))),
				part("b", 1, sample("pgo", true, 350)), part("b", 1, sample("slim", true, 700)), user(part("b", 1, sample("slim", true, 250))),
			}, nil, exactly(-0.5), exactly(0.5), exactly(-0.25),
		},
		"a part of the program's was not counted": {
			[]Sample{
				part("a", 3, sample("pgo", true, 50)), part("a", 3, sample("slim", true, 100)), user(part("a", 3, sample("slim", true, 250))),
				part("b", 1, sample("pgo", true, 350)), part("b", 1, sample("slim", true, 700)), user(part("b", 1, sample("stock", true, 250))),
			}, nil, exactly(-0.5), none, none,
		},
		// The second may be chance: it counts as none, and its chance is in the spread.
		"a part that may be chance": {
			[]Sample{
				part("a", 1, sample("pgo", true, 64)), part("a", 1, sample("slim", true, 100)),
				part("b", 1, sample("pgo", false, 81, 100, 121)), part("b", 1, sample("slim", true, 100)),
			}, nil, Estimate{-0.2, 0.8*0.9 - 1, 0.8*1.1 - 1}, none, none,
		},
	} {
		got, has := gainsOf(func(k *Case) { k.Samples, k.RunShares, k.Rules.Resolution = c.samples, c.runs, 0 })[BaselineSlim]
		if !has || got.Kernel != "slim" || got.Metric != KernelWeighed {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		share, whole := none, none
		if got.Share != nil {
			share = got.Share.Estimate
		}
		if got.Whole != nil {
			whole = *got.Whole
		}
		for what, pair := range map[string][2]Estimate{"change": {got.Change, c.change}, "share": {share, c.share}, "whole": {whole, c.whole}} {
			for i, v := range []float64{pair[0].Value - pair[1].Value, pair[0].Low - pair[1].Low, pair[0].High - pair[1].High} {
				if !(math.Abs(v) < 1e-12) {
					t.Errorf("%s: %s is %+v, want %+v (figure %d)", name, what, pair[0], pair[1], i)
				}
			}
		}
	}
}

// Each baseline once, whatever the outcome is; none where nothing can be compared.
func TestGainAgainstEachBaseline(t *testing.T) {
	against := func(kernels ...string) []Sample {
		out := []Sample{sample("pgo", true, 90)}
		for _, k := range kernels {
			out = append(out, sample(k, true, 100))
		}
		return out
	}
	for name, c := range map[string]struct {
		change func(*Case)
		want   string
	}{
		"slim is the current one":      {func(c *Case) { c.Samples = against("slim", "stock") }, "slim:slim stock:stock"},
		"another one is":               {func(c *Case) { c.Current = Kernel{Name: "today"}; c.Samples = against("slim", "stock", "today") }, "current:today slim:slim stock:stock"},
		"stock is":                     {func(c *Case) { c.Current = c.Stock; c.Samples = against("slim", "stock") }, "slim:slim stock:stock"},
		"no slim one beside it":        {func(c *Case) { c.Slim = Kernel{}; c.Current = c.Stock; c.Samples = against("stock") }, "stock:stock"},
		"stock does not do the work":   {func(c *Case) { c.Samples = against("slim") }, "slim:slim"},
		"not correct":                  {func(c *Case) { c.Samples = against("slim"); c.Checks[0].Passed = false }, "slim:slim"},
		"refused for its mitigations":  {func(c *Case) { c.Samples = against("slim"); c.Current.Mitigations = []string{"pti"} }, "slim:slim"},
		"the baseline needs nothing":   {func(c *Case) { c.Samples = append(against("stock"), sample("slim", true, 0)) }, "stock:stock"},
		"another amount of work":       {func(c *Case) { c.Samples = against("slim"); c.Samples[0].Operations = 1 }, ""},
		"the candidate has no figures": {func(c *Case) { c.Samples = against("slim", "stock")[1:] }, ""},
		"measured twice":               {func(c *Case) { c.Samples = append(against("slim"), against()...) }, ""},
	} {
		var got []string
		gains := gainsOf(c.change)
		for _, baseline := range []string{BaselineCurrent, BaselineSlim, BaselineStock} {
			if g, has := gains[baseline]; has {
				got = append(got, baseline+":"+g.Kernel)
			}
		}
		if strings.Join(got, " ") != c.want || len(got) != len(gains) {
			t.Errorf("%s: %q of %d, want %q", name, got, len(gains), c.want)
		}
	}
}

// An exact count has the spread of what two builds of the same code differ by: a change
// that may be no more than that has 0 in it.
func TestGainHasTheResolutionInItsSpread(t *testing.T) {
	for _, c := range []struct{ needs, low, high float64 }{
		{750, 0.75*0.999 - 1, 0.75*1.001 - 1}, {1000, -0.001, 0.001}, {999.5, 0.9995*0.999 - 1, 0.9995*1.001 - 1},
	} {
		g := gainsOf(func(k *Case) { k.Samples = []Sample{sample("pgo", true, c.needs), sample("slim", true, 1000)} })[BaselineSlim]
		if math.Abs(g.Change.Low-c.low) > 1e-12 || math.Abs(g.Change.High-c.high) > 1e-12 || (g.Change.High >= 0) != (g.Standing != Better) {
			t.Errorf("%v: %+v, %s", c.needs, g.Change, g.Standing)
		}
	}
}

// What is said is which share it is, and what is not known or not equal.
func TestGainInWords(t *testing.T) {
	for want, change := range map[string]func(*Case){
		"against slim: kernel instructions (strings weighed) -25.0 % (-25.1 to -24.9); the workload as a whole -3.1 % (-3.1 to -3.1), " +
			"with a kernel share of 12.5 % (12.5 to 12.5) of the workload's instructions, counted in the same run": func(*Case) {},
		"; the application as a whole -0.5 % (-0.8 to -0.2), with a kernel share of 2.0 % (1.0 to 3.0) of the CPU time of the application's jobs, run 3 on stock@1, run 8 on mitgcm@2": func(c *Case) {
			c.RunShares = []RunShare{{3, "stock@1", 0.01}, {8, "mitgcm@2", 0.03}}
		},
		"; the application as a whole: kernel share not known":          func(c *Case) { c.Samples = c.Samples[:2] },
		"-25.0 % (-25.1 to -24.9) - AT unequal mitigations: pti; the w": func(c *Case) { c.Slim.Mitigations = []string{"pti"} },
		"0 % (-0.1 to +0.2), which may be chance": func(c *Case) {
			c.Samples[0].Exact, c.Samples[0].Values = false, []float64{999.5, 1000, 1001}
		},
	} {
		got := gainsOf(func(c *Case) {
			c.Samples = []Sample{sample("pgo", true, 750), sample("slim", true, 1000), user(sample("slim", true, 7000))}
			change(c)
		})[BaselineSlim].Words()
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

// Whatever was counted, figures lie within their spreads, shares within a whole, and
// the share moves no verdict.
func TestGainsAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := fixture()
		c.Slim = c.Current
		c.Samples = []Sample{drawSide(t, "pgo").Sample, drawSide(t, "slim").Sample}
		before := Decide(c)
		c.Samples = append(c.Samples, user(sample("slim", true, counts(t, "user")...)))
		if rapid.Bool().Draw(t, "run") {
			c.RunShares = []RunShare{{3, "stock@1", rapid.Float64Range(0, 1).Draw(t, "share")}, {4, "stock@1", rapid.Float64Range(0, 1).Draw(t, "other")}}
		}
		after := Decide(c)
		if after.Outcome != before.Outcome || after.Reason != before.Reason {
			t.Fatalf("%s became %s", before.Reason, after.Reason)
		}
		for _, g := range after.Gains {
			all := []Estimate{g.Change}
			if g.Share != nil {
				if g.Share.Low < 0 || g.Share.High > 1 {
					t.Fatalf("share %+v", g.Share)
				}
				all = append(all, g.Share.Estimate, *g.Whole)
			}
			for _, e := range all {
				if !(e.Low <= e.Value && e.Value <= e.High) || math.IsInf(e.High, 0) || math.IsInf(e.Low, 0) {
					t.Fatalf("%+v of %+v", e, g)
				}
			}
		}
	})
}
