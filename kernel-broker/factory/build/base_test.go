// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// A kernel on the distribution's configuration has what that has built in, with
// the fragments over it, and none of its modules.
func TestDistributionIsTheBase(t *testing.T) {
	f := newFakeFactory(t)
	f.onDistribution("CONFIG_THEIRS=y\nCONFIG_DRIVER=m\nCONFIG_WANTED=n\n# CONFIG_OFF is not set\n")
	plan, err := f.builder().Plan(t.Context(), "fake")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := f.builder().Configure(t.Context(), plan, ConfigureInput{Variant: Plain}, out); err != nil {
		t.Fatal(err)
	}
	got, err := kconfig.ReadConfig(filepath.Join(out, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if got["THEIRS"] != "y" || got["WANTED"] != "y" || got["OFF"] != kconfig.Off || got["DRIVER"] != "" || got["TINY"] != "" {
		t.Errorf("the configuration is %v", got)
	}
}

func TestAnotherDistributionIsAnotherKernel(t *testing.T) {
	f := newFakeFactory(t)
	inputs := map[string]bool{}
	keys := map[string]bool{}
	for _, theirs := range []string{"CONFIG_THEIRS=y\n", "CONFIG_THEIRS=n\n"} {
		f.onDistribution(theirs)
		plan, err := f.builder().Plan(t.Context(), "fake")
		if err != nil {
			t.Fatal(err)
		}
		of, err := ConfigureInput{Variant: Plain}.Inputs(plan)
		if err != nil {
			t.Fatal(err)
		}
		keys[plan.Key], inputs[of["base"]] = true, true
	}
	if len(keys) != 2 || len(inputs) != 2 {
		t.Errorf("keys %v, inputs %v: two configurations share one", keys, inputs)
	}
}

func TestDistributionIsNotInstalled(t *testing.T) {
	f := newFakeFactory(t)
	f.onDistribution("CONFIG_THEIRS=y\n")
	f.source.Config = ""
	_, err := f.builder().Plan(t.Context(), "fake")
	if err == nil || !strings.Contains(err.Error(), "apt-get install linux-config-9.9=9.9-1") {
		t.Errorf("error is %v", err)
	}
	f.source.Config = filepath.Join(f.dir, "none.xz")
	if _, err := f.builder().Plan(t.Context(), "fake"); err == nil || !strings.Contains(err.Error(), `base "distribution"`) {
		t.Errorf("a configuration that is gone: %v", err)
	}
}

// onDistribution has the fake kernel begin with a distribution's configuration.
func (f *fakeFactory) onDistribution(config string) {
	f.t.Helper()
	recipe := filepath.Join(f.dir, "catalog/kernels/fake.yaml")
	text, err := os.ReadFile(recipe)
	if err != nil {
		f.t.Fatal(err)
	}
	write(f.t, recipe, strings.Replace(string(text), BaseTinyconfig, BaseDistribution, 1))
	plain := filepath.Join(f.dir, "distribution.config")
	write(f.t, plain, config)
	if _, err := output(f.t.Context(), "xz", "-kf", plain); err != nil {
		f.t.Fatal(err)
	}
	f.source.Config = plain + ".xz"
}
