// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// everywhere are drivers that the devices below work without, or that are no
// modules of their own.
var everywhere = map[string]bool{"pcieport": true, "pcieportdrv": true}

// moduleOf maps drivers to their modules where the kernel does not show it.
var moduleOf = map[string]string{"sd": "sd_mod", "sr": "sr_mod"}

// normalise writes a driver's name as a module's.
func normalise(driver string) string {
	name := strings.ReplaceAll(driver, "-", "_")
	if module, ok := moduleOf[name]; ok {
		return module
	}
	return name
}

// chain collects the drivers of a device and of all its parents in the device tree: a disk needs its controller.
func chain(sys, device string) ([]string, error) {
	real, err := filepath.EvalSymlinks(device)
	if err != nil {
		return nil, err
	}
	top, err := filepath.EvalSymlinks(sys)
	if err != nil {
		return nil, err
	}
	var drivers []string
	for dir := real; dir != top && len(dir) > len(top); dir = filepath.Dir(dir) {
		name, err := Driver(dir)
		if err != nil {
			return nil, err
		}
		if name != "" {
			drivers = append(drivers, name)
		}
	}
	return drivers, nil
}

// Driver returns the module of the driver of the device in this sysfs directory; empty if there is none or every kernel
// has it.
func Driver(dir string) (string, error) {
	name, err := driver(dir)
	if everywhere[name] {
		name = ""
	}
	return name, err
}

func driver(dir string) (string, error) {
	link := filepath.Join(dir, "driver")
	if module, err := os.Readlink(filepath.Join(link, "module")); err == nil {
		return normalise(filepath.Base(module)), nil
	}
	target, err := os.Readlink(link)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return normalise(filepath.Base(target)), nil
}

// disk collects the drivers of a block device, and of those that it is made of.
func disk(sys, name string) ([]string, error) {
	dir := filepath.Join(sys, "class/block", name)
	drivers, err := chain(sys, dir)
	if err != nil {
		return nil, err
	}
	parts, err := filepath.Glob(filepath.Join(dir, "slaves/*"))
	if err != nil {
		return nil, err
	}
	switch {
	case len(parts) > 0 && strings.HasPrefix(name, "dm-"):
		drivers = append(drivers, "dm_mod")
	case len(parts) > 0 && strings.HasPrefix(name, "md"):
		drivers = append(drivers, "md_mod")
	}
	for _, part := range parts {
		more, err := disk(sys, filepath.Base(part))
		if err != nil {
			return nil, err
		}
		drivers = append(drivers, more...)
	}
	return drivers, nil
}

// inUse lists the devices of the network interfaces with a carrier.
func inUse(sys string) ([]string, error) {
	// Interfaces without one have no hardware behind them.
	devices, err := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	return slices.DeleteFunc(devices, func(device string) bool {
		// An interface that is down has no readable carrier.
		carrier, err := os.ReadFile(filepath.Join(filepath.Dir(device), "carrier"))
		return err != nil || strings.TrimSpace(string(carrier)) != "1"
	}), err
}

// network collects the drivers of the interfaces that are in use.
func network(sys string) ([]string, error) {
	devices, err := inUse(sys)
	if err != nil {
		return nil, err
	}
	var drivers []string
	for _, device := range devices {
		more, err := chain(sys, filepath.Dir(device))
		if err != nil {
			return nil, err
		}
		drivers = append(drivers, more...)
	}
	return drivers, nil
}
