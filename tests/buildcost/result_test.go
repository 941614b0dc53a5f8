// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"strings"
	"testing"
)

func costs(first, second float64) Result {
	return Result{Costs: []Cost{
		{plainOnce, 90, 50}, {firstBuild, first, first / 2}, {secondProfile, second, second / 2}, {plainAgain, 110, 50},
	}}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		first, second float64
		met           [2]bool
	}{
		{350, 100, [2]bool{true, true}},
		{351, 100, [2]bool{false, true}},
		{100, 101, [2]bool{true, false}},
	} {
		r := costs(c.first, c.second)
		if err := r.Judge(); err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{r.Ratios[0].Met, r.Ratios[1].Met}; got != c.met || r.Ratios[0].What != firstBuild {
			t.Errorf("first %v s, second %v s: %+v", c.first, c.second, r.Ratios)
		}
	}
}

func TestJudgeNothing(t *testing.T) {
	r := costs(1, 1)
	r.Costs = r.Costs[:2]
	if err := r.Judge(); err == nil || !strings.Contains(err.Error(), "was not measured") {
		t.Error(err)
	}
	if err := new(Result).Judge(); err == nil || !strings.Contains(err.Error(), "took no time") {
		t.Error(err)
	}
}

func TestSecondRecipe(t *testing.T) {
	const text = "# kernel\nname: small\nsource:\n  name: x\nworkload: io\n"
	changed, names, workloads := secondRecipe(text, "small-second", "tcp")
	if changed != "# kernel\nname: small-second\nsource:\n  name: x\nworkload: tcp\n" || names != 1 || workloads != 1 {
		t.Errorf("%q, %d, %d", changed, names, workloads)
	}
}
