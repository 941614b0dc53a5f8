// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// instrumented checks that a recipe's build makes a kernel that counts, before
// anything is built.
func instrumented(r build.Recipe) error {
	if r.Optimisation.Profiled() {
		return nil
	}
	return fmt.Errorf("kernel %q: no kernel counts for it: its recipe does not say optimisation: %s or %s: %w",
		r.Name, build.OptimisePGO, build.OptimisePGOSafe, kb.ErrFailedPrecondition)
}

// publishInstrumented registers the kernel of a build that counts, as the profile
// that jobs boot which ask for pgo. It has no verdict: it is slower than any other,
// and nobody gets it who does not ask for it.
func (a *app) publishInstrumented(ctx context.Context, p *pipeline.Pipeline, r buildRequest) error {
	name := r.options.Name
	status, err := p.Store.Status(name, "")
	if err != nil {
		return err
	}
	step, _ := status.Step(r.until)
	if step.Dir == "" {
		return fmt.Errorf("kernel %q: the build left no kernel that counts (kernelctl kernel build log %s %s)", name, name, r.until)
	}
	register := registration{
		profile: name + kb.InstrumentedSuffix, kernel: filepath.Join(step.Dir, build.ImageFile), manifest: filepath.Join(step.Dir, build.ManifestFile),
		description: "Counts for the build of " + name + ": slower than any other", makeDefault: true, signature: r.signature,
	}
	if p.Bench != nil {
		register.application = p.Bench.Workload().Application
	}
	ref, err := a.registerIn(ctx, register)
	if err != nil {
		return err
	}
	parsed, err := kb.ParseRef(ref)
	if err != nil {
		return err
	}
	a.say("sbatch --kernel-profile=%s --kernel-profiling=pgo boots it, and kernelctl kernel build %s --from-run %s makes a kernel of what it counted",
		name, name, strings.Join(append(tracedRuns(p), "RUN"), ","))
	return a.show(&api.CheckProfileResponse{Name: parsed.Profile, Version: parsed.Version}, func(p *page) { p.line("%s", ref) })
}

// tracedRuns are the numbers of the runs by which a build was slimmed: counters of
// its kernel belong to them.
func tracedRuns(p *pipeline.Pipeline) []string {
	var runs []string
	for _, trace := range p.Traces {
		runs = append(runs, fmt.Sprint(trace.Run))
	}
	return runs
}

var errInstrumented = errors.New("--instrumented registers the kernel that counts, and so goes neither with --until nor --publish never")
