// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Node is what a node that the kernel is for says of its hardware: what an
// emulated run can know nothing of. The agent's command hardware prints it.
type Node struct {
	Name string `json:"node"`
	// PCI devices as vendor:device in hex.
	PCI []string `json:"pci"`
	// Modaliases as sysfs has them.
	Modaliases []string `json:"modaliases"`
	// Modules that are loaded.
	Modules []string `json:"modules"`
	// Drivers at work, built in or not, by their modules' names where the
	// node's kernel knows.
	Drivers []string `json:"drivers"`
	// Filesystems that are mounted. A kernel can do without one that the
	// workload writes to no byte of, but the node cannot.
	Filesystems []string `json:"filesystems"`
}

// Reports become reasons in fragments, one line each, and so have neither blanks
// nor line ends in them.
var (
	nodeName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	pciID      = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$`)
	modalias   = regexp.MustCompile(`^[\x21-\x7e]+$`)
	driverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]*$`)
)

// ReadNodes reads the reports of nodes: lists in JSON, one after the other, as
// many nodes print them. They come back in the order of their names.
func ReadNodes(reader io.Reader) ([]Node, error) {
	decoder := json.NewDecoder(reader)
	decoder.DisallowUnknownFields()
	var nodes []Node
	for {
		var list []Node
		err := decoder.Decode(&list)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("hardware: %w", err)
		}
		nodes = append(nodes, list...)
	}
	return nodes, checkNodes(nodes)
}

// ReadNodeFiles reads several files of reports.
func ReadNodeFiles(paths []string) ([]Node, error) {
	var nodes []Node
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
func checkNodes(nodes []Node) error {
	if len(nodes) == 0 {
		return errors.New("hardware: no node")
	}
	for i, node := range nodes {
		if !nodeName.MatchString(node.Name) {
			return fmt.Errorf("hardware: node %d: its name %q is not allowed", i+1, node.Name)
		}
		if err := node.check(); err != nil {
			return err
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(nodes); i++ {
		if nodes[i].Name == nodes[i-1].Name {
			return fmt.Errorf("hardware: node %q reports twice", nodes[i].Name)
		}
	}
	return nil
}

func (n Node) check() error {
	for _, list := range []struct {
		what   string
		values []string
		form   *regexp.Regexp
	}{
		{"PCI id vendor:device", n.PCI, pciID},
		{"modalias", n.Modaliases, modalias},
		{"module", n.Modules, driverName},
		{"driver", n.Drivers, driverName},
		{"file system", n.Filesystems, driverName},
	} {
		for _, value := range list.values {
			if !list.form.MatchString(value) {
				return fmt.Errorf("hardware: node %q: %q is not a %s", n.Name, value, list.what)
			}
		}
	}
	return nil
}

// knownByDevices reports whether only an alias file can name the node's drivers.
func (n Node) knownByDevices() bool {
	return len(n.PCI)+len(n.Modaliases) > 0 && len(n.Modules)+len(n.Drivers) == 0
}
