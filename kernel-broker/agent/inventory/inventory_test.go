// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// machine is a fake /proc and /sys.
type machine struct {
	t         *testing.T
	proc, sys string
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, proc: t.TempDir(), sys: t.TempDir()}
	m.file(m.proc, "meminfo", "MemTotal:         495616 kB\nMemFree: 1 kB\n")
	m.file(m.proc, "cmdline", "root=/dev/vda1 ro\n")
	m.file(m.sys, "devices/system/cpu/online", "0-3,8\n")
	return m
}

func (m *machine) file(root, name, content string) {
	m.t.Helper()
	path := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) link(name, target string) {
	m.t.Helper()
	path, target := filepath.Join(m.sys, name), filepath.Join(m.sys, target)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(target, 0o755), os.Symlink(target, path)); err != nil {
		m.t.Fatal(err)
	}
}

// virtio puts a disk vda with one partition and a network card behind PCI.
func (m *machine) virtio() {
	const pci = "devices/pci0000:00/0000:00:01.0/0000:01:0"
	m.link("devices/pci0000:00/0000:00:01.0/driver", "bus/pci/drivers/pcieport")
	m.link(pci+"0.0/driver", "bus/pci/drivers/virtio-pci")
	m.link(pci+"0.0/virtio0/driver", "bus/virtio/drivers/virtio_blk")
	m.link("class/block/vda", pci+"0.0/virtio0/block/vda")
	m.link("class/block/vda1", pci+"0.0/virtio0/block/vda/vda1")
	m.link("dev/block/254:1", pci+"0.0/virtio0/block/vda/vda1")
	m.link(pci+"1.0/driver", "bus/pci/drivers/virtio-pci")
	m.link(pci+"1.0/virtio1/driver", "bus/virtio/drivers/virtio_net")
	m.link("class/net/eth0", pci+"1.0/virtio1/net/eth0")
	m.link("class/net/eth0/device", pci+"1.0/virtio1")
	m.file(m.sys, "class/net/eth0/carrier", "1\n")
}

func (m *machine) mounts(text string) { m.file(m.proc, "self/mountinfo", text) }

func (m *machine) read() kb.Inventory {
	m.t.Helper()
	got, err := Read(m.proc, m.sys, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return got
}

func (m *machine) want(got kb.Inventory, device, filesystem string, drivers ...string) {
	m.t.Helper()
	if got.RootDevice != device || got.RootFilesystem != filesystem || !slices.Equal(got.Drivers, drivers) {
		m.t.Errorf("got %+v", got)
	}
}

const disk1 = "22 1 254:1 / / ro,relatime - ext4 /dev/root ro\n23 22 0:22 / /proc rw - proc proc rw\n"

func TestDiskAndNetwork(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	m.mounts(disk1)
	got := m.read()
	m.want(got, "/dev/vda1", "ext4", "ext4", "virtio_blk", "virtio_net", "virtio_pci")
	if got.MemoryMiB != 484 || got.CPUs != 5 || got.Architecture == "" {
		t.Errorf("got %+v", got)
	}
}

func TestRootThatOnlyAnInitrdFinds(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	m.mounts(disk1)
	for root, needs := range map[string]bool{
		"/dev/vda1": false, "PARTUUID=0a-01": false, "PARTLABEL=root": false, "254:1": false, "fe01": false, "": false,
		"UUID=7c1d": true, "/dev/nfs": true, "LABEL=root": true, "/dev/mapper/vg-root": true, "/dev/disk/by-uuid/7c1d": true, "nfs:10.0.0.1:/root": true, "zfs:pool/root": true,
	} {
		m.file(m.proc, "cmdline", "ro root="+root+" quiet\n")
		want := ""
		if needs {
			want = root
		}
		if got := m.read(); got.InitrdRoot != want || got.Validate() != nil {
			t.Errorf("root=%s: %q, %v", root, got.InitrdRoot, got.Validate())
		}
	}
}

// The broker refuses an agent that reports what it does not take.
func TestRootArgumentsFit(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	m.mounts(disk1)
	for root, want := range map[string]string{`root="LABEL=my root"`: "LABEL=my-root", "root=LABEL=w\u00fcrzel": "LABEL=w-rzel", "root=../x": "~../x", "root=-LABEL": "~-LABEL", "root=nfs:" + strings.Repeat("x", 300): "nfs:" + strings.Repeat("x", 252)} {
		m.file(m.proc, "cmdline", "ro "+root+" quiet\n")
		if got := m.read(); got.InitrdRoot != want || got.Validate() != nil {
			t.Errorf("%s: %q, %v", root, got.InitrdRoot, got.Validate())
		}
	}
}

func TestUnusedInterfaceIsNotNeeded(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	m.mounts(disk1)
	m.file(m.sys, "class/net/eth0/carrier", "0\n")
	m.file(m.sys, "class/net/lo/carrier", "1\n")
	m.want(m.read(), "/dev/vda1", "ext4", "ext4", "virtio_blk", "virtio_pci")
}

func TestOverlayRoots(t *testing.T) {
	seen := newMachine(t)
	seen.virtio()
	seen.mounts("22 1 254:1 / /run/lower ro - ext4 /dev/vda1 ro\n" +
		"23 1 0:30 / / rw - overlay overlay rw,lowerdir=/x:/run/lower,upperdir=/run/u,workdir=/run/w\n")
	seen.want(seen.read(), "/dev/vda1", "ext4", "ext4", "overlay", "virtio_blk", "virtio_net", "virtio_pci")

	hidden := newMachine(t)
	hidden.virtio()
	hidden.file(hidden.proc, "cmdline", "root=/dev/vda1 rootfstype=squashfs\n")
	hidden.mounts("23 1 0:30 / / rw - overlay overlay rw,lowerdir=/lower\n")
	hidden.want(hidden.read(), "/dev/vda1", "squashfs", "overlay", "squashfs", "virtio_blk", "virtio_net", "virtio_pci")
}

func TestRootInMemory(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	m.mounts("1 1 0:2 / / rw - rootfs none rw\n")
	m.want(m.read(), "", "rootfs", "virtio_net", "virtio_pci")
	for line, want := range map[string]string{
		"ro quiet": "rootfs", "root=/dev/ram0": "rootfs", "root=UUID=1": "rootfs", "root=/dev/vda ro": "",
	} {
		m.file(m.proc, "cmdline", line+"\n")
		if got := m.read(); got.InitrdRoot != want || got.Validate() != nil {
			t.Errorf("%s: the root that only an initrd brings: %q, %v", line, got.InitrdRoot, got.Validate())
		}
	}
}

// Modules that a kernel loaded for its root were in an initrd; those of the network need not have been.
func TestModulesOfTheRoot(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	m.mounts(disk1)
	for _, c := range []struct{ module, want string }{{"", ""}, {"virtio_net", ""}, {"virtio_blk", "virtio_blk"}, {"ext4", "ext4"}} {
		if c.module != "" {
			m.file(m.sys, "module/"+c.module+"/initstate", "live\n")
		}
		if got := m.read(); got.InitrdModule != c.want || got.Validate() != nil {
			t.Errorf("with module %q: %q, want %q; %v", c.module, got.InitrdModule, c.want, got.Validate())
		}
	}
}

func TestVolumeOverTwoScsiDisks(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"sda", "sdb"} {
		dir := "devices/pci0000:00/0000:00:1f.2/ata1/target0/" + name
		m.link(dir+"/driver", "bus/scsi/drivers/sd")
		m.link("class/block/"+name, dir+"/block/"+name)
		m.link("devices/virtual/block/dm-0/slaves/"+name, dir+"/block/"+name)
	}
	m.link("devices/pci0000:00/0000:00:1f.2/driver", "bus/pci/drivers/ahci")
	m.link("class/block/dm-0", "devices/virtual/block/dm-0")
	m.link("dev/block/253:0", "devices/virtual/block/dm-0")
	m.mounts("22 1 253:0 / / rw - xfs /dev/mapper/vg-root rw\n")
	m.want(m.read(), "/dev/dm-0", "xfs", "ahci", "dm_mod", "sd_mod", "xfs")
}

