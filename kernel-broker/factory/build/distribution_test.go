// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Where Debian's releases have the parts of a kernel.
func TestCollectPackage(t *testing.T) {
	const release = "9.9.9-amd64"
	for name, at := range map[string]struct{ image, config, modules string }{
		"Debian 12": {"boot/vmlinuz-" + release, "boot/config-" + release, "lib/modules/"},
		"Debian 13": {"boot/vmlinuz-" + release, "boot/config-" + release, "usr/lib/modules/"},
		"Debian 14": {"usr/lib/modules/" + release + "/vmlinuz", "usr/lib/modules/" + release + "/config", "usr/lib/modules/"},
	} {
		root, dir := t.TempDir(), t.TempDir()
		write(t, filepath.Join(root, at.image), string(fakeImage(t, release, fakeBuildID)))
		write(t, filepath.Join(root, at.config), "CONFIG_MODULES=y\n")
		tree := filepath.Join(root, at.modules, release)
		var builtin strings.Builder
		for _, module := range nodeModules {
			if module != "loop" && module != checksumModule {
				builtin.WriteString("kernel/drivers/block/" + module + ".ko\n")
			}
		}
		write(t, filepath.Join(tree, "modules.builtin"), builtin.String())
		write(t, filepath.Join(tree, "modules.builtin.modinfo"), "ext4.alias=fs-ext4\x00")
		write(t, filepath.Join(tree, "modules.order"), "kernel/drivers/block/loop.ko\n")
		module := filepath.Join(tree, "kernel/drivers/block/loop.ko")
		if err := os.MkdirAll(filepath.Dir(module), 0o755); err != nil {
			t.Fatal(err)
		}
		object(t, module, "name=loop", "vermagic="+release+" SMP ")
		if name != "Debian 12" {
			if _, err := output(t.Context(), "xz", "--check=crc32", module); err != nil {
				t.Fatal(err)
			}
		}
		if err := collectPackage(t.Context(), Source{Package: "linux-image-" + release, Version: "9.9.9-1"}, root, dir); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		manifest, err := ReadManifest(dir)
		if err != nil || manifest.Release != release || manifest.BuildID != fakeBuildID || !slices.Contains(manifest.Drivers.Modular, "loop") {
			t.Errorf("%s: %+v, %v", name, manifest, err)
		}
		order, err := os.ReadFile(filepath.Join(dir, modulesFolder, loadOrderFile))
		if err != nil || string(order) != "lib/modules/"+release+"/kernel/drivers/block/loop.ko\n" && string(order) != "kernel/drivers/block/loop.ko\n" {
			t.Errorf("%s: load order %q, %v", name, order, err)
		}
		if got, _, err := moduleInfo(filepath.Join(dir, modulesFolder, "lib/modules", release, "kernel/drivers/block/loop.ko")); err != nil || got != "loop" {
			t.Errorf("%s: the module is %q, %v", name, got, err)
		}
	}
}

func TestPackagesOfAKernel(t *testing.T) {
	for text, want := range map[string][]string{
		"Package: linux-image-6.12.117+deb13-amd64\nDepends: kmod, initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool\n": {"linux-image-x-amd64=1"},
		"Depends: dracut | linux-initramfs-tool, linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-amd64 (= 7.2.13-1), " +
			"linux-modules-7.2.13+deb14-amd64 (= 7.2.13-1)\nPre-Depends: linux-base (>= 4.17~)\n": {"linux-image-x-amd64=1",
			"linux-base-7.2.13+deb14-amd64=7.2.13-1", "linux-binary-7.2.13+deb14-amd64=7.2.13-1", "linux-modules-7.2.13+deb14-amd64=7.2.13-1"},
	} {
		if got := packagesOf("linux-image-x-amd64", "1", text); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	const sid = "Depends: linux-base-amd64 (= 7.2.13-1), linux-image-7.2.13+deb14-amd64 (= 7.2.13-1)"
	if match := kernelDependency.FindStringSubmatch(sid); match == nil || match[1] != "linux-image-7.2.13+deb14-amd64" || match[2] != "7.2.13-1" {
		t.Errorf("sid: %q", match)
	}
}
