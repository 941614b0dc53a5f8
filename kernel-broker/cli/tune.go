// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/tune"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

func (a *app) kernelTuneCommand() *cobra.Command {
	var r kernelbuild.TuneRequest
	var work workFlags
	c := a.command("tune NAME", "Try the catalog's proposals on a kernel's configuration, and keep those that win", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		r.Options.Name = args[0]
		return a.kernelTune(ctx, r, work)
	})
	work.add(c, &r.Request)
	f := c.Flags()
	f.DurationVar(&r.Budget, "budget", 0, "begin no trial after this `time` (such as 8h; default: any time)")
	f.StringSliceVar(&r.Only, "only", nil, "try only these `fragments` of the proposals, in this order")
	a.siteFlag(c)
	a.cacheFlag(c, false)
	return c
}

func (a *app) kernelTune(ctx context.Context, r kernelbuild.TuneRequest, work workFlags) error {
	if err := work.validate(&r.Request); err != nil {
		return err
	}
	if r.Budget < 0 {
		return usageError{errors.New("--budget: a time above 0")}
	}
	if err := work.complete(a, &r.Request); err != nil {
		return err
	}
	outcome, err := kernelbuild.Tune(ctx, r)
	if err != nil {
		return err
	}
	return a.showValue(outcome, func(p *page) { tunePage(p, outcome) })
}

func tunePage(p *page, o tune.Outcome) {
	p.head("PROPOSAL", "GROUP", "GIVES UP", "RESULT", "CHANGE", below+"REASON")
	for _, t := range o.Trials {
		change := ""
		if t.Change != nil {
			change = verdict.Percent(*t.Change)
		}
		p.row(t.Fragment, t.Group, t.GivesUp, t.Result, change, t.Reason)
	}
	if left := o.Left(); left > 0 {
		p.line("\n%d proposals were not tried: the same command goes on with them.", left)
	}
	switch {
	case !o.Measured():
		p.line("\nNothing was measured.")
		return
	case len(o.Kept) == 0:
		p.line("\nNo benefit: the recipe stays as it is.")
		return
	}
	p.sentence("\nKernel instructions (strings weighed) by all that was kept: %s with the training data, %s with the test data (%s: %s).",
		verdict.Percent(o.Change), verdict.Percent(o.Confirmed.Change), o.Confirmed.Standing, o.Confirmed.Reason)
	if o.Confirmed.Standing != verdict.Better {
		p.line("No benefit with data on which nothing was chosen: the recipe stays as it is.")
		return
	}
	p.line("For the recipe's overrides: [%s]", strings.Join(o.Overrides, ", "))
}
