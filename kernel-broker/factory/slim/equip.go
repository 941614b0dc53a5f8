// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Equipment is what nodes need of a kernel.
type Equipment struct {
	// Drivers by name.
	Drivers []Equipped
	// Unclaimed are PCI devices that no module of the alias file drives.
	Unclaimed []Equipped
	// NoAliases: devices without a driver at work could not be looked up.
	NoAliases bool
}

// Equipped is one driver, or one device, and who needs it.
type Equipped struct {
	Name  string
	Whys  []string
	Nodes []string
	// Devices that it drives, by the alias file.
	Devices []string
	// Asked are the options for the driver and for what it depends on.
	Asked []string
	// Lack says why no option is found.
	Lack string
}

// ReadHardware reads the nodes' reports, and the modules.alias of their own kernel
// unless its name is empty.
func ReadHardware(paths []string, aliasFile string) (nodes []kb.DeviceReport, aliases Aliases, err error) {
	if nodes, err = ReadNodeFiles(paths); err != nil {
		return nil, nil, err
	}
	if aliasFile == "" {
		if i := slices.IndexFunc(nodes, knownByDevices); i >= 0 {
			err = fmt.Errorf("hardware: node %q names devices and no drivers, and no modules.alias says what drives them", nodes[i].Name)
		}
		return nodes, nil, err
	}
	aliases, err = ReadFile(aliasFile, ReadAliases)
	if err == nil && len(aliases) == 0 {
		err = fmt.Errorf("%s: no alias of a device in it: it has to be modules.alias of the nodes' kernel", aliasFile)
	}
	return nodes, aliases, err
}

// Equip finds the options that build what the nodes need, for a recipe that asks
// for the configuration. A driver's own options are named although the recipe has
// them: the site may take a fragment out of it.
func Equip(nodes []kb.DeviceReport, aliases Aliases, kbuild *Kbuild, tree *kconfig.Tree, config kconfig.Config) Equipment {
	drivers, unclaimed := map[string]*Equipped{}, map[string]*Equipped{}
	for _, node := range nodes {
		for _, need := range needs(node, aliases) {
			everywhere := slices.ContainsFunc(kbuild.Modules[need.module], func(g Gate) bool { return len(g) == 0 })
			if !everywhere {
				note(drivers, need.module, need.why, node.Name)
			}
		}
		for _, device := range node.Modaliases {
			if aliases == nil || !strings.HasPrefix(device, "pci:") {
				continue
			}
			modules := aliases.Modules(device)
			if len(modules) == 0 {
				note(unclaimed, device, "", node.Name)
			}
			for _, module := range modules {
				// A module that is loaded has its reason, and drives this too.
				if driver := drivers[strings.ReplaceAll(module, "-", "_")]; driver != nil {
					driver.drives(short(device))
				}
			}
		}
	}
	result := Equipment{Drivers: byName(drivers), Unclaimed: byName(unclaimed), NoAliases: aliases == nil}
	enabling := tree.Enabling(config)
	named := map[string]bool{}
	// What only other options select is there after these, so that a second try
	// finds it.
	for range 2 {
		for i := range result.Drivers {
			driver := &result.Drivers[i]
			if driver.Asked != nil {
				continue
			}
			driver.equip(kbuild.Modules[driver.Name], enabling)
			driver.Asked = slices.DeleteFunc(driver.Asked, func(symbol string) bool { return named[symbol] })
			for _, symbol := range driver.Asked {
				named[symbol] = true
			}
		}
	}
	return result
}

func note(all map[string]*Equipped, name, why, node string) {
	if all[name] == nil {
		all[name] = &Equipped{Name: name}
	}
	one := all[name]
	if !slices.Contains(one.Whys, why) {
		one.Whys = append(one.Whys, why)
	}
	one.Nodes = append(one.Nodes, node)
}

func (d *Equipped) drives(device string) {
	if !slices.Contains(d.Devices, device) {
		d.Devices = append(d.Devices, device)
	}
}

func byName(all map[string]*Equipped) []Equipped {
	var list []Equipped
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := *all[name]
		one.Nodes = slices.Compact(one.Nodes)
		list = append(list, one)
	}
	return list
}

