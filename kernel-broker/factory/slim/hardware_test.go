// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

const moduleAliases = `# Aliases extracted from modules themselves.
alias pci:v00008086d000010D3sv*sd*bc*sc*i* e1000e
alias pci:v*d*sv*sd*bc01sc06i01* ahci
alias acpi*:PNP0501:* serial_acpi
alias virtio:d00000002v* virtio_blk
alias fs-ext4 ext4
`

func TestModulesOfADevice(t *testing.T) {
	aliases, err := ReadAliases(strings.NewReader(moduleAliases))
	if err != nil {
		t.Fatal(err)
	}
	for modalias, want := range map[string]string{
		"pci:v00008086d000010D3sv00008086sd0000A01Fbc02sc00i00": "e1000e",
		"pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01": "ahci",
		"virtio:d00000002v00001AF4":                             "virtio_blk",
		"usb:v1234":                                             "",
		pciAlias("8086:10d3"):                                   "e1000e",
	} {
		if got := strings.Join(aliases.Modules(modalias), " "); got != want {
			t.Errorf("%s: %q, want %q", modalias, got, want)
		}
	}
}

func TestKeepHardware(t *testing.T) {
	kbuild, err := ReadKbuild(fstest.MapFS{
		"Kbuild":            {Data: []byte("obj-y += d/\n")},
		"arch/x86/Makefile": {},
		"d/Makefile": {Data: []byte(
			"obj-$(CONFIG_ETHERNET) += eth/\nobj-$(CONFIG_SATA_AHCI) += ahci.o\nobj-$(CONFIG_VIRTIO_BLK) += virtio_blk.o\nobj-$(CONFIG_EXT4_FS) += ext4.o\next4-y := a.o\nobj-y += proc.o\n")},
		"d/eth/Makefile": {Data: []byte("obj-$(CONFIG_E1000E) += e1000e.o\nobj-$(CONFIG_MLX) += mlx-core.o\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	aliases, err := ReadAliases(strings.NewReader(moduleAliases))
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := ReadNodes(strings.NewReader(`[{"node": "n1", "pci": ["8086:10d3"],
		"modaliases": ["pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01"],
		"modules": ["mlx_core"], "drivers": ["virtio-blk", "serial8250"], "filesystems": ["ext4", "proc", "cgroup2"]}]`))
	if err != nil {
		t.Fatal(err)
	}
	keep := Keep{}
	config := kconfig.Config{"ETHERNET": "y", "E1000E": "y", "SATA_AHCI": "m", "EXT4_FS": "y", "VIRTIO_BLK": "y"}
	missing := keep.KeepHardware(nodes, aliases, kbuild, config)
	want := map[string]string{
		"ETHERNET":   "node n1 has the device 8086:10d3, which e1000e drives",
		"E1000E":     "node n1 has the device 8086:10d3, which e1000e drives",
		"SATA_AHCI":  "node n1 has the device pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01, which ahci drives",
		"EXT4_FS":    "node n1 has mounted the file system ext4",
		"VIRTIO_BLK": "node n1 has the driver virtio_blk at work",
	}
	if len(keep) != len(want) {
		t.Errorf("kept %v", keep)
	}
	for symbol, reason := range want {
		if keep[symbol] != reason {
			t.Errorf("%s: %q, want %q", symbol, keep[symbol], reason)
		}
	}
	if len(missing) != 1 || missing[0].Module != "mlx_core" || !slices.Equal(missing[0].Options, []string{"ETHERNET", "MLX"}) {
		t.Errorf("missing %+v", missing)
	}
}

// A processor's modalias has all its features in it, and a reason is one line.
func TestReasonIsShort(t *testing.T) {
	node := kb.DeviceReport{Modaliases: []string{"cpu:type:x86,ven0000fam0006mod003F:feature:%s" + strings.Repeat(",0001", 200)}}
	found := needs(node, Aliases{"cpu": {{pattern: "cpu:*", module: "aesni-intel"}}})
	if got := found[0].why; len(got) > 150 || !strings.Contains(got, "feature:%s,") || !strings.HasSuffix(got, "..., which aesni_intel drives") {
		t.Errorf("reason is %q", got)
	}
}

func TestFragmentTellsWhatIsMissing(t *testing.T) {
	text := string(Outcome{Name: "x", Missing: []Missing{
		{Node: "n1", Module: "nvme", Options: []string{"BLK_DEV_NVME"}},
		{Node: "n1", Module: "mlx5_core", Device: "15b3:1017", Options: []string{"MLX5_CORE", "NET_VENDOR_MELLANOX"}},
		{Node: "n2", Module: "mlx5_core", Device: "15b3:1017", Options: []string{"MLX5_CORE", "NET_VENDOR_MELLANOX"}},
	}}.Fragment())
	want := `
# Missing: nodes need these drivers, and no fragment of the recipe asks for
# them.
# - mlx5_core (MLX5_CORE NET_VENDOR_MELLANOX) for 15b3:1017: n1 n2
# - nvme (BLK_DEV_NVME): n1
`
	if !strings.HasSuffix(text, want) {
		t.Errorf("fragment is\n%s", text)
	}
	if text := string(Outcome{Name: "x"}.Fragment()); strings.Contains(text, "Missing") {
		t.Errorf("fragment is\n%s", text)
	}
}
