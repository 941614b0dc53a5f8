// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

type hardwareFlags struct {
	options pipeline.Options
	output  string
}

func (a *app) kernelHardwareCommand() *cobra.Command {
	h := hardwareFlags{}
	o := &h.options
	c := a.command("hardware FILE...", "Write a fragment with the options that nodes' hardware needs", cobra.MinimumNArgs(1), func(ctx context.Context, files []string) error {
		o.Nodes = files
		return a.kernelHardware(ctx, h)
	})
	f := c.Flags()
	f.StringVar(&o.Name, "kernel", "server", "`recipe` whose source and options the fragment is for")
	f.StringVar(&o.Catalog, "catalog", "", "`folder` with kernels/ and fragments/ (default ./catalog if only the caller and root can write it, else the installed one)")
	f.StringVar(&o.Aliases, "aliases", "", "modules.alias `file` of the nodes' own kernel: drivers of devices that have none at work")
	f.StringVar(&h.output, "output-file", "", "write the fragment to this `file`, and not to the terminal")
	a.cacheFlag(c, false)
	return c
}

func (a *app) kernelHardware(ctx context.Context, h hardwareFlags) error {
	o := h.options
	if err := kb.ValidateProfileName(o.Name); err != nil {
		return usageError{err}
	}
	var err error
	if o.Cache, err = a.cacheDir(); err != nil {
		return err
	}
	hardware, err := kernelbuild.FindHardware(ctx, kernelbuild.HardwareRequest{Options: o, Progress: a.Stderr, Say: a.say})
	if err != nil {
		return err
	}
	text := hardware.Fragment(o.Name)
	if h.output == "" {
		_, err = a.Stdout.Write(text)
	} else {
		err = atomicfile.Write(h.output, text, 0o644)
	}
	if err != nil {
		return err
	}
	a.say("%s for %s of %s", count(hardware.Options(), "option"), count(len(hardware.Drivers), "driver"), count(hardware.Nodes, "node"))
	for _, lacking := range hardware.Lacking() {
		a.say("no option for %s: %s", lacking.Name, lacking.Lack)
	}
	if n := len(hardware.Unclaimed); n > 0 {
		a.say("%s without a module in %s", count(n, "device"), o.Aliases)
	}
	return nil
}
