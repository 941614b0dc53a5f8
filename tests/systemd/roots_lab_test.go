// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/tests/support/debianroot"
)

// rooted is a Debian with what roots on logical volumes and NFS take, and two initrds for its kernel, by the two programs
// that make one.
var rooted = debianroot.Root{
	Packages: []string{
		"systemd", "systemd-sysv", "dbus", "libnss-systemd", "kmod", "udev", "iproute2", "procps", "kexec-tools", "lvm2", "zstd",
		"nfs-kernel-server", "nfs-common", "linux-image-amd64", "initramfs-tools", "dracut-core", "dracut-network",
	},
	Hooks: []string{
		`--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d" && echo MODULES=list >"$1/etc/initramfs-tools/conf.d/site"` +
			` && printf '%s\n' ` + rootDrivers + ` >"$1/etc/initramfs-tools/modules"`,
		`--customize-hook=chroot "$1" dracut --quiet --no-hostonly --zstd --add "lvm nfs network-legacy" --omit "systemd-networkd" --drivers "` + rootDrivers + `"` +
			` /boot/dracut.img "$(ls "$1/lib/modules")"`,
	},
}

// rootDrivers are those of the machines' disks and network, and of their roots.
const rootDrivers = "nvme ahci sd_mod ext4 dm_mod e1000e virtio_net virtio_pci nfs nfsv3 nfsv4"

// receiving is a network card whose driver leaves it receiving at a kexec, unless the network is down by then.
const receiving = "e1000e"

// rootUUID names the file system of the first machine's root.
const rootUUID = "5a0f6a1e-7c1d-4c6e-9b7e-3d1f6a2b9c40"

// TestRoots takes nodes to a kernel for servers and back, by the agent's own code, whose roots only an initrd finds: by
// UUID on NVMe, on a logical volume on SATA, and on NFS. Each goes there and back with an initrd of initramfs-tools and with
// one of dracut, while its network never rests. Without an initrd no kernel fits these nodes. The first machine makes the
// roots of the others.
func TestRoots(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	b := boot{dir: dir, limit: limit, channel: ",restrict=on",
		image: in("root.ext4"), kernel: in("vmlinuz"), initrd: in("initrd.img")}
	drive := func(id, file, more string) []string {
		return []string{"-drive", "if=none,id=" + id + ",format=raw,cache=unsafe,file.locking=off,file=" + in(file) + more}
	}
	const discarded = ",snapshot=on"
	sata := []string{"-device", "ide-hd,drive=volume,bus=ide.0"}
	b.hosts = []host{
		{name: "disk", address: "10.77.0.11", memory: 1024, card: receiving, root: []string{"root=UUID=" + rootUUID, "rw"}, devices: slices.Concat(
			drive("root", "root.ext4", discarded), []string{"-device", "nvme,drive=root,serial=1"},
			drive("copy", "copy.ext4", discarded), []string{"-device", "virtio-blk-pci,drive=copy"},
			drive("volume", "volume.raw", ""), sata)},
		{name: "volume", address: "10.77.0.12", memory: 1024, card: receiving, root: []string{"root=/dev/mapper/site-root", "rd.lvm.lv=site/root", "rw"},
			devices: slices.Concat(drive("volume", "volume.raw", discarded), sata)},
		{name: "nfs", address: "10.77.0.13", memory: 1024, root: []string{"root=/dev/nfs", "nfsroot=10.77.0.11:/srv/root,nfsvers=3,nolock", "boot=nfs",
			"ip=10.77.0.13:10.77.0.11::255.255.255.0:nfs:eth1:none", "rw"}, devices: []string{}},
	}
	stageRoots(t, &b, in("copy.ext4"))
	info, err := os.Stat(b.image)
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("volume.raw"), "", 0o600)
	if err := os.Truncate(in("volume.raw"), info.Size()+64<<20); err != nil {
		t.Fatal(err)
	}

	interrupt()
	connect(t, dir, b.hosts)
	go broadcast(t, dir)
	disk := power(t, b, b.hosts[0])
	machines := []*machine{disk}
	defer hold(t, machines)
	there := func(h host, root string) func(*testing.T) {
		return func(t *testing.T) {
			m := disk
			if h.name != disk.name {
				m = power(t, b, h) // until the end of this step
			}
			thereAndBack(t, m, root)
		}
	}
	steps(t, machines,
		step{"by UUID on NVMe", there(b.hosts[0], "/dev/nvme0n1 ext4")},
		step{"the roots of the others", func(*testing.T) {
			disk.up()
			disk.must(otherRoots)
		}},
		step{"a logical volume on SATA", there(b.hosts[1], "/dev/mapper/site-root ext4")},
		step{"NFS", there(b.hosts[2], "10.77.0.11:/srv/root nfs")},
	)
}

