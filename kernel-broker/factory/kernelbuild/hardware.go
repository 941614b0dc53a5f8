// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
)

// HardwareRequest says for which recipe and which nodes to find options.
type HardwareRequest struct {
	// Options have the recipe's name, the catalog, the cache, the nodes' reports and
	// their modules.alias; the others have no meaning here.
	Options pipeline.Options
	// Progress receives what is fetched, Say notes for the user.
	Progress io.Writer
	Say      func(format string, args ...any)
}

// Hardware is what nodes need of a kernel.
type Hardware struct {
	slim.Equipment
	// Nodes is how many reported.
	Nodes int
}

// FindHardware finds the options that nodes' hardware needs in the source of a
// recipe's kernel; an error if there are none.
func FindHardware(ctx context.Context, r HardwareRequest) (Hardware, error) {
	o := r.Options
	// Reports are read before the source, which may have to be unpacked.
	nodes, aliases, err := slim.ReadHardware(o.Nodes, o.Aliases)
	if err != nil {
		return Hardware{}, err
	}
	if err := o.Complete(r.Say); err != nil {
		return Hardware{}, err
	}
	builder := &build.Builder{Catalog: o.Catalog, Cache: build.Cache{Dir: o.Cache}, Jobs: 1, FindSource: build.FindSource,
		Progress: build.Progress{Out: r.Progress, Kernel: o.Name}}
	plan, err := builder.Plan(ctx, o.Name)
	if err != nil {
		return Hardware{}, err
	}
	source, err := builder.Fetch(ctx, plan)
	if err != nil {
		return Hardware{}, err
	}
	r.Say("reading makefiles and Kconfig files of %s %s", source.Package, source.Version)
	tree := os.DirFS(source.Tree)
	kbuild, err := slim.ReadKbuild(tree)
	if err != nil {
		return Hardware{}, err
	}
	definitions, err := kconfig.Read(tree)
	if err != nil {
		return Hardware{}, err
	}
	wanted, err := plan.Wanted(source)
	if err != nil {
		return Hardware{}, err
	}
	h := Hardware{Equipment: slim.Equip(nodes, aliases, kbuild, definitions, wanted), Nodes: len(nodes)}
	if h.Options() == 0 {
		return Hardware{}, fmt.Errorf("no driver of the nodes has an option in %s %s: nothing is written", source.Package, source.Version)
	}
	return h, nil
}
