// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/tune"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// TuneRequest says which kernel's configuration to search, and how long.
type TuneRequest struct {
	// Request says where and how kernels are built; its runs and what becomes of a
	// kernel have no meaning here.
	Request
	// Budget is the time after which no further kernel is built; 0 for any time.
	Budget time.Duration
	// Only are the fragments to try; empty for all that the catalog proposes.
	Only []string
}

// Tune tries the catalog's proposals on a recipe's kernel. What was measured stays
// in the cache, so that a search that was stopped goes on where it was.
func Tune(ctx context.Context, r TuneRequest) (tune.Outcome, error) {
	policy, err := site.Load(r.Site)
	if err != nil {
		return tune.Outcome{}, err
	}
	if err := r.Options.Complete(r.Say); err != nil {
		return tune.Outcome{}, err
	}
	recipe, err := build.LoadRecipe(r.Options.Catalog, r.Options.Name)
	if err != nil {
		return tune.Outcome{}, err
	}
	if recipe.Workload == "" {
		return tune.Outcome{}, fmt.Errorf("kernel %q: its recipe names no workload to measure by: %w", recipe.Name, kb.ErrFailedPrecondition)
	}
	load, err := workload.Load(r.Options.Catalog, recipe.Workload)
	if err != nil {
		return tune.Outcome{}, fmt.Errorf("kernel %q: %w", recipe.Name, err)
	}
	if !load.Counted() {
		return tune.Outcome{}, fmt.Errorf("kernel %q: workload %q has %d CPUs, so that the host's load is in its counts and no proposal can win: search with cpus: 1: %w",
			recipe.Name, load.Name, load.CPUs, kb.ErrFailedPrecondition)
	}
	proposals, groups, err := r.proposals()
	if err != nil {
		return tune.Outcome{}, err
	}
	rules := verdict.DefaultRules()
	rules.UnequalMitigations = policy.Mitigations == site.Any
	began, tried := time.Now(), 0
	search := tune.Search{
		Proposals: proposals, InRecipe: slices.Concat(recipe.Fragments, recipe.Overrides), Overrides: recipe.Overrides, Groups: groups, MayGiveUp: policy.MayGiveUp, Rules: rules,
		Ask:  r.ask,
		More: func() bool { return r.Budget == 0 || time.Since(began) < r.Budget },
		Say: func(t tune.Trial) {
			tried++
			r.Say("%d of %d: %s", tried, len(proposals), t.Words())
		},
	}
	return search.Run(ctx)
}

// proposals of the catalog that the request wants, and the groups of all. A mistake in
// a fragment shows here, and not when its turn comes.
func (r TuneRequest) proposals() (wanted []tune.Proposal, groups map[string]string, err error) {
	all, err := tune.Load(r.Options.Catalog)
	if err != nil {
		return nil, nil, err
	}
	groups = map[string]string{}
	for _, p := range all {
		groups[p.Fragment] = p.Group
	}
	if wanted, err = r.named(all); err != nil {
		return nil, nil, err
	}
	for _, p := range wanted {
		if _, err := kconfig.ReadFragment(filepath.Join(r.Options.Catalog, "fragments", p.Fragment+".config")); err != nil {
			return nil, nil, fmt.Errorf("proposal %q: %w", p.Fragment, err)
		}
	}
	return wanted, groups, nil
}

// named are those that --only names, in its order; all where it names none.
func (r TuneRequest) named(all []tune.Proposal) (wanted []tune.Proposal, err error) {
	if len(r.Only) == 0 {
		return all, nil
	}
	for _, name := range r.Only {
		i := slices.IndexFunc(all, func(p tune.Proposal) bool { return p.Fragment == name })
		if i < 0 {
			return nil, fmt.Errorf("proposal %q: the catalog has none of that name in %s: %w", name, tune.File, kb.ErrNotFound)
		}
		if !slices.Contains(wanted, all[i]) {
			wanted = append(wanted, all[i])
		}
	}
	return wanted, nil
}

// ask measures the plain kernel of the recipe with fragments laid over.
func (r TuneRequest) ask(ctx context.Context, fragments []string, test bool) (tune.Answer, error) {
	r.Options.Plain, r.Options.Overrides = true, fragments
	p, err := pipeline.Open(ctx, r.Options)
	var contradiction *kconfig.ContradictionError
	if errors.As(err, &contradiction) {
		return tune.Answer{Fault: err.Error()}, nil
	}
	if err != nil {
		return tune.Answer{}, err
	}
	runner, err := r.runner()
	if err != nil {
		return tune.Answer{}, err
	}
	data := pipeline.Train
	if test {
		data = pipeline.Test
	}
	measured, err := p.MeasurePlain(ctx, runner, r.Options.Name+"-tune", data)
	var fault *pipeline.Fault
	if errors.As(err, &fault) {
		return tune.Answer{Fault: fault.Error()}, nil
	}
	return tune.Answer{Samples: measured.Samples, Mitigations: measured.Mitigations}, err
}
