// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

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
