// SPDX-License-Identifier: Apache-2.0

package build

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func fakeTree(t *testing.T) *moduleTree {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "lib/modules/1-x")
	write(t, filepath.Join(dir, "modules.builtin"), "kernel/drivers/virtio/virtio-core.ko\n")
	write(t, filepath.Join(dir, "modules.dep"), `kernel/a/low.ko:
kernel/a/mid.ko: kernel/a/low.ko
kernel/fs/top/top.ko: kernel/a/mid.ko kernel/a/low.ko
kernel/drivers/net/wireless/wifi.ko:
kernel/drivers/net/ethernet/card-x.ko.xz: kernel/a/low.ko
`)
	write(t, filepath.Join(dir, "modules.alias"), "# Aliases\nalias fs-top top\nalias pci:* card_x\nalias fs-other top\n")
	tree, err := openModuleTree(t.Context(), root, "1-x")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestLoadOrder(t *testing.T) {
	order, err := fakeTree(t).loadOrder([]string{"card_x", "top", "virtio_core"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kernel/a/low.ko", "kernel/drivers/net/ethernet/card-x.ko.xz",
		"kernel/a/mid.ko", "kernel/fs/top/top.ko",
	}
	if !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if _, err := fakeTree(t).loadOrder([]string{"nothing"}); err == nil || !strings.Contains(err.Error(), `module "nothing"`) {
		t.Errorf("error is %v", err)
	}
}

func TestDriversOfModules(t *testing.T) {
	tree := fakeTree(t)
	if got := driverNames(tree.modules()); !slices.Equal(got, []string{"card_x"}) {
		t.Errorf("drivers %v", got)
	}
	names, err := tree.filesystems()
	if err != nil || !slices.Equal(names, []string{"other", "top"}) {
		t.Errorf("file systems %v, %v", names, err)
	}
}

func TestKernelDependency(t *testing.T) {
	text := "Package: linux-image-amd64\nDepends: linux-image-6.1.0-56-amd64 (= 6.1.192-2)\nDescription: x"
	match := kernelDependency.FindStringSubmatch(text)
	if match == nil || match[1] != "linux-image-6.1.0-56-amd64" || match[2] != "6.1.192-2" {
		t.Errorf("got %q", match)
	}
}
