// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// ReadHardware examines the node through its mounted proc and sys file systems.
func ReadHardware(proc, sys, name string) (kb.DeviceReport, error) {
	needs, err := Read(proc, sys, nil)
	if err != nil {
		return kb.DeviceReport{}, fmt.Errorf("node %q: %w", name, err)
	}
	modules, err := modules(filepath.Join(proc, "modules"))
	if err != nil {
		return kb.DeviceReport{}, fmt.Errorf("node %q: %w", name, err)
	}
	filesystems, err := filesystems(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return kb.DeviceReport{}, fmt.Errorf("node %q: %w", name, err)
	}
	found := devices{pci: set{}, modaliases: set{}, drivers: set{}}
	if err := found.read(filepath.Join(sys, "bus")); err != nil {
		return kb.DeviceReport{}, fmt.Errorf("node %q: %w", name, err)
	}
	// Drivers that the agent requires of a kernel are always included: volumes over several disks have no device on a
	// bus.
	for _, driver := range needs.Drivers {
		if !filesystems[driver] {
			found.drivers.add(driver)
		}
	}
	return kb.DeviceReport{Name: name, PCI: found.pci.sorted(), Modaliases: found.modaliases.sorted(), Modules: modules.sorted(),
		Drivers: found.drivers.sorted(), Filesystems: filesystems.sorted()}, nil
}

// Write writes a list with this node on one line; lists of many nodes can be concatenated.
func Write(to io.Writer, n kb.DeviceReport) error {
	if err := json.NewEncoder(to).Encode([]kb.DeviceReport{n}); err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	return nil
}

type set map[string]bool

func (s set) add(value string) { s[value] = true }

// sorted is never nil, so that an empty list is not mistaken for a missing one.
func (s set) sorted() []string { return append([]string{}, slices.Sorted(maps.Keys(s))...) }

// modules lists loaded modules; a kernel may have no module support.
func modules(path string) (set, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return set{}, nil
	}
	if err != nil {
		return nil, err
	}
	loaded := set{}
	for line := range strings.Lines(string(text)) {
		name, _, found := strings.Cut(line, " ")
		if !found || name == "" {
			return nil, fmt.Errorf("file %q: %q is no module: %w", path, line, kb.ErrInvalid)
		}
		loaded.add(name)
	}
	return loaded, nil
}

func filesystems(path string) (set, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	mounts, err := parseMounts(string(text))
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	mounted := set{}
	for _, mount := range mounts {
		mounted.add(mount.Filesystem)
	}
	return mounted, nil
}

// devices are the devices on the buses.
type devices struct{ pci, modaliases, drivers set }

func (d devices) read(buses string) error {
	all, err := filepath.Glob(filepath.Join(buses, "*", "devices", "*"))
	if err != nil {
		return err
	}
	for _, dir := range all {
		if err := d.add(dir); err != nil {
			return fmt.Errorf("device %q: %w", filepath.Base(dir), err)
		}
	}
	return nil
}

// printable is a modalias without blanks and control characters. The kernel makes
// no others; those that firmware causes are ignored.
var printable = regexp.MustCompile(`^[\x21-\x7e]+$`)

func (d devices) add(dir string) error {
	driver, err := Driver(dir)
	if err != nil {
		return err
	}
	if driver != "" {
		d.drivers.add(driver)
	}
	alias, err := attribute(dir, "modalias")
	if err != nil {
		return err
	}
	if printable.MatchString(alias) {
		d.modaliases.add(alias)
	}
	if filepath.Base(filepath.Dir(filepath.Dir(dir))) != "pci" {
		return nil
	}
	return d.addPCI(dir)
}

var pciNumber = regexp.MustCompile(`^0x[0-9a-f]{4}$`)

func (d devices) addPCI(dir string) error {
	var id [2]string
	for i, name := range []string{"vendor", "device"} {
		number, err := attribute(dir, name)
		if err != nil {
			return err
		}
		if number == "" {
			return nil
		}
		if !pciNumber.MatchString(number) {
			return fmt.Errorf("%s %q: %w", name, number, kb.ErrInvalid)
		}
		id[i] = number[2:]
	}
	d.pci.add(id[0] + ":" + id[1])
	return nil
}

// attribute of a device; empty if it has none or was just removed.
func attribute(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}
