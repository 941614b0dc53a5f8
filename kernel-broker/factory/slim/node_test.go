// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

func TestReadNodes(t *testing.T) {
	nodes, err := ReadNodes(strings.NewReader(`[{"node":"n2","drivers":["nvme"]}]
[{"node":"n10"},{"node":"n1"}]
`))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	if !reflect.DeepEqual(names, []string{"n1", "n10", "n2"}) || nodes[2].Drivers[0] != "nvme" {
		t.Errorf("nodes are %+v", nodes)
	}
}

func TestReadNodesRefuses(t *testing.T) {
	for text, fail := range map[string]string{
		``:                                     "no node",
		`[]`:                                   "no node",
		`[{"node":"n1","pcie":[]}]`:            "unknown field",
		`[{"pci":[]}]`:                         `node 1: its name "" is not allowed`,
		`[{"node":"n1\nCONFIG_X=y"}]`:          "is not allowed",
		`[{"node":"n1"}] [{"node":"n1"}]`:      `node "n1" reports twice`,
		`{"node":"n1"}`:                        "cannot unmarshal",
		`[{"node":"n1","pci":["8086:10d300"]}`: "hardware: line 1: unexpected EOF",
		"[{\"node\":\"n1\"}]\n\n[{]":           "hardware: line 3: invalid",
		"[]\n0: [{\"node\":\"n1\"}]":           "line 2 begins with the label of a task (srun -l): print the reports without it",
		" 7: [\n":                              "line 1 begins with the label of a task (srun -l)",
		"70:[]":                                "line 1: json: cannot unmarshal number",
	} {
		if _, err := ReadNodes(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), fail) {
			t.Errorf("%s: error %v, want %q", text, err, fail)
		}
	}
}

// One odd name costs itself, and is named; the others count.
func TestOddNames(t *testing.T) {
	const report = `[{"node":"n1","drivers":["ahci","i8042 kbd","Generic PHY","a\nb","\u001b[2J"],"modules":["","ext4"],"filesystems":["a/b"],"pci":["8086-10d3","8086:10d3"],"modaliases":["acpi:\nA"]}]`
	nodes, err := ReadNodes(strings.NewReader(report))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, n := range needs(nodes[0], Aliases{"pci": {{pattern: "pci:v00008086d000010D3*", module: "e1000e"}}}) {
		found = append(found, n.why)
	}
	want := []string{
		`names "", which is not a module`, "has the module ext4 loaded", "has the driver ahci at work", "has the driver i8042 kbd at work", "has the driver Generic PHY at work",
		`names "a\nb", which is not a driver`, `names "\x1b[2J", which is not a driver`, "has mounted the file system a/b", `names "acpi:\nA", which is not a modalias`,
		`names "8086_10d3", which is not a PCI id vendor:device`, "has the device 8086:10d3, which e1000e drives",
	}
	if !slices.Equal(found, want) {
		t.Errorf("needs %q,\nwant  %q", found, want)
	}
	missing := Keep{}.KeepHardware([]kb.DeviceReport{{Name: "n1", Drivers: []string{"i8042 kbd", "a\nb"}}}, nil, &Kbuild{}, kconfig.Config{})
	if len(missing) != 1 || missing[0].Module != `"a\nb"` {
		t.Errorf("missing %+v", missing)
	}
}

func TestReadNodeFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := put("one", `[{"node":"n1","pci":["8086:10d3"]}]`), put("two", `[{"node":"n0"}]`)
	nodes, err := ReadNodeFiles([]string{one, two})
	if err != nil || len(nodes) != 2 || nodes[0].Name != "n0" {
		t.Errorf("nodes are %+v, %v", nodes, err)
	}
	if !knownByDevices(nodes[1]) || knownByDevices(nodes[0]) {
		t.Errorf("who needs an alias file: %+v", nodes)
	}
	if _, err := ReadNodeFiles([]string{one, one}); err == nil || !strings.Contains(err.Error(), "reports twice") {
		t.Errorf("error is %v", err)
	}
	if _, err := ReadNodeFiles([]string{one, put("bad", "{")}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "bad")) {
		t.Errorf("error is %v", err)
	}
}

func FuzzReadNodes(f *testing.F) {
	f.Add(`[{"node":"n1","pci":["8086:10d3"],"modaliases":["acpi:PNP0501:"],"modules":["ext4"],"drivers":["virtio_blk"],"filesystems":["ext4"]}]`)
	f.Add(`[{"node":"n1"}]` + "\n" + `[{"node":"n2","pci":null}]`)
	f.Add(`[[]]`)
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := ReadNodes(strings.NewReader(text))
		if err != nil {
			return
		}
		aliases := Aliases{"pci": {{pattern: "pci:*", module: "m"}}}
		for _, node := range nodes {
			for _, driverNeed := range needs(node, aliases) {
				if reason := node.Name + driverNeed.why; strings.ContainsAny(reason, "\r\n") {
					t.Fatalf("reason %q is more than a line", reason)
				}
			}
		}
		again, err := json.Marshal(nodes)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ReadNodes(strings.NewReader(string(again)))
		if err != nil || !reflect.DeepEqual(back, nodes) {
			t.Fatalf("%s came back as %+v, %v", again, back, err)
		}
	})
}
