// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How often the console is read, and how long a kernel that said it panics
// may take to reset the machine.
const (
	lookEvery  = 50 * time.Millisecond
	panicGrace = 10 * time.Second
)

// Run starts the guest, waits for its end and fetches what it left. The folder
// outDir is the run's own: it holds the console's log and the files, and what
// an earlier run left in it is removed. Plugins run in that folder too.
func Run(ctx context.Context, g Guest, outDir string) (Result, error) {
	if err := g.validate(); err != nil {
		return Result{}, err
	}
	g, dir, err := g.placed(outDir)
	if err != nil {
		return Result{}, err
	}
	if err := prepare(dir, g.Disk); err != nil {
		return Result{}, fmt.Errorf("guest: %w", err)
	}
	started := time.Now()
	console := &console{path: filepath.Join(dir, consoleFile), copy: g.Console}
	ended := watch(ctx, g, dir, console)
	result := Result{
		Files:   filepath.Join(dir, filesDir),
		Console: console.path,
		Wall:    time.Since(started),
	}
	full := noRoom(dir) // before the guest's own disk makes room
	err = os.Remove(filepath.Join(dir, diskFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return result, fmt.Errorf("guest: %w", err)
	}
	if ended != nil {
		return result, ended
	}
	result.ExitCode, err = unpack(filepath.Join(dir, streamFile), result.Files)
	if err != nil {
		return result, console.failure(ReasonReset, errors.Join(err, full))
	}
	return result, os.Remove(filepath.Join(dir, streamFile))
}

// noRoom is an error where the file system is full: QEMU says nothing of what it
// could not write, and the result is then cut short.
func noRoom(dir string) error {
	var space syscall.Statfs_t
	if err := syscall.Statfs(dir, &space); err != nil || space.Bavail > 0 {
		return err
	}
	return syscall.ENOSPC
}

// placed makes every path absolute, since QEMU runs in the run's own folder.
func (g Guest) placed(outDir string) (Guest, string, error) {
	dir, err := filepath.Abs(outDir)
	if err != nil {
		return g, "", fmt.Errorf("guest: %w", err)
	}
	g.Plugins = slices.Clone(g.Plugins)
	paths := []*string{&g.Kernel, &g.Initrd}
	for i := range g.Plugins {
		paths = append(paths, &g.Plugins[i].Path)
	}
	for _, path := range paths {
		if *path, err = filepath.Abs(*path); err != nil {
			return g, "", fmt.Errorf("guest: %w", err)
		}
		// QEMU's own message about a missing file is unclear.
		if _, err := os.Stat(*path); err != nil {
			return g, "", fmt.Errorf("guest: %w", err)
		}
	}
	return g, dir, nil
}

// prepare empties the folder of what an earlier run may have left there.
func prepare(dir string, disk int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{consoleFile, streamFile, diskFile, filesDir} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(dir, filesDir), 0o755); err != nil {
		return err
	}
	if disk == 0 {
		return nil
	}
	file, err := os.Create(filepath.Join(dir, diskFile))
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(disk), file.Close())
}

// watch runs QEMU until it ends or has to be ended, and says why it was not the
// guest that ended it.
func watch(ctx context.Context, g Guest, dir string, console *console) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.NewTimer(g.Limit)
	defer limit.Stop()
	look := time.NewTicker(cmp.Or(g.Every, lookEvery))
	defer look.Stop()
	done := start(ctx, g, dir)
	var grace <-chan time.Time
	var hung bool
	for {
		select {
		case err := <-done:
			return meaning(ctx, console, hung, err)
		case <-limit.C:
			hung = true
			cancel()
		case <-grace:
			cancel()
		case <-look.C:
			if err := console.read(); err != nil {
				cancel()
				return errors.Join(err, <-done)
			}
			if console.astray || console.endless {
				cancel()
			}
			if console.panicked && grace == nil {
				grace = time.After(panicGrace)
			}
		}
	}
}

// meaning says what the end of QEMU means; nil is an end by the guest's will.
func meaning(ctx context.Context, console *console, hung bool, err error) error {
	if readErr := console.read(); readErr != nil {
		return readErr
	}
	switch {
	case console.astray:
		return console.failure(ReasonInit, nil)
	case console.panicked:
		return console.failure(ReasonPanic, nil)
	case console.endless:
		return console.failure(ReasonEndless, nil)
	case hung:
		return console.failure(ReasonHang, nil)
	case ctx.Err() != nil:
		return fmt.Errorf("guest: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("guest: %w", err)
	}
	return nil
}

// start runs QEMU and sends its end. The thread that started it waits for it:
// Linux kills it with that thread, so that no guest outlives this process.
func start(ctx context.Context, g Guest, dir string) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.CommandContext(ctx, qemuProgram, g.machine()...) //nolint:gosec // G204: the emulator, without a shell
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.WaitDelay = panicGrace
		var complaint bytes.Buffer
		cmd.Stdout, cmd.Stderr = &complaint, &complaint
		err := cmd.Run()
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%s: %w: %s", qemuProgram, err, bytes.TrimSpace(complaint.Bytes()))
		}
		done <- err
	}()
	return done
}

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
	cpu := cmp.Or(g.Processor, defaultProcessor)
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
