// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// A small tree with what the nodes of testdata/nodes have.
func serverTree(t *testing.T) (*Kbuild, *kconfig.Tree) {
	t.Helper()
	files := fstest.MapFS{
		"Kbuild":            {Data: []byte("obj-y += d/\n")},
		"arch/x86/Makefile": {},
		"d/Makefile": {Data: []byte("obj-$(CONFIG_ETHERNET) += eth/\nobj-$(CONFIG_BLK_DEV_NVME) += nvme.o\nobj-$(CONFIG_SATA_AHCI) += ahci.o libahci.o\n" +
			"obj-$(CONFIG_MLXFW) += mlxfw.o\nobj-$(CONFIG_FAT_FS) += fat/\nobj-$(CONFIG_XFS_FS) += xfs.o\nobj-$(CONFIG_EXT4_FS) += ext4.o\nobj-y += proc.o\n")},
		"d/fat/Makefile": {Data: []byte("obj-$(CONFIG_VFAT_FS) += vfat.o\n")},
		"d/eth/Makefile": {Data: []byte("obj-$(CONFIG_I40E) += i40e.o\nobj-$(CONFIG_MLX5_CORE) += mlx5_core.o\n")},
		"Kconfig": {Data: []byte("config PCI\n\tbool \"PCI\"\nconfig ETHERNET\n\tbool \"Ethernet\"\nconfig BLK_DEV_NVME\n\ttristate \"NVMe\"\n\tdepends on PCI\n" +
			"config ATA\n\tbool \"ATA\"\nconfig SATA_AHCI\n\ttristate \"AHCI\"\n\tdepends on ATA && PCI\nconfig MLXFW\n\ttristate\n" +
			"config MLX5_CORE\n\ttristate \"mlx5\"\n\tdepends on ETHERNET && PCI\n\tselect MLXFW\nconfig I40E\n\ttristate \"i40e\"\n\tdepends on ETHERNET && PCI\n" +
			"config XFS_FS\n\ttristate \"XFS\"\nconfig EXT4_FS\n\ttristate \"ext4\"\n" +
			"config FAT_FS\n\ttristate\nconfig VFAT_FS\n\ttristate \"VFAT\"\n\tselect FAT_FS\n")},
	}
	kbuild, err := ReadKbuild(files)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := kconfig.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return kbuild, tree
}

func TestEquip(t *testing.T) {
	kbuild, tree := serverTree(t)
	for _, c := range []struct {
		node, options string
		lacking       []string
		unclaimed     int
	}{
		{"intel", "BLK_DEV_NVME ETHERNET MLX5_CORE VFAT_FS XFS_FS", []string{"nfs4", "pcieport"}, 1},
		{"amd", "ATA ETHERNET EXT4_FS I40E SATA_AHCI", []string{"sd"}, 0},
		{"nvidia", "ETHERNET MLX5_CORE", []string{"lnet", "lustre", "nvidia"}, 1},
	} {
		nodes, aliases, err := ReadHardware([]string{"testdata/nodes/" + c.node + ".json"}, "testdata/nodes/modules.alias")
		if err != nil {
			t.Fatal(err)
		}
		got := Equip(nodes, aliases, kbuild, tree, kconfig.Config{"PCI": "y"})
		text := got.Fragment("server")
		fragment, err := kconfig.ParseFragment(c.node+".config", text)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.node, err, text)
		}
		var options []string
		for _, option := range fragment.Options {
			if option.Value != "y" {
				t.Errorf("%s: %s", c.node, option)
			}
			options = append(options, option.Symbol)
		}
		slices.Sort(options)
		if strings.Join(options, " ") != c.options || got.Options() != len(options) {
			t.Errorf("%s: options %v, want %s", c.node, options, c.options)
		}
		var lacking []string
		for _, one := range got.Lacking() {
			lacking = append(lacking, one.Name)
		}
		for _, want := range c.lacking {
			if !slices.Contains(lacking, want) || !strings.Contains(string(text), "# - "+want+": node ") {
				t.Errorf("%s: %s is not said to lack an option: %v", c.node, want, lacking)
			}
		}
		if slices.Contains(lacking, "mlxfw") {
			t.Errorf("%s: mlxfw comes with mlx5_core", c.node)
		}
		if len(got.Unclaimed) != c.unclaimed {
			t.Errorf("%s: unclaimed %v", c.node, got.Unclaimed)
		}
	}
}

func TestFragmentNamesNodesAndDevices(t *testing.T) {
	kbuild, tree := serverTree(t)
	nodes, aliases, err := ReadHardware([]string{"testdata/nodes/intel.json", "testdata/nodes/nvidia.json"}, "testdata/nodes/modules.alias")
	if err != nil {
		t.Fatal(err)
	}
	text := string(Equip(nodes, aliases, kbuild, tree, kconfig.Config{}).Fragment("server"))
	for _, want := range []string{"# mlx5_core: nodes c1 g1: has the module mlx5_core loaded;", "pci:v000015B3d00001017", "CONFIG_PCI=y"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text = string(Equip(nodes, nil, kbuild, tree, kconfig.Config{}).Fragment("server")); !strings.Contains(text, "Without a modules.alias") {
		t.Errorf("devices were not looked up, and it does not say so:\n%s", text)
	}
}

func TestReadHardwareRefuses(t *testing.T) {
	folder := t.TempDir()
	for content, want := range map[string]string{
		`{"node":`: "unexpected", `[]`: "no node", `[{"node":"n1","nodes":1}]`: "unknown field", `[{"node":"n1","pci":["8086:1572"]}]`: "no modules.alias",
	} {
		file := filepath.Join(folder, "n.json")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadHardware([]string{file}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
	intel := "testdata/nodes/intel.json"
	if _, _, err := ReadHardware([]string{intel, intel}, ""); err == nil || !strings.Contains(err.Error(), "reports twice") {
		t.Errorf("twice: %v", err)
	}
	if _, _, err := ReadHardware([]string{intel}, intel); err == nil || !strings.Contains(err.Error(), "no alias of a device") {
		t.Errorf("no alias file: %v", err)
	}
}
