// SPDX-License-Identifier: Apache-2.0

//go:build lab

package slim

import (
	"os"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// What real nodes have is found in the real source. The builder's own check
// (kernel build --until config) has the last word on a fragment.
func TestEquipOfTheRealTree(t *testing.T) {
	source := os.DirFS(realTree(t))
	kbuild, err := ReadKbuild(source)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := kconfig.Read(source)
	if err != nil {
		t.Fatal(err)
	}
	const catalog = "../../../catalog"
	recipe, err := build.LoadRecipe(catalog, "server")
	if err != nil {
		t.Fatal(err)
	}
	fragments, err := recipe.ReadFragments(catalog, recipe.Fragments)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := kconfig.Merge(fragments)
	if err != nil {
		t.Fatal(err)
	}
	nodes, aliases, err := ReadHardware([]string{"testdata/nodes/intel.json", "testdata/nodes/amd.json", "testdata/nodes/nvidia.json"}, "testdata/nodes/modules.alias")
	if err != nil {
		t.Fatal(err)
	}
	text := Equip(nodes, aliases, kbuild, tree, kconfig.ParseConfig(merged.Text())).Fragment("server")
	got := kconfig.ParseConfig(string(text))
	for _, symbol := range []string{"ATA", "SATA_AHCI", "EDAC_AMD64", "EDAC_SKX", "I40E", "NET_VENDOR_INTEL", "MLX5_CORE", "MLX5_INFINIBAND", "BLK_DEV_NVME", "XFS_FS"} {
		if !got.On(symbol) {
			t.Errorf("%s is missing in\n%s", symbol, text)
		}
	}
}
