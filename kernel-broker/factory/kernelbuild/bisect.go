// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"context"
	"errors"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/culprit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// Bisect finds the objects with whose profiles a recipe's kernel does not boot. What was built stays in the cache, so that a
// search that was stopped goes on where it was.
func Bisect(ctx context.Context, r Request) (culprit.Outcome, error) {
	if err := r.Options.Complete(r.Say); err != nil {
		return culprit.Outcome{}, err
	}
	if err := r.Options.CheckInputs(ctx); err != nil {
		return culprit.Outcome{}, err
	}
	p, err := pipeline.Open(ctx, r.Options)
	if err != nil {
		return culprit.Outcome{}, err
	}
	runner, err := r.runner()
	if err != nil {
		return culprit.Outcome{}, err
	}
	objects, err := p.Profiled(ctx, runner, r.Options.Name+"-bisect")
	if err != nil {
		return culprit.Outcome{}, err
	}
	return culprit.Search{Objects: objects, Ask: r.boots, Say: func(t culprit.Trial) {
		word := "boots"
		if t.Fault != "" {
			word = t.Fault
		}
		r.Say("%d of about %d: without the profiles of %d of %d objects: %s", t.Number, t.About, t.Without, len(objects), word)
	}}.Run(ctx)
}

func (r Request) boots(ctx context.Context, without []string) (string, error) {
	r.Options.Without = without
	p, err := pipeline.Open(ctx, r.Options)
	if err != nil {
		return "", err
	}
	runner, err := r.runner()
	if err != nil {
		return "", err
	}
	err = p.Boots(ctx, runner, r.Options.Name+"-bisect")
	var fault *pipeline.Fault
	if errors.As(err, &fault) {
		return fault.Error(), nil
	}
	return "", err
}
