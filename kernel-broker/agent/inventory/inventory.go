// SPDX-License-Identifier: Apache-2.0

// Package inventory determines what a kernel must support for this node: its architecture and memory, the root file
// system with its disk, and its network. A kernel that lacks one of these is refused before it is loaded, so that no
// node hangs.
package inventory

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
)

// memoryFilesystems need no device, and every kernel has them.
var memoryFilesystems = map[string]bool{"rootfs": true, "ramfs": true, "tmpfs": true}

// networkFilesystems are not there without the network.
var networkFilesystems = map[string]bool{"nfs": true, "nfs4": true, "ceph": true, "cifs": true, "lustre": true, "9p": true}

// NetworkRoot reports whether the node's root is on the network.
func NetworkRoot(proc string) (bool, error) {
	_, m, _, err := rootMount(proc)
	return networkFilesystems[m.Filesystem], err
}

// Read examines the node through its mounted proc and sys file systems. extra lists drivers that the site requires.
func Read(proc, sys string, extra []string) (kb.Inventory, error) {
	var found kb.Inventory
	var err error
	if found.Architecture, err = architecture(); err != nil {
		return found, err
	}
	if found.MemoryMiB, err = memory(filepath.Join(proc, "meminfo")); err != nil {
		return found, err
	}
	online, err := onlineCPUs(sys)
	if err != nil {
		return found, err
	}
	found.CPUs = uint32(len(online))
	found.Cores, found.ApplicationCPUs = countCores(sys), applicationCPUs(sys)
	if found.Hardware, err = hardware(sys); err != nil {
		return found, fmt.Errorf("hardware: %w", err)
	}
	drivers, err := root(proc, sys, &found)
	if err != nil {
		return found, fmt.Errorf("root device: %w", err)
	}
	if i := slices.IndexFunc(drivers, func(name string) bool { return isModule(sys, name) }); i >= 0 {
		found.InitrdModule = drivers[i]
	}
	nics, err := network(sys)
	if err != nil {
		return found, fmt.Errorf("network: %w", err)
	}
	drivers = append(drivers, nics...)
	for _, name := range extra {
		drivers = append(drivers, normalise(name))
	}
	slices.Sort(drivers)
	found.Drivers = slices.Compact(drivers)
	return found, nil
}

func architecture() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return string(name.Machine[:bytes.IndexByte(name.Machine[:], 0)]), nil
}

func memory(path string) (uint64, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("file %q: %q: %w", path, line, kb.ErrInvalid)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("file %q has no MemTotal: %w", path, kb.ErrInvalid)
}

// rootMount is the root by the kernel's argument, and what is mounted there: below an overlay, which may hide it, its lowest
// layer.
func rootMount(proc string) (argument string, m Mount, overlay bool, err error) {
	mountinfo, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return "", m, false, err
	}
	mounts, err := parseMounts(string(mountinfo))
	if err != nil {
		return "", m, false, err
	}
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return "", m, false, err
	}
	arguments := proof.Split(string(line))
	argument = proof.Value(arguments, "root")
	m, ok := at(mounts, "/")
	if !ok {
		return argument, m, false, fmt.Errorf("no mount on /: %w", kb.ErrNotFound)
	}
	if m.Filesystem != "overlay" {
		return argument, m, false, nil
	}
	below, seen := lower(mounts, m)
	if !seen {
		below = Mount{Source: argument, Filesystem: proof.Value(arguments, "rootfstype")}
	}
	return argument, below, true, nil
}

// root fills in the root device and file system and returns the drivers that both need; none for a root in memory.
func root(proc, sys string, found *kb.Inventory) ([]string, error) {
	argument, top, overlay, err := rootMount(proc)
	if err != nil {
		return nil, err
	}
	if !kernelFinds(argument) {
		found.InitrdRoot = kb.PlainRoot(argument)
	}
	var drivers []string
	if overlay {
		drivers = append(drivers, "overlay")
	}
	found.RootFilesystem = top.Filesystem
	switch {
	case memoryFilesystems[top.Filesystem]:
		if !namesDisk(argument) {
			found.InitrdRoot = top.Filesystem
		}
	case top.Filesystem != "":
		drivers = append(drivers, normalise(top.Filesystem))
	}
	name := blockName(sys, top, argument)
	if name == "" {
		return drivers, nil
	}
	found.RootDevice = "/dev/" + name
	more, err := disk(sys, name)
	return append(drivers, more...), err
}

// isModule reports whether the running kernel has a driver as a module: what is built in has no such state.
func isModule(sys, driver string) bool {
	_, err := os.Stat(filepath.Join(sys, "module", driver, "initstate"))
	return err == nil
}

// kernelFinds reports whether a kernel finds a root by itself: by the name that it gives a device, its number, or what the
// partition table says. For anything else an initrd is needed: UUID= and LABEL= of a file system, logical volumes, links,
// and NFS, which a kernel can mount, but no distribution's.
func kernelFinds(root string) bool {
	if name, device := strings.CutPrefix(root, "/dev/"); device {
		return name != "nfs" && name != "" && !strings.Contains(name, "/")
	}
	if kind, _, named := strings.Cut(root, "="); named {
		return kind == "PARTUUID" || kind == "PARTLABEL"
	}
	return root == "" || deviceNumber.MatchString(root)
}

// namesDisk reports whether a kernel without an initrd boots from a disk. A node may have its root in memory all the same: that
// is what an initramfs in the kernel's image made of it, and the next one makes the same.
func namesDisk(root string) bool {
	return root != "" && kernelFinds(root) && !strings.HasPrefix(root, "/dev/ram")
}

// deviceNumber is MAJOR:MINOR, or both as one hexadecimal number.
var deviceNumber = regexp.MustCompile(`^([0-9]+:[0-9]+|[0-9a-fA-F]{3,8})$`)

// blockName finds the kernel's name of a mount's device; empty if there is none. The device number identifies it; file
// systems over several devices have an artificial number, so their names are used.
func blockName(sys string, mount Mount, argument string) string {
	if target, err := os.Readlink(filepath.Join(sys, "dev/block", mount.Device)); err == nil && mount.Device != "" {
		return filepath.Base(target)
	}
	if memoryFilesystems[mount.Filesystem] {
		return ""
	}
	for _, source := range []string{mount.Source, argument} {
		name := sourceName(source)
		if name == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(sys, "class/block", name)); err == nil {
			return name
		}
	}
	return ""
}

// sourceName turns /dev/x, /dev/mapper/x and UUID=x into a kernel name.
func sourceName(source string) string {
	if kind, value, has := strings.Cut(source, "="); has {
		source = filepath.Join("/dev/disk/by-"+strings.ToLower(kind), value)
	}
	if !strings.HasPrefix(source, "/dev/") {
		return ""
	}
	if real, err := filepath.EvalSymlinks(source); err == nil {
		source = real
	}
	return filepath.Base(source)
}
