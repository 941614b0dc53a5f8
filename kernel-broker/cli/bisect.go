// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/culprit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
)

func (a *app) kernelBisectCommand() *cobra.Command {
	var r kernelbuild.Request
	var work workFlags
	c := a.command("bisect NAME", "Find the objects with whose profiles a kernel does not boot", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		r.Options.Name = args[0]
		return a.kernelBisect(ctx, r, work)
	})
	work.add(c, &r)
	a.cacheFlag(c, false)
	return c
}

func (a *app) kernelBisect(ctx context.Context, r kernelbuild.Request, work workFlags) error {
	if err := work.validate(&r); err != nil {
		return err
	}
	if err := work.complete(a, &r); err != nil {
		return err
	}
	outcome, err := kernelbuild.Bisect(ctx, r)
	if err != nil {
		return err
	}
	return a.showValue(outcome, func(p *page) { bisectPage(p, outcome) })
}

func bisectPage(p *page, o culprit.Outcome) {
	if o.Fault == "" {
		p.line("The kernel boots with all its profiles.")
		return
	}
	p.line("With all profiles %s. Without those of the following it boots (%d kernels were built).\nFor the recipe:\n\nexclude:", o.Fault, o.Kernels)
	for _, object := range o.Culprits {
		p.line("  - object: %s\n    reason: the kernel does not boot with its profile", object)
	}
}
