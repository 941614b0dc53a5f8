// SPDX-License-Identifier: Apache-2.0

//go:build lab

package tune

import (
	"os"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
)

// Each proposal makes a configuration of the kernel of MITgcm, whose options all
// survive.
func TestEachProposalIsAConfiguration(t *testing.T) {
	proposals, err := Load(catalog)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := build.DefaultCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if set := os.Getenv("KB_CACHE"); set != "" {
		dir = set
	}
	b := &build.Builder{Catalog: catalog, Cache: build.Cache{Dir: dir}, Jobs: 2, FindSource: build.FindSource}
	recipe, err := build.LoadRecipe(catalog, "mitgcm")
	if err != nil {
		t.Fatal(err)
	}
	recipe.Optimisation, recipe.Slimming, recipe.Training = build.OptimiseO2, build.SlimmingNone, ""
	for _, p := range proposals {
		t.Run(p.Fragment, func(t *testing.T) {
			changed := recipe
			changed.Overrides = []string{p.Fragment}
			plan, err := b.PlanRecipe(t.Context(), changed)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Configure(t.Context(), plan, build.ConfigureInput{Variant: build.Plain}, t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}
