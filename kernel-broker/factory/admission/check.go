// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Subject is a given kernel, in files that do not change meanwhile: see
// Take.
type Subject struct {
	Image string
	// Config is a file; empty for none.
	Config string
	// Name is what errors call the image; empty for its path.
	Name string
	// Arguments that it shall be booted with.
	Arguments []string
}

// Finding is what was found out about a subject.
type Finding struct {
	// Release, BuildID and CommandLineBytes are read from the image.
	Release, BuildID string
	CommandLineBytes int
	// Config is where the configuration came from: "inside" or a path; empty
	// when there is none to look at.
	Config string
	// Boot is nil when the boot was not tried.
	Boot *Boot
}

// Check looks at the files. What cannot be known without a configuration is an
// error: a kernel whose agent cannot load the next one stays until an
// administrator resets the machine.
func Check(ctx context.Context, s Subject) (Finding, error) {
	name := cmp.Or(s.Name, s.Image)
	fail := func(err error) (Finding, error) { return Finding{}, fmt.Errorf("image %q: %w", name, err) }
	data, err := os.ReadFile(s.Image)
	if err != nil {
		return fail(err)
	}
	f := Finding{}
	if err := CheckHeader(data); err != nil {
		return fail(err)
	}
	image, kernel, err := build.OpenImage(ctx, data)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", err, kb.ErrInvalid))
	}
	f.Release, f.BuildID, f.CommandLineBytes = image.Release, image.BuildID, image.CommandLineBytes
	if strings.Trim(f.BuildID, "0") == "" {
		return fail(fmt.Errorf("build id %q proves nothing: %w", f.BuildID, kb.ErrInvalid))
	}
	if f.Config, err = checkConfigs(kernel, s); err != nil {
		return fail(err)
	}
	return f, nil
}

// checkConfigs judges by the configuration inside the kernel, or by the file.
func checkConfigs(kernel []byte, s Subject) (from string, err error) {
	inside, err := EmbeddedConfig(kernel)
	if err != nil {
		return "", err
	}
	check := func(config kconfig.Config) error {
		return errors.Join(CheckConfig(config), kb.CheckHonoured(s.Arguments, config.On))
	}
	if s.Config == "" {
		if inside == nil {
			return "", fmt.Errorf("it carries no configuration (CONFIG_IKCONFIG); give the file that it was built with (--config-file): %w", kb.ErrInvalid)
		}
		return "inside", check(inside)
	}
	said, err := kconfig.ReadConfig(s.Config)
	if err != nil {
		return "", err
	}
	if inside == nil {
		return s.Config, check(said)
	}
	return "inside", errors.Join(sameConfig(said, inside), check(inside))
}

// Honours refuses arguments that an image would ignore, by the configuration
// inside it or, where it carries none, in the file at path. known is false where
// neither can be had, or no argument needs any: nothing was checked then.
func Honours(ctx context.Context, image, path string, arguments []string) (known bool, err error) {
	if !slices.ContainsFunc(arguments, func(a string) bool { return kb.HonouredBy(a) != nil }) {
		return false, nil
	}
	data, err := os.ReadFile(image)
	if err != nil {
		return false, err
	}
	var config kconfig.Config
	if _, kernel, err := build.OpenImage(ctx, data); err == nil {
		if config, err = EmbeddedConfig(kernel); err != nil {
			return false, fmt.Errorf("image %q: %w", image, err)
		}
	}
	if config == nil {
		if config, err = kconfig.ReadConfig(path); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	if err := kb.CheckHonoured(arguments, config.On); err != nil {
		return true, fmt.Errorf("image %q: %w", image, err)
	}
	return true, nil
}
