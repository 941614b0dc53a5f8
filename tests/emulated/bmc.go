// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Reset presses the reset button: all on the node ends at once, and the
// firmware's kernel boots.
func (n *Node) Reset() {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.reset, n.paused = true, false
	if n.cut != nil {
		n.cut()
	}
}

// PowerOff cuts the power.
func (n *Node) PowerOff() {
	n.lock.Lock()
	n.off = true
	n.lock.Unlock()
	n.Reset()
}

// PowerOn restores the power.
func (n *Node) PowerOn() {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.off = false
}

// FailNextLoad makes the next boot of the kernel on the node one whose load fails.
func (n *Node) FailNextLoad(kernel string) error {
	return write(n.path("load-fails"), KernelNamed(kernel).Release+"\n", 0o644)
}

// FailsNextLoad reports whether that load is still to come.
func (n *Node) FailsNextLoad() bool {
	_, err := os.Stat(n.path("load-fails"))
	return err == nil
}

// Kernel is the release that the node runs or boots.
func (n *Node) Kernel() string { return n.read("proc/sys/kernel/osrelease") }

// BootID is new with each boot.
func (n *Node) BootID() string { return n.read("proc/sys/kernel/random/boot_id") }

// Pause stops all processes of the node, like a hang; Resume continues them. A node paused during its boot stays in its
// boot.
func (n *Node) Pause(ctx context.Context) error {
	n.lock.Lock()
	n.paused = true
	n.lock.Unlock()
	// Until all of them have stopped: a process not yet stopped may start another.
	return n.cluster.wait(ctx, time.Minute, n.name+" to stop", func() (bool, error) {
		running := slices.DeleteFunc(n.processes(), n.stands)
		return len(running) == 0, n.signal(ctx, syscall.SIGSTOP, running)
	})
}

// stands reports whether a process is stopped or has ended.
func (n *Node) stands(pid string) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/%s/stat", n.cluster.holder, pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "T") || strings.HasPrefix(state, "Z")
}

// Resume ends a Pause.
func (n *Node) Resume(ctx context.Context) error {
	n.lock.Lock()
	n.paused = false
	n.lock.Unlock()
	return n.signal(ctx, syscall.SIGCONT, n.processes())
}

func (n *Node) signal(ctx context.Context, sig syscall.Signal, pids []string) error {
	if len(pids) == 0 {
		return nil
	}
	// One that has just ended is no error.
	args := append([]string{"/bin/sh", "-c", `sig=$0; for pid; do kill -"$sig" "$pid" 2>/dev/null || :; done`, strconv.Itoa(int(sig))}, pids...)
	return n.cluster.must(ctx, "root", args...)
}

// processes of the node, as the front-end numbers them.
func (n *Node) processes() []string {
	init := n.read("init.pid")
	proc := fmt.Sprintf("/proc/%d/root/proc", n.cluster.holder)
	own, err := os.Readlink(proc + "/" + init + "/ns/pid")
	if init == "" || err != nil {
		return nil
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var pids []string
	for _, e := range entries {
		if space, err := os.Readlink(proc + "/" + e.Name() + "/ns/pid"); err == nil && space == own {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// Exec runs a command as root on the node.
func (n *Node) Exec(ctx context.Context, argv ...string) (Result, error) {
	init := n.read("init.pid")
	if init == "" {
		return Result{}, fmt.Errorf("node %q: it is not up", n.name)
	}
	enter := []string{"nsenter", "--target", init, "--mount", "--uts", "--pid", "--time", "--"}
	return n.cluster.Exec(ctx, "root", append(enter, argv...)...)
}

// KillAgent kills the node's agent as a crash does; init starts it again.
func (n *Node) KillAgent(ctx context.Context) error {
	r, err := n.Exec(ctx, "/bin/sh", "-c", "kill -9 $(cat /run/agent.pid)")
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("node %q: no agent runs: %s", n.name, strings.TrimSpace(r.Stderr))
	}
	return err
}

// StopAgent kills the agent and keeps it away until StartAgent, through boots.
func (n *Node) StopAgent(ctx context.Context) error {
	if err := write(n.path("no-agent"), "", 0o644); err != nil {
		return err
	}
	return n.KillAgent(ctx)
}

// StartAgent ends a StopAgent.
func (n *Node) StartAgent() error { return os.Remove(n.path("no-agent")) }

// buttons executes requests of the broker and of Slurm to the nodes' management controllers.
func (c *Cluster) buttons(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range c.Nodes() {
			n.pressed(ctx)
		}
		pause(ctx, 2*pollEvery)
	}
}

func (n *Node) pressed(ctx context.Context) {
	entries, err := os.ReadDir(n.path("bmc"))
	if err != nil || len(entries) == 0 {
		return
	}
	for _, e := range entries {
		if os.Remove(n.path("bmc", e.Name())) != nil {
			continue
		}
		n.cluster.boots.add(n.name, "bmc", e.Name())
		switch e.Name() {
		case "reset":
			n.Reset()
		case "off":
			n.PowerOff()
		case "on":
			n.cluster.machines.Go(func() {
				pause(ctx, n.cluster.options.PowerSaving)
				n.PowerOn()
			})
		}
	}
}

// Boot is an entry of the boot log: a kernel that a node began to boot, or a
// button of its management controller.
type Boot struct {
	At                time.Time
	Node, Kernel, Why string
}

// String is a line of the boot log.
func (b Boot) String() string {
	return fmt.Sprintf("%s %s %s (%s)", b.At.Format("15:04:05.000"), b.Node, b.Kernel, b.Why)
}

// bootLog records the machines' boots.
type bootLog struct {
	lock sync.Mutex
	list []Boot
}

func (l *bootLog) add(node, kernel, why string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.list = append(l.list, Boot{time.Now(), node, kernel, why})
}

// Boots is the boot log so far.
func (c *Cluster) Boots() []Boot {
	c.boots.lock.Lock()
	defer c.boots.lock.Unlock()
	return slices.Clone(c.boots.list)
}

// BootsOf are how a node booted: power on, kexec, reboot, reset.
func (c *Cluster) BootsOf(node string) (list []string) {
	for _, b := range c.Boots() {
		if b.Node == node && b.Kernel != "bmc" {
			list = append(list, b.Why)
		}
	}
	return list
}

// Kexecs is the number of boots by kexec.
func (c *Cluster) Kexecs() int {
	sum := 0
	for _, b := range c.Boots() {
		if b.Why == "kexec" {
			sum++
		}
	}
	return sum
}
