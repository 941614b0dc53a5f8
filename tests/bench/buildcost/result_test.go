// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		first, second, branches float64
		met                     [3]bool
	}{
		{350, 100, 175, [3]bool{true, true, true}},
		{351, 100, 175, [3]bool{false, true, true}},
		{100, 101, 51, [3]bool{true, false, false}},
	} {
		b := &figures.Book{}
		for _, m := range []struct {
			name    string
			seconds float64
		}{{plainMake, 90}, {firstBuild, c.first}, {secondProfile, c.second}, {byBranches, c.branches}, {plainMake, 110}} {
			b.Add(m.name, "", m.seconds)
		}
		list, err := goals(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{list[0].Met, list[1].Met, list[2].Met}; got != c.met || list[0].Name != firstBuild || list[2].Name != byBranches {
			t.Errorf("first %v s, second %v s, by branches %v s: %+v", c.first, c.second, c.branches, list)
		}
	}
}

func TestGoalsOfNothing(t *testing.T) {
	b := &figures.Book{}
	if _, err := goals(b); err == nil || !strings.Contains(err.Error(), "took no time") {
		t.Error(err)
	}
	b.Add(plainMake, "", 1)
	if _, err := goals(b); err == nil || !strings.Contains(err.Error(), "was not measured") {
		t.Error(err)
	}
}

func TestOtherRecipe(t *testing.T) {
	const text = "# kernel\nname: small\nsource:\n  name: x\nworkload: io\n"
	changed, err := otherRecipe(text, map[string]string{"name": "small-second", "workload": "tcp"})
	if changed != "# kernel\nname: small-second\nsource:\n  name: x\nworkload: tcp\n" || err != nil {
		t.Errorf("%q, %v", changed, err)
	}
	if _, err := otherRecipe(text, map[string]string{"name": "small-second", "compiler": "clang-19"}); err == nil {
		t.Error("a recipe without a compiler has another one")
	}
	if _, err := otherRecipe(text+"name: again\n", map[string]string{"name": "small-second"}); err == nil {
		t.Error("of two names both were changed")
	}
}
