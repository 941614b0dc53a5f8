// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func objects(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("o%d.o", i))
	}
	return all
}

// broken is a kernel that boots only without the profiles of all culprits.
func broken(culprits ...string) Ask {
	return func(_ context.Context, without []string) (string, error) {
		for _, c := range culprits {
			if !slices.Contains(without, c) {
				return "the kernel does not boot", nil
			}
		}
		return "", nil
	}
}

func TestOneOfManyIsFoundByHalves(t *testing.T) {
	var trials []Trial
	outcome, err := Search{Objects: objects(800), Ask: broken("o517.o"), Say: func(t Trial) { trials = append(trials, t) }}.Run(t.Context())
	if err != nil || !slices.Equal(outcome.Culprits, []string{"o517.o"}) || outcome.Fault != "the kernel does not boot" {
		t.Errorf("%+v, %v", outcome, err)
	}
	if last := trials[len(trials)-1]; outcome.Kernels != last.Number || last.Number > last.About || last.About > 13 {
		t.Errorf("%d kernels, %+v", outcome.Kernels, last)
	}
}

func TestAnySetIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := objects(rapid.IntRange(1, 40).Draw(t, "objects"))
		culprits := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, min(len(all), most), rapid.ID[string]).Draw(t, "culprits")
		outcome, err := Search{Objects: all, Ask: broken(culprits...)}.Run(context.Background())
		slices.Sort(culprits)
		if got := slices.Sorted(slices.Values(outcome.Culprits)); err != nil || !slices.Equal(got, culprits) {
			t.Fatalf("found %v of %v, %v", got, culprits, err)
		}
	})
}

func TestWhatNoObjectIsToBlameFor(t *testing.T) {
	if outcome, err := (Search{Objects: objects(9), Ask: broken()}.Run(t.Context())); err != nil || outcome.Fault != "" || outcome.Kernels != 1 {
		t.Errorf("a kernel that boots: %+v, %v", outcome, err)
	}
	never := func(context.Context, []string) (string, error) { return "the kernel does not boot", nil }
	if _, err := (Search{Objects: objects(9), Ask: never}.Run(t.Context())); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "without any profile") {
		t.Errorf("a kernel that never boots: %v", err)
	}
	if _, err := (Search{Objects: objects(9), Ask: broken(objects(most + 1)...)}.Run(t.Context())); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "more than 5 objects") {
		t.Errorf("too many: %v", err)
	}
	full := errors.New("no space")
	if _, err := (Search{Objects: objects(9), Ask: func(context.Context, []string) (string, error) { return "", full }}.Run(t.Context())); !errors.Is(err, full) {
		t.Errorf("a build that fails: %v", err)
	}
}