func TestModuleLinkNamesDriver(t *testing.T) {
	m := newMachine(t)
	m.link("devices/pci0/net0/driver", "bus/pci/drivers/mlx5-thing")
	m.link("bus/pci/drivers/mlx5-thing/module", "module/mlx5_core")
	m.link("class/net/ib0", "devices/pci0/net0/net/ib0")
	m.link("class/net/ib0/device", "devices/pci0/net0")
	m.file(m.sys, "class/net/ib0/carrier", "1")
	m.mounts("1 1 0:2 / / rw - tmpfs none rw\n")
	got, err := Read(m.proc, m.sys, []string{"nfs-v4"})
	if err != nil {
		t.Fatal(err)
	}
	m.want(got, "", "tmpfs", "mlx5_core", "nfs_v4")
}

func TestMalformedFiles(t *testing.T) {
	for name, spoil := range map[string]func(*machine){
		"no mounts":   func(m *machine) { m.mounts("") },
		"odd mount":   func(m *machine) { m.mounts("22 1 254:1 / / ro\n") },
		"odd memory":  func(m *machine) { m.file(m.proc, "meminfo", "MemTotal: much kB\n") },
		"no memory":   func(m *machine) { m.file(m.proc, "meminfo", "\n") },
		"odd cpu":     func(m *machine) { m.file(m.sys, "devices/system/cpu/online", "3-1\n") },
		"no cpu":      func(m *machine) { m.file(m.sys, "devices/system/cpu/online", "\n") },
		"not mounted": func(m *machine) { m.mounts("22 1 254:1 / /x ro - ext4 /dev/root ro\n") },
	} {
		m := newMachine(t)
		m.mounts(disk1)
		spoil(m)
		if got, err := Read(m.proc, m.sys, nil); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestReadThisMachine(t *testing.T) {
	got, err := Read("/proc", "/sys", nil)
	if err != nil || got.MemoryMiB == 0 || got.CPUs == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	t.Logf("this machine: %+v", got)
}

func FuzzParseMounts(f *testing.F) {
	f.Add(disk1)
	f.Add(`1 2 3:4 / /a\040b rw shared:1 - overlay o rw,lowerdir=/l:/a\040b` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMounts(text)
		if err != nil {
			return
		}
		for _, m := range mounts {
			if m.Filesystem == "" || m.Device == "" {
				t.Fatalf("%+v", m)
			}
			lower(mounts, m)
			at(mounts, m.Point)
		}
	})
}

func TestNetworkRoot(t *testing.T) {
	m := newMachine(t)
	m.virtio()
	for mounts, want := range map[string]bool{
		disk1: false,
		"21 1 0:20 / / rw - nfs4 10.0.0.1:/root rw": true,
		"20 1 0:19 / /lower ro - nfs 10.0.0.1:/root ro\n21 1 0:20 / / rw - overlay overlay rw,lowerdir=/lower,upperdir=/u": true,
		"21 1 0:20 / / rw - tmpfs tmpfs rw": false,
	} {
		m.mounts(mounts)
		if got, err := NetworkRoot(m.proc); got != want || err != nil {
			t.Errorf("%s: %t, %v", mounts, got, err)
		}
	}
}
