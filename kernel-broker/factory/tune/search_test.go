// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// kernels answer by the factors of their fragments.
type kernels struct {
	factor      map[string]float64
	testFactor  map[string]float64 // with the test data, where they differ
	fault       map[string]string
	mitigations map[string][]string
	fails       map[string]error
	asked       []string
}

func (k *kernels) ask(_ context.Context, fragments []string, test bool) (Answer, error) {
	name := strings.Join(fragments, "+")
	if test {
		name += "/test"
	}
	k.asked = append(k.asked, name)
	cost, mitigations := 1000.0, []string{"meltdown: Mitigation: PTI"}
	for _, f := range fragments {
		if err := k.fails[f]; err != nil {
			return Answer{}, err
		}
		if fault := k.fault[f]; fault != "" {
			return Answer{Fault: fault}, nil
		}
		if m, is := k.mitigations[f]; is {
			mitigations = m
		}
		factor, is := k.testFactor[f]
		if !is || !test {
			factor = k.factor[f]
		}
		cost *= factor
	}
	sample := verdict.Sample{Workload: "w", Metric: verdict.KernelWeighed, Unit: "instructions/operation", Exact: true, Values: []float64{cost}, Seed: 1, Size: 10, Operations: 10}
	if test {
		sample.Seed, sample.Size, sample.Operations = 2, 20, 20
	}
	return Answer{Samples: []verdict.Sample{sample}, Mitigations: mitigations}, nil
}

func search(k *kernels, proposals ...Proposal) *Search {
	return &Search{Proposals: proposals, Rules: verdict.DefaultRules(), Ask: k.ask}
}

func results(o Outcome) string {
	var all []string
	for _, t := range o.Trials {
		all = append(all, t.Fragment+" "+string(t.Result))
	}
	return strings.Join(all, ", ")
}

