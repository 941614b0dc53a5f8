// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/tests/support/imagetest"
)

// Foreseeable errors are reported before a machine is booted.
func TestRegisterRefusesBeforeItBoots(t *testing.T) {
	f := newFixture(t)
	f.try = meanwhile(func(string, string) { t.Error("a machine was booted") })
	image := filepath.Join(bootable(t, t.TempDir(), "mitgcm"), "bzImage")
	vmlinux := filepath.Join(t.TempDir(), "vmlinux")
	if err := os.WriteFile(vmlinux, []byte("\x7fELF\x02\x01"+strings.Repeat("\x00", 12)+"\x3e"+strings.Repeat("\x00", 4096)), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code    int
		words   string
		profile string
		image   string
		more    []string
	}{
		"root=":                    {3, `"root=/dev/sda1": root belongs to the node`, "mitgcm", image, []string{"--argument", "root=/dev/sda1"}},
		"weaker than the site has": {3, "mitigations=off", "mitgcm", image, []string{"--argument", "mitigations=off"}},
		"ignored by the kernel":    {3, `the kernel ignores "nohz_full=1-3": it was built without CONFIG_NO_HZ_FULL`, "mitgcm", image, []string{"--argument", "nohz_full=1-3"}},
		"vmlinux":                  {3, "arch/x86/boot/bzImage", "mitgcm", vmlinux, nil},
		"stock":                    {3, `profile "stock" is for the distribution's own kernel`, "stock", image, nil},
		"not stock":                {2, "--replace-stock goes with --profile stock", "mitgcm", image, []string{"--replace-stock"}},
	} {
		t.Run(name, func(t *testing.T) {
			f.must(c.code, c.words, append([]string{"kernel", "register", "--profile", c.profile, "--kernel", c.image}, c.more...)...)
		})
	}
}

// A kernel for all nodes is compared with the drivers that they use.
func TestRegisterStockListsMissingDrivers(t *testing.T) {
	f := newFixture(t)
	image := filepath.Join(bootable(t, t.TempDir(), "slim"), "bzImage")
	register := []string{"kernel", "register", "--profile", "stock", "--kernel", image, "--replace-stock", "--no-boot-test", "--driver", "virtio_net"}
	f.nodes.list = nil
	f.must(0, "no node has reported its drivers yet", append(register, "--dry-run")...)
	f.nodes.list = []*api.Node{
		{Name: "n1", Inventory: &api.Inventory{Drivers: []string{"virtio_net"}}},
		{Name: "n2", Inventory: &api.Inventory{Drivers: []string{"mlx5_core", "nvme", "virtio_net"}}},
		{Name: "n3"},
	}
	f.must(0, "it lacks drivers that 1 of 2 nodes use: n2 (mlx5_core nvme)", register...)
	f.nodes.list = f.nodes.list[:1]
	f.must(0, "it has the drivers that the 1 nodes use", append(register, "--argument", "quiet")...)
}

// A folder of built kernels has their configurations.
func TestApplyRefusesIgnoredArguments(t *testing.T) {
	f := newFixture(t)
	kernels, dir := t.TempDir(), t.TempDir()
	bare, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-mitgcm", BuildID: strings.Repeat("ab", 20)})
	if err != nil {
		t.Fatal(err)
	}
	folder := describe(t, kernels, "mitgcm", string(bare), strings.Repeat("ab", 20))
	profile := "name: mitgcm\napplication: MITgcm\ndescription: x\ndefault_version: 1\nversions:\n  - version: 1\n    kernel: mitgcm\n    arguments: [\"isolcpus=1\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "mitgcm.yaml"), []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	apply := []string{"profile", "apply", dir, "--kernels", kernels}
	f.must(0, "support for isolcpus=1 (CONFIG_CPU_ISOLATION) was not checked", append(apply, "--dry-run")...)
	config := filepath.Join(folder, "config")
	if err := os.WriteFile(config, []byte("# CONFIG_CPU_ISOLATION is not set\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(3, `the kernel ignores "isolcpus=1"`, apply...)
	if err := os.WriteFile(config, []byte("CONFIG_CPU_ISOLATION=y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(0, "profile mitgcm applied", apply...)
}

// System cores need a kernel that knows the arguments which each node composes for them.
func TestSystemCoresNeedTheKernelsSupport(t *testing.T) {
	f := newFixture(t)
	kernels, dir := t.TempDir(), t.TempDir()
	bare, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-mitgcm", BuildID: strings.Repeat("ab", 20)})
	if err != nil {
		t.Fatal(err)
	}
	folder := describe(t, kernels, "mitgcm", string(bare), strings.Repeat("ab", 20))
	profile := "name: mitgcm\napplication: MITgcm\ndescription: x\ndefault_version: 1\nversions:\n  - version: 1\n    kernel: mitgcm\n    cores: {system: 2}\n"
	if err := os.WriteFile(filepath.Join(dir, "mitgcm.yaml"), []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(folder, "config")
	apply := []string{"profile", "apply", dir, "--kernels", kernels}
	f.must(3, "system cores need CONFIG_CPU_ISOLATION, CONFIG_NO_HZ_FULL, CONFIG_RCU_NOCB_CPU, CONFIG_SMP, and the kernel carries no configuration", apply...)
	all := []string{"CONFIG_SMP=y", "CONFIG_CPU_ISOLATION=y", "CONFIG_NO_HZ_FULL=y", "CONFIG_RCU_NOCB_CPU=y"}
	for i, missing := range all {
		text := strings.Join(slices.Delete(slices.Clone(all), i, i+1), "\n") + "\n"
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f.must(3, "it was built without "+strings.TrimSuffix(missing, "=y"), apply...)
	}
	if err := os.WriteFile(config, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(0, "profile mitgcm applied", apply...)
	if out := f.must(0, "", "profile", "show", "mitgcm"); !strings.Contains(out, "Cores of each node:\nKERNEL    SYSTEM  APPLICATION\nmitgcm@1  2       the others\n") {
		t.Errorf("profile show prints\n%s", out)
	}
	if out := f.must(0, "", "kernel", "show", "mitgcm"); !strings.Contains(out, "System cores:") {
		t.Errorf("kernel show prints\n%s", out)
	}
	if out := f.must(0, "", "profile", "show", "mitgcm", "-o", "json"); !strings.Contains(out, `"system_cores": 2`) {
		t.Errorf("as JSON:\n%s", out)
	}
	// A registered version never changes.
	if err := os.WriteFile(filepath.Join(dir, "mitgcm.yaml"), []byte(strings.Replace(profile, "system: 2", "system: 3", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(3, "exists with other content", append(apply, "--dry-run")...)
	f.must(3, "system_cores: 2, not 3", apply...)
	f.must(3, "system cores: every node returns to stock", "kernel", "register", "--profile", "stock", "--kernel", filepath.Join(folder, "bzImage"), "--system-cores", "1")
}
