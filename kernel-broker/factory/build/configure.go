// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// tinyParts make up tinyconfig: everything off but what these files name.
var tinyParts = []string{
	"kernel/configs/tiny-base.config",
	"kernel/configs/tiny.config",
	"arch/x86/configs/tiny.config",
}

// baseConfig reads what the tree's tinyconfig sets.
func baseConfig(tree string) (kconfig.Config, error) {
	base := kconfig.Config{}
	for _, part := range tinyParts {
		config, err := kconfig.ReadConfig(filepath.Join(tree, part))
		if err != nil {
			return nil, fmt.Errorf("base %q: %w", BaseTinyconfig, err)
		}
		maps.Copy(base, config)
	}
	return base, nil
}

// Wanted is what kconfig begins with: tinyconfig of the source with the plan's
// options over it.
func (p Plan) Wanted(source Source) (kconfig.Config, error) {
	base, err := baseConfig(source.Tree)
	if err != nil {
		return nil, err
	}
	return kconfig.ParseConfig(p.Merged.Over(base)), nil
}

// configure writes obj/.config and checks that all that was asked for is in
// it. Fragments are laid over tinyconfig before kconfig sees either: applied
// one after the other, every option that becomes visible through a fragment
// (all the network card vendors, once there is a network) would take its
// default instead of staying off.
//
// Options that slimming turned off take others with them. Those may be lost,
// and are returned; what slimming itself asked for must be there.
func (b *Builder) configure(ctx context.Context, at site, asked kconfig.Merged, slim *kconfig.Fragment) ([]kconfig.Lost, error) {
	base, err := baseConfig(at.tree)
	if err != nil {
		return nil, err
	}
	wanted := filepath.Join(at.obj, "wanted.config")
	if err := os.WriteFile(wanted, []byte(asked.Over(base)), 0o644); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := b.quietMake(ctx, at, "KCONFIG_ALLCONFIG="+wanted, "allnoconfig"); err != nil {
		return nil, err
	}
	if err := b.quietMake(ctx, at, "olddefconfig"); err != nil {
		return nil, err
	}
	got, err := kconfig.ReadConfig(filepath.Join(at.obj, ".config"))
	if err != nil {
		return nil, err
	}
	if kconfig.CheckSurvival(asked, got, nil) == nil {
		return nil, nil
	}
	definitions, err := kconfig.Read(os.DirFS(at.tree))
	if err != nil {
		return nil, err
	}
	err = kconfig.CheckSurvival(asked, got, definitions)
	var lost *kconfig.LostError
	if slim == nil || !errors.As(err, &lost) {
		return nil, err
	}
	return lost.Outside(*slim)
}
