// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// machine is a simulated kernel: it breaks when all options of any one set are
// off. Sets of one option are plain culprits, larger ones failures that need
// several.
type machine struct {
	breaks [][]string
	calls  int
	// stopAfter so many calls the machine has no answer any more, as when
	// somebody pulls the plug.
	stopAfter int
}

var errStopped = errors.New("stopped")

func (m *machine) ask(_ context.Context, off []string) (Answer, error) {
	if m.stopAfter > 0 && m.calls >= m.stopAfter {
		return Answer{}, errStopped
	}
	m.calls++
	for _, set := range m.breaks {
		if !slices.ContainsFunc(set, func(symbol string) bool { return !slices.Contains(off, symbol) }) {
			return Answer{Stage: "boot", Reason: "without " + strings.Join(set, " and ")}, nil
		}
	}
	return Answer{Works: true, Text: int64(1000 - len(off))}, nil
}

func (m *machine) works(off []string) bool {
	answer, _ := (&machine{breaks: m.breaks}).ask(context.Background(), off)
	return answer.Works
}

type problem struct {
	options []string
	needs   map[string][]string
	machine *machine
}

func drawProblem(t *rapid.T) problem {
	n := rapid.IntRange(1, 40).Draw(t, "options")
	p := problem{needs: map[string][]string{}, machine: &machine{}}
	for i := range n {
		p.options = append(p.options, fmt.Sprintf("O%02d", i))
	}
	for range rapid.IntRange(0, n).Draw(t, "needs") {
		// Only a later option needs an earlier one: no circles.
		later := rapid.IntRange(1, max(1, n-1)).Draw(t, "later")
		if later >= n {
			continue
		}
		earlier := rapid.IntRange(0, later-1).Draw(t, "earlier")
		p.needs[p.options[later]] = append(p.needs[p.options[later]], p.options[earlier])
	}
	for range rapid.IntRange(0, 4).Draw(t, "culprits") {
		size := rapid.IntRange(1, 3).Draw(t, "size")
		var set []string
		for range size {
			set = append(set, rapid.SampledFrom(p.options).Draw(t, "member"))
		}
		p.machine.breaks = append(p.machine.breaks, set)
	}
	p.options = rapid.Permutation(p.options).Draw(t, "order")
	return p
}

func TestSearchKeepsOnlyWhatItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		found, err := Search(context.Background(), p.options, p.needs, 0, p.machine.ask)
		if err != nil {
			t.Fatal(err)
		}
		if !p.machine.works(found.Off) {
			t.Fatalf("the result %v does not work", found.Off)
		}
		for _, symbol := range found.Off {
			for _, need := range p.needs[symbol] {
				if !slices.Contains(found.Off, need) {
					t.Fatalf("%s goes and %s, which it needs gone, stays", symbol, need)
				}
			}
		}
		blamed := map[string]bool{}
		for _, blame := range found.Blamed {
			blamed[blame.Symbol] = true
			if p.machine.works(append(slices.Clone(found.Off), blame.Symbol)) {
				t.Fatalf("%s was blamed and could have gone", blame.Symbol)
			}
			if blame.Answer.Reason == "" {
				t.Fatalf("%s was blamed without a reason", blame.Symbol)
			}
		}
		for symbol, need := range found.Bound {
			if _, bound := found.Bound[need]; !blamed[need] && !bound || !slices.Contains(p.needs[symbol], need) {
				t.Fatalf("%s is bound to %s, which stays for no reason", symbol, need)
			}
		}
		if got := len(found.Off) + len(found.Blamed) + len(found.Bound); got != len(p.options) {
			t.Fatalf("%d of %d options accounted for", got, len(p.options))
		}
		k, n := float64(len(found.Blamed)), float64(len(p.options))
		if most := 2 + k*(2+math.Ceil(math.Log2(n+1))); float64(found.Calls) > most {
			t.Fatalf("%d calls for %v of %v options, at most %v expected", found.Calls, k, n, most)
		}
	})
}

func TestSearchGoesOnWhereItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		want, err := Search(context.Background(), p.options, p.needs, 0, p.machine.ask)
		if err != nil {
			t.Fatal(err)
		}
		whole := p.machine.calls
		folder, err := tempFolder(t)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "journal")
		step := rapid.IntRange(1, 5).Draw(t, "calls before each stop")
		total := 0
		for range 1000 {
			broken := &machine{breaks: p.machine.breaks, stopAfter: step}
			got, err := searchWith(path, p, broken.ask)
			total += broken.calls
			if errors.Is(err, errStopped) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Off, want.Off) || len(got.Blamed) != len(want.Blamed) {
				t.Fatalf("resumed to %v, not %v", got.Off, want.Off)
			}
			if total > whole {
				t.Fatalf("%d kernels tried in pieces, %d in one go", total, whole)
			}
			return
		}
		t.Fatal("never ended")
	})
}

func searchWith(path string, p problem, ask Ask) (Found, error) {
	return Search(context.Background(), p.options, p.needs, 0, Answers(path).Ask(ask))
}

func TestSearchStopsAtItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		found, err := Search(context.Background(), p.options, p.needs, limit, p.machine.ask)
		if err != nil {
			t.Fatal(err)
		}
		if found.Calls > limit || p.machine.calls > limit {
			t.Fatalf("%d calls, limit %d", p.machine.calls, limit)
		}
		if !p.machine.works(found.Off) {
			t.Fatalf("the result %v does not work", found.Off)
		}
		if got := len(found.Off) + len(found.Blamed) + len(found.Bound) + len(found.Untried); got != len(p.options) {
			t.Fatalf("%d of %d options accounted for", got, len(p.options))
		}
	})
}

func TestSearchBlamesNobodyForABrokenBaseline(t *testing.T) {
	always := func(context.Context, []string) (Answer, error) {
		return Answer{Stage: "build", Reason: "no room"}, nil
	}
	found, err := Search(context.Background(), []string{"A", "B", "C"}, nil, 0, always)
	if !errors.Is(err, ErrBaseline) || len(found.Blamed) != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
}

func TestSearchStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err := Search(ctx, []string{"A", "B", "C"}, nil, 0, func(context.Context, []string) (Answer, error) {
		calls++
		cancel()
		return Answer{Stage: "boot", Reason: "hangs"}, nil
	})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Fatalf("%v after %d calls", err, calls)
	}
}
