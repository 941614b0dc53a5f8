// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Values of the key base: the configuration that a recipe's fragments are laid over.
const (
	// BaseTinyconfig is the smallest configuration the kernel offers. What no
	// fragment asks for is off.
	BaseTinyconfig = "tinyconfig"
	// BaseDistribution is the distribution's own configuration without what that
	// has as modules.
	BaseDistribution = "distribution"
)

// Debian's names: a source package, its package of configurations, and the file of
// the kernel that it installs.
const (
	sourcePrefix     = "linux-source-"
	configPrefix     = "linux-config-"
	distributionFile = "config.amd64_none_amd64.xz"
)

// tinyParts make up tinyconfig: everything off but what these files name.
var tinyParts = []string{
	"kernel/configs/tiny-base.config",
	"kernel/configs/tiny.config",
	"arch/x86/configs/tiny.config",
}

// base of the plan's configuration; tinyconfig is in the source's tree.
func (p Plan) base(tree string) (kconfig.Config, error) {
	if p.Recipe.Base == BaseDistribution {
		return p.Distribution, nil
	}
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

// distributionConfig reads the distribution's configuration of a source package,
// without what it has as modules: a job's kernel has its drivers built in.
func distributionConfig(ctx context.Context, source SourcePackage) (kconfig.Config, error) {
	if source.Config == "" {
		name := configPackage(source.Name)
		return nil, fmt.Errorf("base %q: package %q of version %s is not installed: apt-get install %s=%s",
			BaseDistribution, name, source.Version, name, source.Version)
	}
	text, err := output(ctx, "xz", "-dc", source.Config)
	if err != nil {
		return nil, fmt.Errorf("base %q: %w", BaseDistribution, err)
	}
	config := kconfig.ParseConfig(text)
	maps.DeleteFunc(config, func(_, value string) bool { return value == "m" })
	return config, nil
}

// findConfig is where the configuration that goes with a source is installed, ""
// where it is not, or is of another version.
func findConfig(ctx context.Context, source SourcePackage) string {
	name := configPackage(source.Name)
	file := filepath.Join("/usr/src", name, distributionFile)
	if version, err := installedVersion(ctx, name); err != nil || version != source.Version || !exists(file) {
		return ""
	}
	return file
}

func configPackage(source string) string {
	return configPrefix + strings.TrimPrefix(source, sourcePrefix)
}
