// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// hardwareMachine is a fake /proc and /sys.
type hardwareMachine struct {
	t         *testing.T
	proc, sys string
}

// newHardwareMachine has two PCI devices, one of them with a disk, and a serial port known to ACPI.
func newHardwareMachine(t *testing.T) *hardwareMachine {
	m := &hardwareMachine{t: t, proc: t.TempDir(), sys: t.TempDir()}
	m.file(m.proc, "meminfo", "MemTotal: 495616 kB\n")
	m.file(m.proc, "cmdline", "root=/dev/vda\n")
	m.file(m.proc, "modules", "virtio_net 65536 0 - Live 0x0\nnet_failover 24576 1 virtio_net, Live 0x0\n")
	m.file(m.proc, "self/mountinfo", "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:22 / /proc rw - proc proc rw\n24 22 0:30 / /x rw - proc proc rw\n")
	m.file(m.sys, "devices/system/cpu/online", "0\n")
	m.pci("0000:00:01.0", "0x8086", "0x29c0", "")
	m.pci("0000:00:02.0", "0x1af4", "0x1042", "virtio-pci")
	m.link("bus/virtio/devices/virtio0", "devices/pci0000:00/0000:00:02.0/virtio0")
	m.file(m.sys, "devices/pci0000:00/0000:00:02.0/virtio0/modalias", "virtio:d00000002v00001AF4\n")
	m.link("devices/pci0000:00/0000:00:02.0/virtio0/driver", "bus/virtio/drivers/virtio_blk")
	m.link("class/block/vda", "devices/pci0000:00/0000:00:02.0/virtio0/block/vda")
	m.link("dev/block/254:0", "devices/pci0000:00/0000:00:02.0/virtio0/block/vda")
	m.file(m.sys, "bus/acpi/devices/PNP0501:00/modalias", "acpi:PNP0501:\n")
	m.file(m.sys, "bus/acpi/devices/LNXCPU:00/path", "no modalias")
	return m
}

func (m *hardwareMachine) file(root, name, content string) {
	m.t.Helper()
	path := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *hardwareMachine) link(name, target string) {
	m.t.Helper()
	path, target := filepath.Join(m.sys, name), filepath.Join(m.sys, target)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(target, 0o755), os.Symlink(target, path)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *hardwareMachine) pci(slot, vendor, device, driver string) {
	m.t.Helper()
	dir := "devices/pci0000:00/" + slot
	m.file(m.sys, dir+"/vendor", vendor+"\n")
	m.file(m.sys, dir+"/device", device+"\n")
	m.file(m.sys, dir+"/modalias", "pci:"+slot+"\n")
	m.link("bus/pci/devices/"+slot, dir)
	if driver != "" {
		m.link(dir+"/driver", "bus/pci/drivers/"+driver)
	}
}

func (m *hardwareMachine) read() kb.DeviceReport {
	m.t.Helper()
	n, err := ReadHardware(m.proc, m.sys, "n1")
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

const report = `[{"node":"n1","pci":["1af4:1042","8086:29c0"],` +
	`"modaliases":["acpi:PNP0501:","pci:0000:00:01.0","pci:0000:00:02.0","virtio:d00000002v00001AF4"],` +
	`"modules":["net_failover","virtio_net"],"drivers":["virtio_blk","virtio_pci"],"filesystems":["ext4","proc"]}]` + "\n"

func TestReport(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, newHardwareMachine(t).read()); err != nil {
		t.Fatal(err)
	}
	if text.String() != report {
		t.Errorf("report is\n%swant\n%s", text.String(), report)
	}
}

// A kernel that was built without modules has no list of them, and a volume
// over disks is on no bus.
func TestWithoutModulesOnAVolume(t *testing.T) {
	m := newHardwareMachine(t)
	if err := os.Remove(filepath.Join(m.proc, "modules")); err != nil {
		t.Fatal(err)
	}
	m.link("class/block/dm-0", "devices/virtual/block/dm-0")
	m.link("devices/virtual/block/dm-0/slaves/vda", "devices/pci0000:00/0000:00:02.0/virtio0/block/vda")
	m.link("dev/block/253:0", "devices/virtual/block/dm-0")
	m.file(m.proc, "self/mountinfo", "22 1 253:0 / / rw - xfs /dev/mapper/vg-root rw\n")
	n := m.read()
	if len(n.Modules) != 0 || !slices.Equal(n.Drivers, []string{"dm_mod", "virtio_blk", "virtio_pci"}) || !slices.Equal(n.Filesystems, []string{"xfs"}) {
		t.Errorf("node is %+v", n)
	}
}

func TestImplausibleHardware(t *testing.T) {
	m := newHardwareMachine(t)
	m.file(m.sys, "bus/acpi/devices/ODD:00/modalias", "acpi:A\nCONFIG_B=y\n")
	if n := m.read(); len(n.Modaliases) != 4 {
		t.Errorf("modaliases are %q", n.Modaliases)
	}
	for name, spoil := range map[string]func(*hardwareMachine){
		"vendor":  func(m *hardwareMachine) { m.pci("0000:00:03.0", "8086", "0x0001", "") },
		"module":  func(m *hardwareMachine) { m.file(m.proc, "modules", "\n") },
		"mount":   func(m *hardwareMachine) { m.file(m.proc, "self/mountinfo", "x\n") },
		"MemTota": func(m *hardwareMachine) { m.file(m.proc, "meminfo", "") },
	} {
		m := newHardwareMachine(t)
		spoil(m)
		if n, err := ReadHardware(m.proc, m.sys, "n1"); err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), `node "n1": `) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

func TestHardwareOfThisMachine(t *testing.T) {
	n, err := ReadHardware("/proc", "/sys", "here")
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Modaliases) == 0 || len(n.Filesystems) == 0 {
		t.Errorf("node is %+v", n)
	}
	t.Logf("this machine: %+v", n)
}
