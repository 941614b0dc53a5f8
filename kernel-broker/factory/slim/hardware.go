package slim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Node is what a node that the kernel is for says of its hardware: what an
// emulated run can know nothing of.
type Node struct {
	Name string `json:"node"`
	// PCI devices as vendor:device in hex.
	PCI []string `json:"pci"`
	// Modaliases as sysfs has them.
	Modaliases []string `json:"modaliases"`
	// Modules that are loaded.
	Modules []string `json:"modules"`
	// Filesystems that are mounted. A kernel can do without one that the
	// workload writes to no byte of, but the node cannot.
	Filesystems []string `json:"filesystems"`
}

var pciID = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$`)

// ReadNodes reads the reports of nodes: a list, in JSON.
func ReadNodes(reader io.Reader) ([]Node, error) {
	decoder := json.NewDecoder(reader)
	decoder.DisallowUnknownFields()
	var nodes []Node
	if err := decoder.Decode(&nodes); err != nil {
		return nil, fmt.Errorf("hardware: %w", err)
	}
	for i, node := range nodes {
		if node.Name == "" {
			return nil, fmt.Errorf("hardware: node %d has no name", i+1)
		}
		for _, id := range node.PCI {
			if !pciID.MatchString(id) {
				return nil, fmt.Errorf("hardware: node %q: %q is not a PCI id vendor:device", node.Name, id)
			}
		}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("hardware: more than one list")
	}
	return nodes, nil
}

// Aliases says which modules drive which devices: modules.alias of a kernel
// that has all drivers, such as the distribution's.
type Aliases map[string][]alias // by bus

type alias struct{ pattern, module string }

// ReadAliases reads modules.alias.
func ReadAliases(reader io.Reader) (Aliases, error) {
	aliases := Aliases{}
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "alias" {
			continue // a comment
		}
		bus, _, device := strings.Cut(fields[1], ":")
		if _, err := path.Match(fields[1], ""); err != nil || !device {
			continue // an alias of another kind: file systems, ciphers
		}
		aliases[bus] = append(aliases[bus], alias{pattern: fields[1], module: fields[2]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("modules.alias: %w", err)
	}
	return aliases, nil
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

// KeepHardware keeps what drives the nodes' devices, and tells what the
// configuration has never had for them.
func (k Keep) KeepHardware(nodes []Node, aliases Aliases, kbuild *Kbuild, config Config) []Missing {
	var missing []Missing
	config = modulesToo(config)
	for _, node := range nodes {
		for _, wish := range node.wishes(aliases) {
			symbols, built := kbuild.driver(wish.module, config)
			if len(symbols) == 0 && (built || wish.filesystem) {
				continue // it is there in every kernel
			}
			if !built {
				missing = append(missing, Missing{Node: node.Name, Module: wish.module, Device: wish.device, Options: symbols})
				continue
			}
			for _, symbol := range symbols {
				k.Add(symbol, fmt.Sprintf("node %s %s", node.Name, wish.reason()))
			}
		}
	}
	return missing
}

// wish is a driver that a node needs, with the device where one is known.
type wish struct {
	module, device string
	filesystem     bool
}

func (w wish) reason() string {
	switch {
	case w.filesystem:
		return "has mounted the file system " + w.module
	case w.device == "":
		return "has the module " + w.module + " loaded"
	}
	return "has the device " + w.device + ", which " + w.module + " drives"
}

func (n Node) wishes(aliases Aliases) []wish {
	var wishes []wish
	seen := map[string]bool{}
	add := func(w wish) {
		if w.module = strings.ReplaceAll(w.module, "-", "_"); !seen[w.module] {
			seen[w.module] = true
			wishes = append(wishes, w)
		}
	}
	for _, module := range n.Modules {
		add(wish{module: module})
	}
	for _, filesystem := range n.Filesystems {
		add(wish{module: filesystem, filesystem: true})
	}
	for _, modalias := range n.Modaliases {
		for _, module := range aliases.Modules(modalias) {
			add(wish{module: module, device: modalias})
		}
	}
	for _, id := range n.PCI {
		for _, module := range aliases.Modules(pciAlias(id)) {
			add(wish{module: module, device: id})
		}
	}
	return wishes
}

// modulesToo counts a module as built in: a node can load it.
func modulesToo(config Config) Config {
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
func (k *Kbuild) driver(module string, config Config) (symbols []string, built bool) {
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
