// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Node is one virtual machine.
type Node struct {
	lab   *Lab
	index int
	name  string
}

// Node returns the handle of n1..nN; it panics on a number outside, as an
// index does.
func (l *Lab) Node(i int) Node {
	if i < 1 || i > l.state.Options.Nodes {
		panic(fmt.Sprintf("node %d of a lab with %d", i, l.state.Options.Nodes))
	}
	return Node{lab: l, index: i, name: nodeName(i)}
}

// NodeNamed is Node by name.
func (l *Lab) NodeNamed(name string) (Node, error) {
	i, err := nodeIndex(name, l.state.Options.Nodes)
	if err != nil {
		return Node{}, err
	}
	return l.Node(i), nil
}

// Nodes are all of them.
func (l *Lab) Nodes() []Node {
	var list []Node
	for i := 1; i <= l.state.Options.Nodes; i++ {
		list = append(list, l.Node(i))
	}
	return list
}

// Name is n1..nN.
func (n Node) Name() string { return n.name }

// Console is the file with the serial console's output since "up".
func (n Node) Console() string { return n.lab.layout.console(n.name) }

// Log is a file of the node's /var/log, readable while the node is dead.
func (n Node) Log(name string) string {
	return n.lab.layout.path("nodes", n.name, "share/log", name)
}

// Cache is the node's /var/cache/kernel-broker as the host sees it.
func (n Node) Cache() string { return n.lab.layout.path("nodes", n.name, "share/cache") }

// State is the node's /var/lib/kernel-broker as the host sees it.
func (n Node) State() string { return n.lab.layout.path("nodes", n.name, "share/state") }

// Conf is a file of the node's /etc/kernel-broker as the host sees it.
func (n Node) Conf(name string) string {
	return n.lab.layout.path("nodes", n.name, "share/etc/kernel-broker", name)
}

// Reset presses the reset button: the firmware's kernel boots.
func (n Node) Reset(ctx context.Context) error { return n.monitor(ctx, "system_reset") }

// Pause stops the machine's processors, Resume lets them go on.
func (n Node) Pause(ctx context.Context) error { return n.monitor(ctx, "stop") }

// Resume ends a Pause.
func (n Node) Resume(ctx context.Context) error { return n.monitor(ctx, "cont") }

func (n Node) monitor(ctx context.Context, command string) error {
	if err := QMP(ctx, n.lab.layout.qmp(n.name), command); err != nil {
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	return nil
}

// PowerOff cuts the power: nothing is written any more.
func (n Node) PowerOff(ctx context.Context) error {
	pid, err := n.pid()
	if err != nil {
		return err
	}
	if err := n.monitor(ctx, "quit"); err != nil {
		return err
	}
	return waitFor(ctx, time.Minute, 10*time.Millisecond, "the end of "+n.name, func() (bool, error) {
		r, err := n.lab.Exec(ctx, n.lab.root(), "test", "-e", "/proc/"+pid)
		return r.Exit != 0, err
	})
}

// PowerOn starts a machine that PowerOff stopped.
func (n Node) PowerOn(ctx context.Context) error {
	if on, err := n.On(ctx); err != nil || on {
		return err
	}
	return n.lab.startMachine(ctx, n.index)
}

// On reports whether the machine has power.
func (n Node) On(ctx context.Context) (bool, error) {
	pid, err := n.pid()
	if err != nil {
		return false, nil // never started, or ended and cleaned up
	}
	r, err := n.lab.Exec(ctx, n.lab.root(), "grep", "-qs", qemuProgram, "/proc/"+pid+"/cmdline")
	return err == nil && r.Exit == 0, err
}

// pid is the machine's process as the front-end sees it.
func (n Node) pid() (string, error) {
	text, err := os.ReadFile(n.lab.layout.pidFile(n.name))
	if err != nil {
		return "", fmt.Errorf("node %q: no power: %w", n.name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// nodeExecLimit is the default deadline: a dead node must not block a caller.
const nodeExecLimit = 30 * time.Second

// Exec runs a command as root on the node over the lab's own channel, which
// works without slurmd. Output is returned at the end.
func (n Node) Exec(ctx context.Context, argv ...string) (Result, error) {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return n.Shell(ctx, strings.Join(quoted, " "))
}

// Shell runs a script of the node's sh as root.
func (n Node) Shell(ctx context.Context, script string) (Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, nodeExecLimit)
		defer cancel()
	}
	r, err := n.channel(ctx, script)
	if err != nil {
		return r, fmt.Errorf("node %q: exec channel: %w (console %s)", n.name, err, n.Console())
	}
	return r, nil
}

func (n Node) channel(ctx context.Context, script string) (Result, error) {
	token, err := os.ReadFile(n.lab.layout.token())
	if err != nil {
		return Result{}, err
	}
	var out, errs bytes.Buffer
	in := strings.NewReader(string(token) + script + "\n")
	exit, err := n.lab.Run(ctx, n.lab.root(), Streams{In: in, Out: &out, Err: &errs},
		busybox, "nc", "-w", "3", nodeAddress(n.index), strconv.Itoa(execPort))
	if err != nil {
		return Result{}, err
	}
	if out.Len() == 0 {
		return Result{}, fmt.Errorf("no answer (exit %d) %s", exit, strings.TrimSpace(errs.String()))
	}
	return parseAnswer(out.Bytes())
}

// parseAnswer reads "exit stdoutsize stderrsize\n" and the two outputs.
func parseAnswer(raw []byte) (Result, error) {
	head, rest, ok := bytes.Cut(raw, []byte("\n"))
	f := strings.Fields(string(head))
	if !ok || len(f) != 3 {
		return Result{}, errors.New("garbled answer")
	}
	var v [3]int
	for i := range v {
		n, err := strconv.Atoi(f[i])
		if err != nil || n < 0 {
			return Result{}, errors.New("garbled answer")
		}
		v[i] = n
	}
	if len(rest) != v[1]+v[2] {
		return Result{}, fmt.Errorf("answer cut short: %d of %d bytes", len(rest), v[1]+v[2])
	}
	return Result{Exit: v[0], Stdout: string(rest[:v[1]]), Stderr: string(rest[v[1]:])}, nil
}

// KillAgent kills the node's agent as a crash does; init starts it again.
func (n Node) KillAgent(ctx context.Context) error {
	r, err := n.Shell(ctx, "kill -9 $(pidof kernel-broker-agent)")
	if err != nil {
		return err
	}
	if r.Exit != 0 {
		return fmt.Errorf("node %q: no agent runs: %s", n.name, strings.TrimSpace(r.Stderr))
	}
	return nil
}

// Follow copies the console to out, from its beginning and as it grows.
func (n Node) Follow(ctx context.Context, out *os.File) error {
	cmd := exec.CommandContext(ctx, "tail", "-n", "+1", "-f", n.Console())
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("console of %q: %w", n.name, err)
	}
	return nil
}
