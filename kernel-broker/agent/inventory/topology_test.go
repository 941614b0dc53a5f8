// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// cpu shows one CPU with the threads of its core.
func (m *machine) cpu(number int, threads string, socket int) {
	dir := fmt.Sprintf("devices/system/cpu/cpu%d/topology/", number)
	m.file(m.sys, dir+"core_cpus_list", threads+"\n")
	m.file(m.sys, dir+"physical_package_id", fmt.Sprintf("%d\n", socket))
}

func TestTopology(t *testing.T) {
	m := newMachine(t) // 0-3,8
	m.mounts(disk1)
	m.cpu(0, "0,4", 0) // 4 is offline
	m.cpu(1, "1,8", 0)
	m.cpu(2, "2-3", 1)
	got, err := Topology(m.sys)
	want := kb.Topology{{CPUs: []int{0}}, {CPUs: []int{1, 8}}, {CPUs: []int{2, 3}, Package: 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if i := m.read(); i.Cores != 3 || i.ApplicationCPUs != "" {
		t.Errorf("inventory %+v", i)
	}
	for shown, list := range map[string]string{"1,8\n": "1,8", "\n": "", "(null)\n": "", "rubbish\n": ""} {
		m.file(m.sys, "devices/system/cpu/nohz_full", shown)
		if i := m.read(); i.ApplicationCPUs != list {
			t.Errorf("%q: %q", shown, i.ApplicationCPUs)
		}
	}
	// Before Linux 5.3 the list has another name.
	for cpu := range 3 {
		dir := filepath.Join(m.sys, fmt.Sprintf("devices/system/cpu/cpu%d/topology", cpu))
		if err := os.Rename(dir+"/core_cpus_list", dir+"/thread_siblings_list"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Topology(m.sys); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("by the old name: %+v, %v", got, err)
	}
}

// A node whose topology cannot be read runs as before, and reports no cores.
func TestUnreadableTopology(t *testing.T) {
	for name, spoil := range map[string]func(*machine){
		"none":              func(*machine) {},
		"odd list":          func(m *machine) { m.cpu(0, "0-", 0) },
		"not in its core":   func(m *machine) { m.cpu(0, "1-3,8", 0) },
		"without a package": func(m *machine) { m.file(m.sys, "devices/system/cpu/cpu0/topology/core_cpus_list", "0-8\n") },
		"odd package": func(m *machine) {
			m.cpu(0, "0-8", 0)
			m.file(m.sys, "devices/system/cpu/cpu0/topology/physical_package_id", "x\n")
		},
	} {
		m := newMachine(t)
		m.mounts(disk1)
		spoil(m)
		if got, err := Topology(m.sys); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
		if i := m.read(); i.Cores != 0 || i.CPUs != 5 {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

func TestTopologyOfThisMachine(t *testing.T) {
	topology, err := Topology("/sys")
	if err != nil || len(topology) == 0 {
		t.Fatalf("%+v, %v", topology, err)
	}
	t.Logf("%+v", topology)
}
