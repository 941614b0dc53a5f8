// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Node is one emulated machine: its kernel and boots are emulated, its programs are real.
type Node struct {
	cluster *Cluster
	name    string
	index   int

	lock sync.Mutex
	// off: the node has no power. paused: its processes are stopped.
	off, paused bool
	// cut ends the current boot or kernel.
	cut context.CancelFunc
	// reset: the current end is a reset, whatever the node did before.
	reset bool
	// slow is the time of boots, if it is not that of the options.
	slow *time.Duration
}

// Name is n1, n2, ...
func (n *Node) Name() string { return n.name }

// path is a file of the node's folder as the host sees it; on the node that
// folder is /machine.
func (n *Node) path(parts ...string) string {
	return n.cluster.path(append([]string{"nodes", n.name}, parts...)...)
}

// Log is a file of the node's logs: agent.log, slurmd.log.
func (n *Node) Log(name string) string { return n.path("log", name) }

func (n *Node) layOut() error {
	for _, dir := range []string{
		"proc/self", "proc/sys/kernel/random", "sys/kernel", "sys/devices/system/cpu/cpu0/topology", "sys/devices/system/cpu/cpu1/topology", "sys/class/dmi/id",
		"log", "spool", "cache", "lib", "bmc",
	} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return fmt.Errorf("node %q: %w", n.name, err)
		}
	}
	// Slurm's user presses these buttons.
	if err := os.Chmod(n.path("bmc"), 0o777); err != nil {
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	for file, text := range map[string]string{
		"proc/meminfo": "MemTotal: 500000 kB\n", "proc/stat": "btime 1790000000\n",
		"proc/self/mountinfo":                                      "22 1 254:0 / / rw - ext4 /dev/vda rw\n",
		"sys/class/dmi/id/sys_vendor":                              "Emulated\n",
		"sys/class/dmi/id/product_name":                            "Node\n",
		"sys/class/dmi/id/bios_version":                            "1.0\n",
		"sys/devices/system/cpu/online":                            "0-1\n",
		"sys/devices/system/cpu/cpu0/topology/core_cpus_list":      "0\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_cpus_list":      "1\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
	} {
		if err := write(n.path(file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const firmwareLine = "root=/dev/vda ro panic=10 quiet"

// boot is the machine's next boot.
type boot struct {
	kernel Kernel
	line   string
	why    string
}

func firmware(why string) boot { return boot{KernelNamed(StockName), firmwareLine, why} }

// machine is the node's hardware: it boots the kernel loaded by kexec, or the firmware's kernel, until the cluster ends.
func (n *Node) machine(ctx context.Context) {
	next := firmware("power on")
	for ctx.Err() == nil {
		if n.isOff() {
			pause(ctx, pollEvery)
			next = firmware("power on")
			continue
		}
		life, cut := context.WithCancel(ctx)
		n.begin(cut)
		err := n.live(life, next)
		cut()
		if err != nil && ctx.Err() == nil {
			n.cluster.boots.add(n.name, "fault", err.Error())
			pause(ctx, time.Second)
		}
		next = n.after()
	}
}

// begin records how to end the current phase.
func (n *Node) begin(cut context.CancelFunc) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.cut, n.reset = cut, n.off
}

// live is one boot and its kernel until that ends.
func (n *Node) live(ctx context.Context, b boot) error {
	if err := n.boots(b); err != nil {
		return err
	}
	pause(ctx, n.bootTime())
	for n.isPaused() && ctx.Err() == nil {
		pause(ctx, pollEvery)
	}
	if ctx.Err() != nil {
		return nil
	}
	return n.runInit(ctx)
}

// boots makes the node's /proc and /sys those of the kernel.
func (n *Node) boots(b boot) error {
	note, err := b.kernel.note()
	if err != nil {
		return err
	}
	tickless := ""
	for argument := range strings.FieldsSeq(b.line) {
		if list, is := strings.CutPrefix(argument, "nohz_full="); is {
			tickless = list
		}
	}
	for file, text := range map[string]string{
		"sys/devices/system/cpu/nohz_full": tickless + "\n",
		"proc/sys/kernel/random/boot_id":   newUUID() + "\n",
		"proc/sys/kernel/osrelease":        b.kernel.Release + "\n",
		"proc/cmdline":                     b.line + "\n",
		"sys/kernel/notes":                 string(note),
		"sys/kernel/kexec_loaded":          "0\n",
	} {
		if err := write(n.path(file), text, 0o644); err != nil {
			return err
		}
	}
	for name, text := range n.cluster.options.GresConf {
		if b.kernel.Release == KernelNamed(name).Release {
			if err := write(n.path("gres.conf"), text, 0o644); err != nil {
				return err
			}
		}
	}
	for _, file := range []string{"executed", "init.pid", "agent.pid"} {
		if err := os.Remove(n.path(file)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("node %q: %w", n.name, err)
		}
	}
	n.cluster.boots.add(n.name, b.kernel.Release, b.why)
	return nil
}

// runInit runs all programs of the node, and returns when none is left.
func (n *Node) runInit(ctx context.Context) error {
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	// Time since boot starts with the boot: slurmctld detects a boot by it.
	seconds, _, _ := strings.Cut(string(uptime), ".")
	starts := "agent"
	if !n.cluster.options.hasAgent(n.name) {
		starts = "slurmd"
	}
	args := append(lab.EnterArgs(n.cluster.mode, n.cluster.holder),
		"unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"--time", "--boottime", "-"+seconds, "/bin/sh", "/emulated/boot.sh", n.name, starts)
	log, err := os.OpenFile(n.path("log/console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// Kernels end; the remaining files show how.
	_ = cmd.Run()
	return n.gone()
}

// gone waits until all processes of the node have ended.
func (n *Node) gone() error {
	text, err := os.ReadFile(n.path("init.pid"))
	if os.IsNotExist(err) {
		return nil // it did not get that far
	}
	if err != nil {
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	for range 3000 {
		if !n.cluster.alive(pid) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("node %q: its init %d does not end", n.name, pid)
}

// after returns the next boot: the loaded kernel, if kexec executed it.
func (n *Node) after() boot {
	n.lock.Lock()
	pressed := n.reset
	n.lock.Unlock()
	if pressed {
		return firmware("reset")
	}
	if _, err := os.Stat(n.path("executed")); err != nil {
		return firmware("reboot")
	}
	image, err := os.ReadFile(n.path("loaded.image"))
	if err != nil {
		return firmware("nothing was loaded")
	}
	line, err := os.ReadFile(n.path("loaded.line"))
	if err != nil {
		return firmware("nothing was loaded")
	}
	build, rest, _ := bytes.Cut(image, []byte("\n"))
	release, _, _ := bytes.Cut(rest, []byte("\n"))
	k := Kernel{Name: strings.TrimPrefix(string(release), "6.1.0-"), Release: string(release), BuildID: string(build)}
	if _, err := k.note(); err != nil || k.Release == "" {
		return firmware("what was loaded is no kernel")
	}
	return boot{k, strings.TrimSpace(string(line)), "kexec"}
}

func (n *Node) bootTime() time.Duration {
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.slow != nil {
		return *n.slow
	}
	return n.cluster.options.bootTime(n.name)
}

// SetBootTime sets the duration of the node's next boots.
func (n *Node) SetBootTime(d time.Duration) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.slow = &d
}

func (n *Node) isOff() bool {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.off
}

func (n *Node) isPaused() bool {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.paused
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // which never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// read returns a small file of the node's folder without its line end.
func (n *Node) read(name string) string {
	text, err := os.ReadFile(n.path(filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
