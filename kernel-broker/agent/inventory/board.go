// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"os"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// hardware reads what the running kernel shows of the machine. A kernel without DMI shows no board and no firmware, and
// that is no error.
func hardware(sys string) (kb.Hardware, error) {
	dmi := func(name string) string {
		text, err := os.ReadFile(filepath.Join(sys, "class/dmi/id", name))
		if err != nil {
			return "" // some need root
		}
		return strings.TrimSpace(string(text))
	}
	vendor := dmi("sys_vendor")
	if vendor == "" {
		vendor = dmi("board_vendor")
	}
	board := strings.TrimSpace(vendor + " " + dmi("product_name"))
	if name := dmi("board_name"); name != "" && !strings.Contains(board, name) {
		board = strings.TrimSpace(board + " " + name)
	}
	if board == "" {
		model, err := os.ReadFile(filepath.Join(sys, "firmware/devicetree/base/model"))
		if err == nil {
			board = strings.Trim(string(model), "\x00 \n")
		}
	}
	nics, err := adapters(sys)
	return kb.Hardware{Board: kb.PlainText(board), Firmware: kb.PlainText(dmi("bios_version")), NIC: nics}, err
}

// adapters names the network adapters by driver and device, with a link or without: an agent that starts early sees
// links that are not up yet. Virtual functions are left out, since the site's settings make them, after the boot.
func adapters(sys string) (string, error) {
	devices, err := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	if err != nil {
		return "", err
	}
	found := []string{}
	for _, device := range devices {
		if _, err := os.Lstat(filepath.Join(device, "physfn")); err == nil {
			continue
		}
		name, err := Driver(device)
		if err != nil {
			return "", err
		}
		real, err := filepath.EvalSymlinks(device)
		if err != nil {
			return "", err
		}
		// A virtio device's own numbers say less than those of the PCI device above it.
		for _, dir := range []string{real, filepath.Dir(real)} {
			id, err := pciID(dir)
			if err != nil {
				return "", err
			}
			if id != "" {
				name += "@" + id
				break
			}
		}
		if name != "" {
			found = append(found, kb.PlainText(name))
		}
	}
	return kb.JoinAdapters(found), nil
}

// pciID is vendor:device of a PCI device; empty for others.
func pciID(dir string) (string, error) {
	var id [2]string
	for i, name := range []string{"vendor", "device"} {
		number, err := attribute(dir, name)
		if err != nil || !pciNumber.MatchString(number) {
			return "", err
		}
		id[i] = number[2:]
	}
	return id[0] + ":" + id[1], nil
}
