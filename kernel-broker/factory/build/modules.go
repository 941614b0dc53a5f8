// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// loadOrderFile lists the copied modules so that insmod, one after the other,
// always finds what the next one needs.
const loadOrderFile = "load-order"

// nodeModules are what a virtual node needs to find its root and its network
// and to run Slurm.
var nodeModules = []string{
	"9p", "9pnet_virtio", "af_packet", checksumModule, "ext4", "i6300esb",
	"loop", "overlay", "virtio_blk", "virtio_net", "virtio_pci", "virtio_rng",
}

// checksumModule is asked for by name at run time, so that no dependency leads
// to it. Newer kernels have it in no module.
const checksumModule = "crc32c_generic"

// moduleTree is lib/modules/<release> of an opened package.
type moduleTree struct {
	dir     string
	release string
	builtin []string
	// needs maps a module's path below dir to those it needs, in the order
	// of modules.dep: the last has to be loaded first.
	needs map[string][]string
	// place maps a module's name to its path.
	place map[string]string
}

func openModuleTree(ctx context.Context, root, release string) (*moduleTree, error) {
	dir := filepath.Join(root, "lib/modules", release)
	builtin, err := readBuiltin(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	tree := &moduleTree{
		dir: dir, release: release, builtin: builtin,
		needs: map[string][]string{}, place: map[string]string{},
	}
	dependencies := filepath.Join(dir, "modules.dep")
	if !exists(dependencies) {
		// A package that was not installed has no modules.dep yet.
		if _, err := output(ctx, "depmod", "-b", root, release); err != nil {
			return nil, err
		}
	}
	file, err := os.Open(dependencies)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		module, needs, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: line %q", lines.Text())
		}
		tree.needs[module] = strings.Fields(needs)
		tree.place[moduleName(module)] = module
	}
	return tree, lines.Err()
}

// modules of the whole package, by path.
func (t *moduleTree) modules() []string { return slices.Sorted(maps.Keys(t.needs)) }

// filesystems among the modules, by the aliases that mount asks for.
func (t *moduleTree) filesystems() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(t.dir, "modules.alias"))
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	names := []string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "alias" {
			continue
		}
		if name, ok := strings.CutPrefix(fields[1], "fs-"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// loadOrder returns the needed modules and all they need, dependencies first.
func (t *moduleTree) loadOrder(names []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	builtin := map[string]bool{}
	for _, module := range t.builtin {
		builtin[moduleName(module)] = true
	}
	for _, name := range names {
		module, found := t.place[name]
		if !found {
			if builtin[name] {
				continue
			}
			return nil, fmt.Errorf("module %q: the kernel %s has none of that name", name, t.release)
		}
		needs := t.needs[module]
		for i := len(needs) - 1; i >= -1; i-- {
			next := module
			if i >= 0 {
				next = needs[i]
			}
			if !seen[next] {
				seen[next] = true
				order = append(order, next)
			}
		}
	}
	return order, nil
}

// copyNeeded makes a small module tree in dir: lib/modules/<release> as
// modprobe wants it, and the load order as paths below it.
func (t *moduleTree) copyNeeded(ctx context.Context, dir string) error {
	wanted := slices.Clone(nodeModules)
	if _, is := t.place[checksumModule]; !is {
		wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == checksumModule })
	}
	order, err := t.loadOrder(wanted)
	if err != nil {
		return err
	}
	small := filepath.Join(dir, "lib/modules", t.release)
	for _, file := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := copyFile(filepath.Join(t.dir, file), filepath.Join(small, file)); err != nil {
			return fmt.Errorf("module %q: %w", file, err)
		}
	}
	for i, file := range order {
		if order[i], err = copyModule(ctx, t.dir, small, file); err != nil {
			return fmt.Errorf("module %q: %w", file, err)
		}
	}
	if _, err := output(ctx, "depmod", "-b", dir, t.release); err != nil {
		return err
	}
	list := strings.Join(order, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, loadOrderFile), []byte(list), 0o644); err != nil {
		return fmt.Errorf("modules: %w", err)
	}
	return nil
}

// copyModule copies a module, unpacked: not every insmod takes a compressed one.
// It returns the path below the folder to.
func copyModule(ctx context.Context, from, to, file string) (string, error) {
	path, compressed := strings.CutSuffix(file, ".xz")
	if !compressed {
		return file, copyFile(filepath.Join(from, file), filepath.Join(to, file))
	}
	content, err := run(ctx, command(ctx, nil, "xz", "-dc", filepath.Join(from, file)))
	if err != nil {
		return "", err
	}
	return path, atomicfile.Write(filepath.Join(to, path), content, 0o644)
}

// driverFolders hold what decides whether a kernel can run a node: disks and
// their controllers, network cards, the buses between, shared folders, entropy
// and the watchdog. Sound, graphics and the like decide nothing and stay out
// of the manifest.
var driverFolders = []string{
	"drivers/ata/", "drivers/block/", "drivers/char/hw_random/", "drivers/infiniband/",
	"drivers/md/", "drivers/message/", "drivers/mmc/", "drivers/net/", "drivers/nvme/",
	"drivers/pci/", "drivers/scsi/", "drivers/virtio/", "drivers/watchdog/", "drivers/xen/",
	"net/9p/", "net/packet/",
}

// notNodes are parts of those folders with hundreds of modules for machines
// that are no compute nodes.
var notNodes = []string{
	"drivers/net/wireless/", "drivers/net/can/", "drivers/net/usb/", "drivers/net/phy/",
	"drivers/net/ieee802154/", "drivers/net/hamradio/", "drivers/net/arcnet/",
}

// moduleName is how the kernel itself writes a module's name.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// driverNames picks from module paths ("kernel/drivers/block/virtio_blk.ko")
// those that a node may need, by module name, sorted.
func driverNames(modules []string) []string {
	names := []string{}
	for _, module := range modules {
		place := strings.TrimPrefix(module, "kernel/")
		under := func(folder string) bool { return strings.HasPrefix(place, folder) }
		if slices.ContainsFunc(driverFolders, under) && !slices.ContainsFunc(notNodes, under) {
			names = append(names, moduleName(place))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readBuiltin reads modules.builtin: one path a line.
func readBuiltin(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("list of built-in drivers: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// readFilesystemNames finds the file systems among the built-in modules: each
// declares the alias fs-NAME that mount asks for.
func readFilesystemNames(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("list of built-in file systems: %w", err)
	}
	var names []string
	for entry := range strings.SplitSeq(string(data), "\x00") {
		if _, alias, ok := strings.Cut(entry, ".alias=fs-"); ok {
			names = append(names, alias)
		}
	}
	return names, nil
}

// alwaysBuiltIn are the file systems that can never be modules, and thus have
// no alias, with the option that brings them.
var alwaysBuiltIn = map[string]string{
	"bpf": "BPF_SYSCALL", "cgroup2": "CGROUPS", "devtmpfs": "DEVTMPFS",
	"mqueue": "POSIX_MQUEUE", "proc": "PROC_FS", "sysfs": "SYSFS", "tmpfs": "TMPFS",
}

// filesystems joins the names found with those that the configuration brings.
func filesystems(names []string, config kconfig.Config) []string {
	all := slices.Clone(names)
	for name, symbol := range alwaysBuiltIn {
		if config.On(symbol) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