// equip asks for the options of the first line of a makefile that can hold.
func (d *Equipped) equip(gates Gates, enabling *kconfig.Enabling) {
	d.Lack = "no makefile of this source has a module of this name; it is another's, or part of one"
	var wrong []string
	for _, gate := range gates {
		asked, err := askGate(gate, enabling)
		if err == nil {
			d.Asked, d.Lack = asked, ""
			return
		}
		wrong = append(wrong, err.Error())
	}
	if len(wrong) > 0 {
		d.Lack = strings.Join(wrong, "; ")
	}
}

func askGate(gate Gate, enabling *kconfig.Enabling) ([]string, error) {
	asked := []string{}
	before := maps.Clone(enabling.Config)
	// The driver's own option first: it may select that of its folder.
	for _, need := range slices.Backward(gate) {
		if !need.holds(enabling.Config) {
			if need.Not || len(need.Any) == 0 {
				enabling.Config = before
				return nil, fmt.Errorf("the makefile needs %s", need)
			}
			more, err := enabling.Enable(need.Any[0])
			if err != nil {
				enabling.Config = before
				return nil, err
			}
			asked = append(asked, more...)
		}
		for _, own := range need.Any {
			if !need.Not && enabling.CanAsk(own) {
				asked = append(asked, own)
			}
		}
	}
	slices.Sort(asked)
	return slices.Compact(asked), nil
}

// Options are how many the fragment asks for.
func (e Equipment) Options() int {
	n := 0
	for _, driver := range e.Drivers {
		n += len(driver.Asked)
	}
	return n
}

// Lacking are the drivers without an option.
func (e Equipment) Lacking() []Equipped {
	return slices.DeleteFunc(slices.Clone(e.Drivers), func(d Equipped) bool { return d.Lack == "" })
}

// mostNodes in a reason; a cluster's nodes are many and alike.
const mostNodes = 4

func (d Equipped) who() string {
	nodes := d.Nodes
	rest := ""
	if len(nodes) > mostNodes {
		rest = fmt.Sprintf(" and %d more", len(nodes)-mostNodes)
		nodes = nodes[:mostNodes]
	}
	word := "node "
	if len(d.Nodes) > 1 {
		word = "nodes "
	}
	return word + strings.Join(nodes, " ") + rest
}

// devices are those that no other reason names.
func (d Equipped) devices() string {
	whys := strings.Join(d.Whys, " ")
	others := slices.DeleteFunc(slices.Clone(d.Devices), func(device string) bool { return strings.Contains(whys, device) })
	if len(others) == 0 {
		return ""
	}
	return "; for " + strings.Join(others, ", ")
}

// Fragment writes a fragment of the catalog: a group for each driver that adds an
// option, and as comments what follows from others and what no option builds.
func (e Equipment) Fragment(kernel string) []byte {
	var text strings.Builder
	comment(&text, "What the site's nodes need, by their hardware reports. Made by kernelctl kernel hardware for the recipe "+kernel+": run it again rather than change this file.")
	var along []string
	for _, driver := range e.Drivers {
		switch {
		case driver.Lack != "":
		case len(driver.Asked) == 0:
			along = append(along, driver.Name)
		default:
			text.WriteByte('\n')
			comment(&text, driver.Name+": "+driver.who()+": "+strings.Join(driver.Whys, "; ")+driver.devices()+".")
			for _, symbol := range driver.Asked {
				text.WriteString(kconfig.Line(symbol, "y") + "\n")
			}
		}
	}
	if len(along) > 0 {
		text.WriteByte('\n')
		comment(&text, "These come with options above, or with the recipe's: "+strings.Join(along, " ")+".")
	}
	if lacking := e.Lacking(); len(lacking) > 0 {
		text.WriteByte('\n')
		comment(&text, "No option was found for these drivers, modules and file systems:")
		for _, driver := range lacking {
			comment(&text, "- "+driver.Name+": "+driver.who()+": "+driver.Lack+".")
		}
	}
	if len(e.Unclaimed) > 0 {
		text.WriteByte('\n')
		comment(&text, "No module of the alias file drives these devices:")
		for _, device := range e.Unclaimed {
			comment(&text, "- "+short(device.Name)+": "+device.who())
		}
	}
	if e.NoAliases {
		text.WriteByte('\n')
		comment(&text, "Without a modules.alias, devices that have no driver at work were not looked up.")
	}
	return []byte(text.String())
}
