// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Names of the distribution's kernel.
const (
	DistributionName    = "stock"
	distributionPackage = "linux-image-amd64"
	modulesFolder       = "modules"
)

// kernelDependency is how the meta package names the kernel package.
var kernelDependency = regexp.MustCompile(`\b(linux-image-[0-9][a-z0-9.+-]*-amd64) \(= ([^)\s]+)\)`)

// kernelParts are packages of which the kernel package is made up since Debian 14: configuration, image and modules.
var kernelParts = regexp.MustCompile(`\b(linux-(?:base|binary|modules)-[0-9][a-z0-9.+-]*-amd64) \(= ([^)\s]+)\)`)

// Result is a kernel, fetched now or before.
type Result struct {
	Manifest Manifest
	Cached   bool
	Took     time.Duration
}

// Distribution fetches the distribution's own kernel without installing it and
// leaves image, configuration, manifest and a tree of the modules that a
// virtual node needs in the folder out.
func (b *Builder) Distribution(ctx context.Context, out string) (Result, error) {
	started := time.Now()
	fail := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("kernel %q: %w", DistributionName, err)
	}
	name, version, err := currentKernelPackage(ctx)
	if err != nil {
		return fail(err)
	}
	cached := true
	key := fmt.Sprintf("%s_%s-%d", name, version, resultFormat)
	dir, err := b.Cache.Entry(ctx, "distribution", key, b.Progress.Waiting("fetching "+key), func(dir string) error {
		cached = false
		return b.openPackage(ctx, name, version, dir)
	})
	if err != nil {
		return fail(err)
	}
	manifest, err := ReadManifest(dir)
	if err != nil {
		return fail(err)
	}
	if err := manifest.Verify(dir); err != nil {
		return fail(fmt.Errorf("damaged in the cache, remove %s: %w", dir, err))
	}
	if err := publishModules(dir, out); err != nil {
		return fail(err)
	}
	if err := Publish(dir, out, ImageFile, ConfigFile, ManifestFile); err != nil {
		return fail(err)
	}
	return Result{Manifest: manifest, Cached: cached, Took: time.Since(started)}, nil
}

// DistributionPackage names the package of the distribution's kernel, with its
// version.
func DistributionPackage(ctx context.Context) (string, error) {
	name, version, err := currentKernelPackage(ctx)
	if err != nil {
		return "", fmt.Errorf("kernel %q: %w", DistributionName, err)
	}
	return name + "_" + version, nil
}

// currentKernelPackage asks apt which kernel the distribution ships now.
func currentKernelPackage(ctx context.Context) (name, version string, err error) {
	text, err := described(ctx, distributionPackage)
	if err != nil {
		return "", "", err
	}
	match := kernelDependency.FindStringSubmatch(text)
	if match == nil {
		return "", "", fmt.Errorf("package %q names no kernel package (run apt-get update?)", distributionPackage)
	}
	return match[1], match[2], nil
}

// described is what apt says of a package as it would install it.
func described(ctx context.Context, name string) (string, error) {
	return output(ctx, "apt-cache", "show", "--no-all-versions", name)
}

// openPackage downloads the package and takes out of it what a node needs.
func (b *Builder) openPackage(ctx context.Context, name, version, dir string) error {
	root := filepath.Join(dir, "work")
	text, err := described(ctx, name+"="+version)
	if err != nil {
		return err
	}
	var digests []string
	for _, part := range packagesOf(name, version, text) {
		b.Progress.Say("downloading %s", part)
		sum, err := Unpack(ctx, part, root)
		if err != nil {
			return fmt.Errorf("package %q: %w", part, err)
		}
		digests = append(digests, sum)
	}
	sum := digests[0]
	if len(digests) > 1 {
		sum = digest.Of([]byte(strings.Join(digests, "\n")))
	}
	if err := collectPackage(ctx, Source{Package: name, Version: version, Digest: sum}, root, dir); err != nil {
		return fmt.Errorf("package %q: %w", name, err)
	}
	return os.RemoveAll(root)
}

// packagesOf are the kernel package and those of which it is made up, as apt takes them.
func packagesOf(name, version, text string) []string {
	names := []string{name + "=" + version}
	for _, part := range kernelParts.FindAllStringSubmatch(text, -1) {
		names = append(names, part[1]+"="+part[2])
	}
	return names
}

// Unpack downloads a Debian package, which apt checks, and unpacks it in a
// folder. It returns the package's digest.
func Unpack(ctx context.Context, name, root string) (string, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	if _, err := Output(ctx, root, "apt-get", "-q", "download", name); err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(root, "*.deb"))
	if err != nil || len(archives) != 1 {
		return "", errors.Join(err, fmt.Errorf("apt-get left %d files", len(archives)))
	}
	sum, _, err := digest.File(archives[0])
	if err != nil {
		return "", err
	}
	if _, err := output(ctx, "dpkg-deb", "-x", archives[0], root); err != nil {
		return "", err
	}
	return sum, os.Remove(archives[0])
}

func collectPackage(ctx context.Context, source Source, root, dir string) error {
	release := strings.TrimPrefix(source.Package, "linux-image-")
	// Since Debian 13 modules are below /usr, which depmod does not know of.
	if !exists(filepath.Join(root, "lib")) {
		if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"vmlinuz": ImageFile, "config": ConfigFile} {
		from := filepath.Join(root, "boot", name+"-"+release)
		if !exists(from) { // since Debian 14
			from = filepath.Join(root, "lib/modules", release, name)
		}
		if err := copyFile(from, filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	tree, err := openModuleTree(ctx, root, release)
	if err != nil {
		return err
	}
	if err := tree.copyNeeded(ctx, filepath.Join(dir, modulesFolder)); err != nil {
		return err
	}
	config, err := kconfig.ReadConfig(filepath.Join(dir, ConfigFile))
	if err != nil {
		return err
	}
	names, err := readFilesystemNames(filepath.Join(tree.dir, "modules.builtin.modinfo"))
	if err != nil {
		return err
	}
	modular, err := tree.filesystems()
	if err != nil {
		return err
	}
	manifest := Manifest{
		Name: DistributionName, Description: "The distribution's own kernel", Release: release,
		Modules:     modulesFolder,
		Drivers:     Offer{BuiltIn: driverNames(tree.builtin), Modular: driverNames(tree.modules())},
		Filesystems: Offer{BuiltIn: filesystems(names, config), Modular: modular},
		Source:      source,
	}
	if err := manifest.addImage(ctx, dir); err != nil {
		return err
	}
	return manifest.Write(dir)
}

// publishModules replaces the module tree in out.
func publishModules(dir, out string) error {
	target := filepath.Join(out, modulesFolder)
	fresh := target + ".new"
	if err := errors.Join(os.MkdirAll(out, 0o755), os.RemoveAll(fresh)); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if err := os.CopyFS(fresh, os.DirFS(filepath.Join(dir, modulesFolder))); err != nil {
		return fmt.Errorf("output %q: %w", target, err)
	}
	if err := errors.Join(os.RemoveAll(target), os.Rename(fresh, target)); err != nil {
		return fmt.Errorf("output %q: %w", target, err)
	}
	return nil
}
