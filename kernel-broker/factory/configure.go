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
func (b *Builder) configure(ctx context.Context, tree, obj string, plan Plan) error {
	base, err := baseConfig(tree)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(obj, 0o755); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	wanted := filepath.Join(obj, "wanted.config")
	if err := os.WriteFile(wanted, []byte(plan.Merged.Over(base)), 0o644); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := b.quietMake(ctx, tree, obj, plan, "KCONFIG_ALLCONFIG="+wanted, "allnoconfig"); err != nil {
		return err
	}
	if err := b.quietMake(ctx, tree, obj, plan, "olddefconfig"); err != nil {
		return err
	}
	got, err := ReadConfig(filepath.Join(obj, ".config"))
	if err != nil {
		return err
	}
	if CheckSurvival(plan.Merged, got, nil) == nil {
		return nil
	}
	definitions, err := ReadKconfig(tree)
	if err != nil {
		return err
	}
	return CheckSurvival(plan.Merged, got, definitions)
}
