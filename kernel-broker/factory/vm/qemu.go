// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

const qemuProgram = "qemu-system-x86_64"

// The names of a run's files, in the folder that Run is given.
const (
	consoleFile = "console.log"
	streamFile  = "result.tar.gz"
	diskFile    = "disk.img"
	filesDir    = "files"
)

// commandLine is the kernel's. An oops ends the guest: a kernel that goes on
// with damaged structures would be measured as if it were whole. The kernel's
// own watchdogs are off, because the host may stop the whole guest for minutes;
// a hang is found from outside.
func (g Guest) commandLine() string {
	arguments := []string{"console=ttyS0,115200", "rdinit=/init", "panic=-1", "oops=panic",
		"nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1", "hung_task_panic=0",
		// Else the first program that wants random numbers makes the kernel
		// gather chance for a billion instructions, in the middle of what counts.
		"random.trust_cpu=on"}
	if g.Exact {
		// A clock that counts instructions fails the kernel's check of the local
		// timer, after half a second of busy waiting; so it is not tried.
		arguments = append(arguments, "nokaslr", "norandmaps", "nolapic_timer")
	}
	return strings.Join(append(arguments, g.Arguments...), " ")
}

// machine are QEMU's arguments. -no-reboot turns every way in which a guest can
// end, a panic and a triple fault among them, into the end of QEMU.
func (g Guest) machine() []string {
	// One model for every emulated run: the kernel patches itself by what the
	// processor can do, and what is measured has to be what was trained.
	cpu := "Haswell"
	if g.KVM {
		cpu = "host"
	}
	args := []string{
		"-M", "q35", "-cpu", cpu, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-smp", fmt.Sprint(cmp.Or(g.CPUs, defaultCPUs)),
		"-m", fmt.Sprint(cmp.Or(g.MemoryMiB, defaultMemory)),
		"-kernel", g.Kernel, "-initrd", g.Initrd, "-append", g.commandLine(),
		"-serial", "file:" + consoleFile,
		"-serial", "file:" + streamFile,
	}
	switch {
	case g.KVM:
		args = append(args, "-accel", "kvm")
	case g.Exact:
		// Time and chance are fixed: rdrand gives what the seed says.
		args = append(args, "-accel", "tcg,thread=single,tb-size=128", "-icount", "shift=0,sleep=off",
			"-rtc", "base=2026-01-01T00:00:00,clock=vm", "-seed", "1")
	default:
		// One thread for all CPUs. With one for each a kernel that changes its own
		// code (jump labels) may die of the breakpoint that it puts there meanwhile:
		// the emulator lets another CPU run into one that is gone already, in about
		// one boot of twenty with two CPUs. A good kernel must not be refused for that.
		args = append(args, "-accel", "tcg,thread=single,tb-size=128")
	}
	if g.Disk > 0 {
		args = append(args, "-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+diskFile,
			"-device", "virtio-blk-pci,drive=disk")
	}
	for _, plugin := range g.Plugins {
		args = append(args, "-plugin", strings.Join(append([]string{plugin.Path}, plugin.Args...), ","))
	}
	return args
}

// Describe says what the guest runs on: the emulator's version and all its
// arguments. It is part of every figure taken in it.
func Describe(ctx context.Context, g Guest) (string, error) {
	said, err := exec.CommandContext(ctx, qemuProgram, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", qemuProgram, err)
	}
	version, _, _ := strings.Cut(string(said), "\n")
	return version + ": " + strings.Join(g.machine(), " "), nil
}
