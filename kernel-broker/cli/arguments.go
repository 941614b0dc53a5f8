// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/admission"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
)

// allowed refuses arguments that the site's policy does not let jobs have.
func (a *app) allowed(name string, arguments []string) error {
	policy, err := site.Load(cmp.Or(a.site, site.DefaultPath))
	if err != nil {
		return err
	}
	if err := policy.Allow(arguments); err != nil {
		return fmt.Errorf("kernel %q: %w", name, err)
	}
	return nil
}

// honoured refuses arguments that the kernel would ignore, by the configuration
// inside the image, otherwise by the given one or the one beside it.
func (a *app) honoured(ctx context.Context, k *api.KernelSpec, image, config string) error {
	config = cmp.Or(config, filepath.Join(filepath.Dir(image), build.ConfigFile))
	known, err := admission.Honours(ctx, image, config, k.GetArguments())
	if err != nil {
		return fmt.Errorf("kernel %q: %w", refOfSpec(k), err)
	}
	var unchecked []string
	for _, argument := range k.GetArguments() {
		if needs := kb.HonouredBy(argument); needs != nil {
			unchecked = append(unchecked, fmt.Sprintf("%s (CONFIG_%s)", argument, strings.Join(needs, " or CONFIG_")))
		}
	}
	if !known && len(unchecked) > 0 {
		a.say("kernel %s has no configuration: support for %s was not checked", refOfSpec(k), strings.Join(unchecked, ", "))
	}
	return nil
}

func refOfSpec(k *api.KernelSpec) string { return kernelRef(k.GetProfile(), k.GetVersion()) }