// broadcast sends the machines 200 frames of no protocol in a second, until the test ends.
func broadcast(t *testing.T, dir string) {
	from, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "broadcast"), Net: "unixgram"})
	if err != nil {
		t.Error(err)
		return
	}
	defer from.Close()
	frame := make([]byte, 1500)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x52\x54\x00\x77\x02\x01\x88\xb5") // an EtherType for experiments
	for t.Context().Err() == nil {
		_, _ = from.WriteToUnix(frame, &net.UnixAddr{Name: switchIn(dir), Net: "unixgram"}) // lost where the switch is behind
		time.Sleep(5 * time.Millisecond)
	}
}

// otherRoots copies the root to a logical volume, and shares it by NFS.
const otherRoots = `set -e
modprobe virtio_blk
modprobe dm_mod
udevadm settle
pvcreate -q /dev/sda
vgcreate -q site /dev/sda
lvcreate -q -y -n root -l 100%FREE site
dd if=/dev/vda of=/dev/site/root bs=4M conv=sparse status=none
vgchange -q -an site
mkdir -p /srv/root
mount /dev/vda /srv/root
sync
systemctl start rpcbind.socket nfs-server
exportfs -v`

// stageRoots makes the machines' disk and a copy of it.
func stageRoots(t *testing.T, b *boot, copied string) {
	t.Helper()
	own := b.stageFiles(t)
	kernels := filepath.Join(repo, "build/kernels")
	for profile, folder := range map[string]string{kb.StockProfile: "stock", "server": "server"} {
		m, err := catalog.ReadManifest(filepath.Join(kernels, folder, "kernel.json"))
		if err != nil {
			t.Fatalf("%v (make kernels KERNELS=server)", err)
		}
		image, err := catalog.DescribeFile(filepath.Join(kernels, folder, m.Image.Name), catalog.MaxImage)
		if err != nil {
			t.Fatal(err)
		}
		k, err := m.Kernel(kb.Ref{Profile: profile, Version: 1}, nil, catalog.KernelFiles{Image: image})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(own, folder+".json"), string(text), 0o644)
	}
	stage(t, filepath.Join(own, "roots.sh"), rooted.Archive(t), b.dir, kernels, probe(t), b.image, copied, rootUUID)
}

// bootOf is a kernel to boot, and the node's initrd for it.
type bootOf struct{ kernel, initrd string }

