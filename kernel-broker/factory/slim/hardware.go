// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Aliases says which modules drive which devices: modules.alias of a kernel
// that has all drivers, such as the distribution's.
type Aliases map[string][]alias // by bus

type alias struct{ pattern, module string }

// ReadAliases reads modules.alias.
func ReadAliases(reader io.Reader) (Aliases, error) {
	aliases := Aliases{}
	err := eachLine(reader, "modules.alias", func(line string) error {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "alias" {
			return nil // a comment
		}
		bus, _, device := strings.Cut(fields[1], ":")
		if _, err := path.Match(fields[1], ""); err == nil && device { // others are of file systems, ciphers
			aliases[bus] = append(aliases[bus], alias{pattern: fields[1], module: fields[2]})
		}
		return nil
	})
	return aliases, err
}

// Modules that drive the device, in order.
func (a Aliases) Modules(modalias string) []string {
	var modules []string
	bus, _, _ := strings.Cut(modalias, ":")
	for _, alias := range a[bus] {
		if matched, err := path.Match(alias.pattern, modalias); err == nil && matched {
			modules = append(modules, alias.module)
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// pciAlias makes the modalias of a device of which only vendor and device are
// known. Drivers that ask for a whole class do not match it.
func pciAlias(id string) string {
	vendor, device, _ := strings.Cut(strings.ToUpper(id), ":")
	return fmt.Sprintf("pci:v0000%sd0000%ssv00000000sd00000000bc00sc00i00", vendor, device)
}

// Missing is a driver that a node needs and the configuration does not have.
type Missing struct {
	Node    string   `json:"node"`
	Module  string   `json:"module"`
	Device  string   `json:"device,omitempty"`
	Options []string `json:"options,omitempty"`
}

// KeepHardware keeps what drives the nodes' devices, and returns what the
// configuration has never had for them.
func (k Keep) KeepHardware(nodes []Node, aliases Aliases, kbuild *Kbuild, config kconfig.Config) []Missing {
	var missing []Missing
	config = modulesToo(config)
	for _, node := range nodes {
		for _, need := range node.needs(aliases) {
			symbols, built := kbuild.driver(need.module, config)
			if len(symbols) == 0 && (built || need.inAny) {
				continue // it is there in every kernel
			}
			if !built {
				missing = append(missing, Missing{Node: node.Name, Module: need.module, Device: need.device, Options: symbols})
				continue
			}
			for _, symbol := range symbols {
				k.Add(symbol, fmt.Sprintf("node %s %s", node.Name, need.why))
			}
		}
	}
	return missing
}

// driverNeed is a module that a node needs, and why; for a device, which. inAny
// says that without an option it is in every kernel.
type driverNeed struct {
	module, device, why string
	inAny               bool
}

// mostOfADevice in a reason: a processor's modalias has all its features.
const mostOfADevice = 80

// short cuts a device's name for a report.
func short(device string) string {
	if len(device) > mostOfADevice {
		return device[:mostOfADevice] + "..."
	}
	return device
}

func (n Node) needs(aliases Aliases) []driverNeed {
	var needs []driverNeed
	seen := map[string]bool{}
	add := func(w driverNeed) {
		if w.module = strings.ReplaceAll(w.module, "-", "_"); !seen[w.module] {
			seen[w.module] = true
			w.why = fmt.Sprintf(w.why, w.module)
			needs = append(needs, w)
		}
	}
	for _, module := range n.Modules {
		add(driverNeed{module: module, why: "has the module %s loaded"})
	}
	for _, module := range n.Drivers {
		add(driverNeed{module: module, why: "has the driver %s at work", inAny: true})
	}
	for _, module := range n.Filesystems {
		add(driverNeed{module: module, why: "has mounted the file system %s", inAny: true})
	}
	drives := func(device, modalias string) {
		for _, module := range aliases.Modules(modalias) {
			add(driverNeed{module: module, device: device, why: "has the device " + strings.ReplaceAll(short(device), "%", "%%") + ", which %s drives"})
		}
	}
	for _, modalias := range n.Modaliases {
		drives(modalias, modalias)
	}
	for _, id := range n.PCI {
		drives(id, pciAlias(id))
	}
	return needs
}

// modulesToo counts a module as built in: a node can load it.
func modulesToo(config kconfig.Config) kconfig.Config {
	all := maps.Clone(config)
	for symbol, value := range all {
		if value == "m" {
			all[symbol] = "y"
		}
	}
	return all
}

// driver finds a module's options, and whether the configuration has it. In
// alternatives that the configuration takes, only their options count.
func (k *Kbuild) driver(module string, config kconfig.Config) (symbols []string, built bool) {
	gates := k.Modules[module]
	built = gates.hold(config)
	for _, gate := range gates {
		if built && !gate.holds(config) {
			continue
		}
		for _, need := range gate {
			if !need.Not {
				symbols = append(symbols, need.Any...)
			}
		}
	}
	slices.Sort(symbols)
	return slices.Compact(symbols), built
}
