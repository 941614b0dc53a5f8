// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Aliases says which modules drive which devices: modules.alias of a kernel
// that has all drivers, such as the distribution's.
type Aliases map[string][]alias // by bus

type alias struct{ pattern, module string }

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
func (k Keep) KeepHardware(nodes []kb.DeviceReport, aliases Aliases, kbuild *Kbuild, config kconfig.Config) []Missing {
	var missing []Missing
	config = modulesToo(config)
	for _, node := range nodes {
		for _, need := range needs(node, aliases) {
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

func needs(n kb.DeviceReport, aliases Aliases) []driverNeed {
	var all []driverNeed
	seen := map[string]bool{}
	add := func(w driverNeed) {
		if w.module = strings.ReplaceAll(w.module, "-", "_"); !seen[w.module] {
			seen[w.module] = true
			w.why = fmt.Sprintf(w.why, w.module)
			all = append(all, w)
		}
	}
	for _, list := range []struct {
		what, why string
		names     []string
		inAny     bool
	}{
		{"module", "has the module %s loaded", n.Modules, false},
		{"driver", "has the driver %s at work", n.Drivers, true},
		{"file system", "has mounted the file system %s", n.Filesystems, true},
	} {
		for _, name := range list.names {
			if driverName.MatchString(name) {
				add(driverNeed{module: name, why: list.why, inAny: list.inAny})
			} else {
				add(unreadable(list.what, name))
			}
		}
	}
	drives := func(device, modalias string) {
		for _, module := range aliases.Modules(modalias) {
			add(driverNeed{module: module, device: device, why: "has the device " + strings.ReplaceAll(short(device), "%", "%%") + ", which %s drives"})
		}
	}
	for _, device := range n.Modaliases {
		if modalias.MatchString(device) {
			drives(device, device)
		} else {
			add(unreadable("modalias", device))
		}
	}
	for _, id := range n.PCI {
		if pciID.MatchString(id) {
			drives(id, pciAlias(id))
		} else {
			add(unreadable("PCI id vendor:device", id))
		}
	}
	return all
}

// unreadable names what no driver can be found for: one odd name costs itself.
func unreadable(what, name string) driverNeed {
	return driverNeed{module: strconv.QuoteToASCII(short(name)), why: "names %s, which is not a " + what}
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

// Reports become reasons in fragments, one line each. Names of drivers have blanks
// in them ("i8042 kbd", "Generic PHY"), and what else a C programmer may write.
var (
	nodeName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	pciID      = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$`)
	modalias   = regexp.MustCompile(`^[\x21-\x7e]+$`)
	driverName = regexp.MustCompile(`^[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?$`)
)

// ReadNodes reads the reports of nodes: lists in JSON, one after the other, as
// many nodes print them. They come back in the order of their names.
func ReadNodes(reader io.Reader) ([]kb.DeviceReport, error) {
	text, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("hardware: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var nodes []kb.DeviceReport
	for {
		begin := decoder.InputOffset()
		var list []kb.DeviceReport
		err := decoder.Decode(&list)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("hardware: %w", notAList(text, begin, err))
		}
		nodes = append(nodes, list...)
	}
	return nodes, checkNodes(nodes)
}

// labelled is a line with srun's label of a task, which srun -l puts before each.
var labelled = regexp.MustCompile(`^ *[0-9]+: `)

// notAList names the line where the report begins that cannot be read.
func notAList(text []byte, begin int64, err error) error {
	rest := bytes.TrimLeft(text[begin:], " \t\r\n")
	before := text[:len(text)-len(rest)]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	n := 1 + bytes.Count(before, []byte("\n"))
	if labelled.Match(slices.Concat(line, rest)) {
		return fmt.Errorf("line %d begins with the label of a task (srun -l): print the reports without it: %w", n, err)
	}
	return fmt.Errorf("line %d: %w", n, err)
}

func ReadNodeFiles(paths []string) ([]kb.DeviceReport, error) {
	var nodes []kb.DeviceReport
	for _, path := range paths {
		more, err := ReadFile(path, ReadNodes)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, more...)
	}
	return nodes, checkNodes(nodes)
}

// checkNodes sorts them too.
func checkNodes(nodes []kb.DeviceReport) error {
	if len(nodes) == 0 {
		return errors.New("hardware: no node")
	}
	for i, node := range nodes {
		if !nodeName.MatchString(node.Name) {
			return fmt.Errorf("hardware: node %d: its name %q is not allowed", i+1, node.Name)
		}
	}
	slices.SortFunc(nodes, func(a, b kb.DeviceReport) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(nodes); i++ {
		if nodes[i].Name == nodes[i-1].Name {
			return fmt.Errorf("hardware: node %q reports twice", nodes[i].Name)
		}
	}
	return nil
}

// knownByDevices reports whether only an alias file can name the node's drivers.
func knownByDevices(n kb.DeviceReport) bool {
	return len(n.PCI)+len(n.Modaliases) > 0 && len(n.Modules)+len(n.Drivers) == 0
}