// thereAndBack has a machine boot the kernel for servers and the distribution's, with each initrd.
func thereAndBack(t *testing.T, m *machine, root string) {
	t.Helper()
	m.up()
	agent := func(what, kernel, initrd string) string {
		return fmt.Sprintf("%s=%s PROBE_KERNEL=/srv/%s PROBE_INITRD=%s /usr/local/libexec/probe", asProbe, what, kernel, initrd)
	}
	for _, kernel := range []string{"server", "stock"} {
		if r := m.run(agent("fit", kernel, "")); r.exit == 0 || !strings.Contains(r.err, "brings no initrd") {
			t.Errorf("%s fits without an initrd: exit %d, %s%s", kernel, r.exit, r.out, r.err)
		}
	}
	initramfs := m.must("echo /boot/initrd.img-*")
	const dracut = "/boot/dracut.img"
	for i, to := range []bootOf{{"server", initramfs}, {"stock", dracut}, {"server", dracut}, {"stock", initramfs}} {
		began := time.Now()
		before := m.must(bootID)
		m.must(fmt.Sprintf("echo %d >>/root/boots", i))
		m.must(agent("fit", to.kernel, to.initrd))
		m.must(agent("load", to.kernel, to.initrd))
		// What a command leaves running ends with it.
		m.must("systemd-run --quiet --no-block sh -c " + quote("sleep 1; "+agent("boot", to.kernel, to.initrd)))
		m.boots(before)
		after := m.must("uname -r; grep -o '" + kb.TokenParameter + "=[0-9a-f]*' /proc/cmdline; findmnt -n -o SOURCE,FSTYPE,OPTIONS /; systemctl --no-legend --plain --failed; cat /root/boots")
		t.Logf("%s with %s after %s:\n%s", to.kernel, to.initrd, time.Since(began).Round(time.Second), after)
		lines := strings.Split(after, "\n")
		if is := strings.Contains(lines[0], "-server"); is != (to.kernel == "server") {
			t.Errorf("%s runs after %s was booted", lines[0], to.kernel)
		}
		if got := strings.Join(strings.Fields(lines[2]), " "); !strings.HasPrefix(got, root) || !strings.Contains(got, " rw,") {
			t.Errorf("the root is %s, want %s, rw", got, root)
		}
		if lines[1] != kb.TokenParameter+"="+token || lines[len(lines)-1] != fmt.Sprint(i) {
			t.Errorf("the token or the last boot's number is lost:\n%s", after)
		}
	}
}

// token of the boots.
var token = strings.Repeat("0a", 16)

// asAgent does a part of the agent's in a machine: whether a kernel fits the node, its load, its boot.
func asAgent(ctx context.Context, what string) error {
	folder, initrd := os.Getenv("PROBE_KERNEL"), os.Getenv("PROBE_INITRD")
	text, err := os.ReadFile(filepath.Join(folder, "kernel.json"))
	if err != nil {
		return err
	}
	target := decide.Target{Token: token}
	if err := json.Unmarshal(text, &target.Kernel); err != nil {
		return err
	}
	c, err := config.Default()
	if err != nil {
		return err
	}
	if what == "fit" {
		found, err := inventory.Read(c.Proc, c.Sys, nil)
		if err != nil {
			return err
		}
		if initrd != "" {
			found.InitrdRoot, found.InitrdModule = "", ""
		}
		return errors.Join(found.Validate(), target.Kernel.CheckFits(found))
	}
	tools := kexec.Kexec{Program: c.Kexec.Program, LoadArgs: c.Kexec.LoadArgs, ExecuteArgs: c.Kexec.ExecuteArgs, Sys: c.Sys}
	if what == "boot" {
		if tools.NetworkRoot, err = inventory.NetworkRoot(c.Proc); err != nil {
			return err
		}
		syscall.Sync()
		return tools.Execute(ctx)
	}
	image := filepath.Join(folder, "image")
	// The distribution's is the root's own, perhaps of another version than the one here.
	described, err := catalog.DescribeFile(image, catalog.MaxImage)
	if err != nil {
		return err
	}
	catalog.KernelFiles{Image: described}.Describe(&target.Kernel)
	cache, err := kexec.OpenCache("/run/cache", c.Cache.MaxBytes, func(context.Context, string) (io.ReadCloser, error) {
		return os.Open(image)
	}, slog.Default())
	if err != nil {
		return err
	}
	b := kexec.Booter{
		Tools: tools, Trust: (*kexec.Verifier)(nil), Artifacts: cache, Keep: kexec.Keep(c.Boot.KeepArguments), Initrd: initrd, Proc: c.Proc,
	}
	return errors.Join(b.Fetch(ctx, target), b.Load(ctx, target))
}
