package factory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// tinyParts make up tinyconfig: everything off but what these files name.
var tinyParts = []string{
	"kernel/configs/tiny-base.config",
	"kernel/configs/tiny.config",
	"arch/x86/configs/tiny.config",
}

// baseConfig reads what the tree's tinyconfig sets.
func baseConfig(tree string) (Config, error) {
	base := Config{}
	for _, part := range tinyParts {
		config, err := ReadConfig(filepath.Join(tree, part))
		if err != nil {
			return nil, fmt.Errorf("base %q: %w", BaseTinyconfig, err)
		}
		for symbol, value := range config {
			base[symbol] = value
		}
	}
	return base, nil
}

// configure writes obj/.config and checks that all that was asked for is in
// it. Fragments are laid over tinyconfig before kconfig sees either: applied
// one after the other, every option that becomes visible through a fragment
// (all the network card vendors, once there is a network) would take its
// default instead of staying off.
func (b *Builder) configure(ctx context.Context, at site) error {
	base, err := baseConfig(at.tree)
	if err != nil {
		return err
	}
	wanted := filepath.Join(at.obj, "wanted.config")
	if err := os.WriteFile(wanted, []byte(at.plan.Merged.Over(base)), 0o644); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := b.quietMake(ctx, at, "KCONFIG_ALLCONFIG="+wanted, "allnoconfig"); err != nil {
		return err
	}
	if err := b.quietMake(ctx, at, "olddefconfig"); err != nil {
		return err
	}
	got, err := ReadConfig(filepath.Join(at.obj, ".config"))
	if err != nil {
		return err
	}
	if CheckSurvival(at.plan.Merged, got, nil) == nil {
		return nil
	}
	definitions, err := ReadKconfig(at.tree)
	if err != nil {
		return err
	}
	return CheckSurvival(at.plan.Merged, got, definitions)
}
