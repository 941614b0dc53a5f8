// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
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
		``:                                    "no node",
		`[]`:                                  "no node",
		`[{"node":"n1","pcie":[]}]`:           "unknown field",
		`[{"pci":[]}]`:                        `node 1: its name "" is not allowed`,
		`[{"node":"n1\nCONFIG_X=y"}]`:         "is not allowed",
		`[{"node":"n1","pci":["8086-10d3"]}]`: "is not a PCI id",
		`[{"node":"n1","modaliases":["acpi:\nA"]}]`: "is not a modalias",
		`[{"node":"n1","modules":["a b"]}]`:         "is not a module",
		`[{"node":"n1","drivers":[""]}]`:            "is not a driver",
		`[{"node":"n1","filesystems":["a/b"]}]`:     "is not a file system",
		`[{"node":"n1"}] [{"node":"n1"}]`:           `node "n1" reports twice`,
		`{"node":"n1"}`:                             "cannot unmarshal",
		`[{"node":"n1","pci":["8086:10d300"]}`:      "hardware:",
	} {
		if _, err := ReadNodes(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), fail) {
			t.Errorf("%s: error %v, want %q", text, err, fail)
		}
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