func TestSearchKeepsWhatWins(t *testing.T) {
	k := &kernels{factor: map[string]float64{"a": 0.9, "b": 1.1, "c": 0.95, "same": 1, "little": 0.9995}}
	o, err := search(k, Proposal{Fragment: "a"}, Proposal{Fragment: "b"}, Proposal{Fragment: "same"}, Proposal{Fragment: "little"}, Proposal{Fragment: "c"}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := results(o), "a kept, b no gain, same no gain, little no gain, c kept"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !slices.Equal(o.Kept, []string{"a", "c"}) || math.Abs(o.Change+0.145) > 1e-9 || o.Confirmed == nil || o.Confirmed.Standing != verdict.Better {
		t.Errorf("%+v", o)
	}
	if want := []string{"", "a", "a+b", "a+same", "a+little", "a+c", "/test", "a+c/test"}; !slices.Equal(k.asked, want) {
		t.Errorf("asked for %q, want %q", k.asked, want)
	}
	if last := o.Trials[4]; math.Abs(*last.Change+0.05) > 1e-9 || !slices.Equal(last.Beside, []string{"a"}) {
		t.Errorf("a gain is against what was kept before: %+v", last)
	}
}

func TestOneOfAGroupIsKept(t *testing.T) {
	k := &kernels{factor: map[string]float64{"slow": 0.99, "fast": 0.9, "other": 0.95, "last": 0.97}}
	o, err := search(k, Proposal{Fragment: "slow", Group: "g"}, Proposal{Fragment: "other"}, Proposal{Fragment: "fast", Group: "g"}, Proposal{Fragment: "last", Group: "g"}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := results(o), "slow replaced, other kept, fast kept, last no gain"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !slices.Equal(o.Kept, []string{"other", "fast"}) || o.Trials[0].Reason != "by fast" {
		t.Errorf("%+v", o)
	}
}

// What the recipe has stays: another one of its group would be measured beside it.
func TestGroupsOfTheRecipe(t *testing.T) {
	k := &kernels{factor: map[string]float64{"fast": 0.5, "a": 0.9}}
	s := search(k, Proposal{Fragment: "fast", Group: "g"}, Proposal{Fragment: "a"})
	s.InRecipe, s.Overrides, s.Groups = []string{"base", "slow", "cores"}, []string{"cores"}, map[string]string{"slow": "g", "fast": "g", "a": ""}
	o, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := results(o); got != "fast in the recipe, a kept" || !strings.Contains(o.Trials[0].Reason, "has slow of this group") {
		t.Errorf("%s: %+v", got, o)
	}
	if !slices.Equal(o.Overrides, []string{"cores", "a"}) || slices.Contains(k.asked, "fast") {
		t.Errorf("overrides %q, asked for %q", o.Overrides, k.asked)
	}
}

func TestWhatIsNotTried(t *testing.T) {
	k := &kernels{factor: map[string]float64{"a": 0.9, "d": 0.9}, fault: map[string]string{"broken": "the kernel does not boot: panic"},
		mitigations: map[string][]string{"open": {"meltdown: Vulnerable"}}}
	k.factor["open"] = 0.5
	left := 2
	s := search(k, Proposal{Fragment: "has"}, Proposal{Fragment: "limits", GivesUp: site.Limits}, Proposal{Fragment: "broken"},
		Proposal{Fragment: "open", GivesUp: site.Security}, Proposal{Fragment: "a"}, Proposal{Fragment: "d", GivesUp: site.Hardware})
	s.InRecipe, s.MayGiveUp = []string{"base", "has"}, []site.Loss{site.Security, site.Hardware}
	s.More = func() bool { left--; return left >= 0 }
	var said []string
	s.Say = func(trial Trial) { said = append(said, trial.Words()) }
	o, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "has in the recipe, limits not allowed, broken fails, open not allowed, a not tried, d not tried"
	if got := results(o); got != want || len(o.Kept) > 0 || o.Confirmed != nil {
		t.Errorf("%s, want %s", got, want)
	}
	if len(said) != 6 || !strings.Contains(said[1], "gives up limits") || !strings.Contains(said[2], "does not boot: panic") ||
		!strings.Contains(said[3], "unequal mitigations: meltdown") || !strings.Contains(said[4], "budget") {
		t.Errorf("%q", said)
	}
	left = 9
	s.Rules.UnequalMitigations = true
	if o, err = s.Run(t.Context()); err != nil || !slices.Equal(o.Kept, []string{"open", "a", "d"}) {
		t.Errorf("where the site leaves mitigations to recipes: %+v, %v", o, err)
	}
}

func TestSearchEnds(t *testing.T) {
	stop := errors.New("disk full")
	k := &kernels{fails: map[string]error{"a": stop}}
	if _, err := search(k, Proposal{Fragment: "a"}).Run(t.Context()); !errors.Is(err, stop) {
		t.Errorf("no answer: %v", err)
	}
	s := search(nil, Proposal{Fragment: "a"})
	s.Ask = func(context.Context, []string, bool) (Answer, error) { return Answer{Fault: "it hangs"}, nil }
	if _, err := s.Run(t.Context()); !errors.Is(err, ErrBaseline) || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("a recipe that does not work: %v", err)
	}
}

// A gain of the training data that the test data do not have is said.
func TestConfirmation(t *testing.T) {
	k := &kernels{factor: map[string]float64{"a": 0.9}, testFactor: map[string]float64{"a": 1.05}}
	o, err := search(k, Proposal{Fragment: "a"}).Run(t.Context())
	if err != nil || o.Confirmed.Standing != verdict.Worse || math.Abs(o.Confirmed.Change-0.05) > 1e-9 {
		t.Errorf("%+v, %v", o.Confirmed, err)
	}
}

// Whatever the proposals do, the kernel that is found is the best that was tried,
// has one of each group, and is what the kept trials say.
func TestSearchProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &kernels{factor: map[string]float64{}, fault: map[string]string{}}
		var proposals []Proposal
		for i := range rapid.IntRange(1, 8).Draw(t, "proposals") {
			p := Proposal{Fragment: fmt.Sprintf("f%d", i), Group: rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group")}
			k.factor[p.Fragment] = rapid.SampledFrom([]float64{0.8, 0.9, 0.9999, 1, 1.2}).Draw(t, "factor")
			if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
				k.fault[p.Fragment] = "fails"
			}
			proposals = append(proposals, p)
		}
		o, err := search(k, proposals...).Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		product, groups := 1.0, map[string]bool{}
		for _, trial := range o.Trials {
			if trial.Result != Kept {
				continue
			}
			if trial.Group != "" && groups[trial.Group] {
				t.Fatalf("two of group %s: %v", trial.Group, o.Kept)
			}
			groups[trial.Group] = true
			kept = append(kept, trial.Fragment)
			product *= k.factor[trial.Fragment]
		}
		slices.Sort(kept)
		if found := slices.Sorted(slices.Values(o.Kept)); !slices.Equal(found, kept) || math.Abs(1+o.Change-product) > 1e-9 {
			t.Fatalf("kept %v with a change of %v, the trials say %v and %v", found, o.Change, kept, product-1)
		}
		if len(k.asked) > 1+len(proposals)+2 {
			t.Fatalf("%d kernels for %d proposals", len(k.asked), len(proposals))
		}
	})
}
