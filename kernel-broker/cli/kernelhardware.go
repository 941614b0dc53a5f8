// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
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
	f.StringVar(&o.Catalog, "catalog", "", "`folder` with kernels/ and fragments/ (default ./catalog, else the installed one)")
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
	// Reports are read before the source, which may have to be unpacked.
	nodes, aliases, err := slim.ReadHardware(o.Nodes, o.Aliases)
	if err != nil {
		return err
	}
	if o.Cache, err = a.cacheDir(); err != nil {
		return err
	}
	if err := o.Complete(); err != nil {
		return err
	}
	builder := &build.Builder{Catalog: o.Catalog, Cache: build.Cache{Dir: o.Cache}, Jobs: 1, FindSource: build.FindSource,
		Progress: build.Progress{Out: a.Stderr, Kernel: o.Name}}
	plan, err := builder.Plan(ctx, o.Name)
	if err != nil {
		return err
	}
	source, err := builder.Fetch(ctx, plan)
	if err != nil {
		return err
	}
	a.say("reading makefiles and Kconfig files of %s %s", source.Package, source.Version)
	tree := os.DirFS(source.Tree)
	kbuild, err := slim.ReadKbuild(tree)
	if err != nil {
		return err
	}
	definitions, err := kconfig.Read(tree)
	if err != nil {
		return err
	}
	wanted, err := plan.Wanted(source)
	if err != nil {
		return err
	}
	equipment := slim.Equip(nodes, aliases, kbuild, definitions, wanted)
	if equipment.Options() == 0 {
		return fmt.Errorf("no driver of %s has an option in %s %s: nothing is written", count(len(nodes), "node"), source.Package, source.Version)
	}
	text := equipment.Fragment(o.Name)
	if h.output == "" {
		_, err = a.Stdout.Write(text)
	} else {
		err = atomicfile.Write(h.output, text, 0o644)
	}
	if err != nil {
		return err
	}
	a.say("%s for %s of %s", count(equipment.Options(), "option"), count(len(equipment.Drivers), "driver"), count(len(nodes), "node"))
	for _, lacking := range equipment.Lacking() {
		a.say("no option for %s: %s", lacking.Name, lacking.Lack)
	}
	if n := len(equipment.Unclaimed); n > 0 {
		a.say("%s without a module in %s", count(n, "device"), o.Aliases)
	}
	return nil
}
