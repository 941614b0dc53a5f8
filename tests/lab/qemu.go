// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/hostclock"
)

const qemuProgram = "qemu-system-x86_64"

// machineArgs are common to the nodes and to the probe boot.
func machineArgs(accel string, memory, cpus int) []string {
	cpu, speed := "host", "kvm"
	if accel != "kvm" {
		// A small translation buffer keeps memory flat over many kexecs; rdrand saves munged more than a second of
		// waiting for entropy.
		cpu, speed = "qemu64,+rdrand", "tcg,thread=multi,tb-size=64"
	}
	return []string{
		"-accel", speed, "-M", "q35", "-cpu", cpu,
		"-smp", fmt.Sprint(cpus), "-m", fmt.Sprint(memory),
		"-nodefaults", "-no-user-config", "-display", "none",
	}
}

// nodeArguments are QEMU's for node i; paths are as the front-end sees them.
func (l *Lab) nodeArguments(i int) []string {
	name := nodeName(i)
	node := insideDir + "/nodes/" + name
	model := "passthrough"
	if l.state.Mode == ModeSingle {
		model = "none" // QEMU may not chown
	}
	args := machineArgs(l.state.Accel, l.state.Options.Memory, l.state.Options.CPUs)
	var clock []string
	if l.state.Accel != "kvm" {
		clock = hostclock.Arguments()
	}
	args = append(args,
		"-name", name,
		"-kernel", insideDir+"/boot/bzImage",
		"-append", strings.Join(slices.Concat(nodeArgs(i), clock, l.state.Options.KernelArgs), " "),
		"-drive", "if=virtio,format=raw,readonly=on,file.locking=off,file="+insideDir+"/boot/root.ext4",
		"-netdev", "tap,id=net0,script=no,downscript=no,ifname="+tapName(i),
		"-device", "virtio-net-pci,netdev=net0,romfile=,mac="+nodeMAC(i),
		"-device", "virtio-rng-pci",
		// The watchdog outside the kernel: armed before a kexec, it returns to the firmware's kernel if the new one
		// hangs.
		"-device", "i6300esb", "-action", "watchdog=reset",
		"-fsdev", "local,id=lab,security_model="+model+",path="+insideDir+"/share",
		"-device", "virtio-9p-pci,fsdev=lab,mount_tag=lab",
		"-fsdev", "local,id=node,security_model="+model+",path="+node+"/share",
		"-device", "virtio-9p-pci,fsdev=node,mount_tag=node",
		"-chardev", "file,id=console,append=on,path="+insideDir+"/consoles/"+name+".log",
		"-serial", "chardev:console",
		"-qmp", "unix:"+node+"/qmp.sock,server=on,wait=off",
		"-pidfile", node+"/qemu.pid",
		"-daemonize",
	)
	if l.state.Kernel.Initrd != "" {
		args = append(args, "-initrd", insideDir+"/boot/initrd.img")
	}
	return args
}

// startMachine powers node i on.
func (l *Lab) startMachine(ctx context.Context, i int) error {
	name := nodeName(i)
	for _, stale := range []string{l.layout.qmp(name), l.layout.pidFile(name)} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("node %q: %w", name, err)
		}
	}
	argv := l.state.System.onHost(append([]string{qemuProgram}, l.nodeArguments(i)...)...)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := l.must(ctx, l.root(), argv...); err != nil {
		return fmt.Errorf("node %q: machine: %w", name, err)
	}
	if l.state.Mode == ModeSingle {
		return nil
	}
	// The broker, which is not root, resets nodes over this socket. No other user may: access to QEMU's monitor gives
	// QEMU's rights.
	socket := insideDir + "/nodes/" + name + "/qmp.sock"
	if _, err := l.must(ctx, l.root(), "/bin/sh", "-c", `chgrp "$1" "$0" && chmod 660 "$0"`, socket, brokerUser(l.state.Options, l.state.Mode)); err != nil {
		return fmt.Errorf("node %q: monitor: %w", name, err)
	}
	return nil
}
