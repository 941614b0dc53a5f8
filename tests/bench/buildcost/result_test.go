// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		first, second float64
		met           [2]bool
	}{
		{350, 100, [2]bool{true, true}},
		{351, 100, [2]bool{false, true}},
		{100, 101, [2]bool{true, false}},
	} {
		b := &figures.Book{}
		for _, m := range []struct {
			name    string
			seconds float64
		}{{plainMake, 90}, {firstBuild, c.first}, {secondProfile, c.second}, {plainMake, 110}} {
			b.Add(m.name, "", m.seconds)
		}
		list, err := goals(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{list[0].Met, list[1].Met}; got != c.met || list[0].Name != firstBuild {
			t.Errorf("first %v s, second %v s: %+v", c.first, c.second, list)
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

func TestSecondRecipe(t *testing.T) {
	const text = "# kernel\nname: small\nsource:\n  name: x\nworkload: io\n"
	changed, names, workloads := secondRecipe(text, "small-second", "tcp")
	if changed != "# kernel\nname: small-second\nsource:\n  name: x\nworkload: tcp\n" || names != 1 || workloads != 1 {
		t.Errorf("%q, %d, %d", changed, names, workloads)
	}
}
