// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// NodeStatus is the lab's view of a node.
type NodeStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Power   bool   `json:"power"`
	// Slurm is the node's state as sinfo writes it, with its marks.
	Slurm string `json:"slurm"`
	// Release is the kernel that runs, empty when the node does not answer.
	Release string `json:"release"`
	Console string `json:"console"`
}

// Status is the output of "kblab status".
type Status struct {
	Dir     string       `json:"dir"`
	Mode    Mode         `json:"mode"`
	Accel   string       `json:"accelerator"`
	Kernel  string       `json:"kernel"`
	Product bool         `json:"product"`
	Nodes   []NodeStatus `json:"nodes"`
}

// Status asks Slurm and the nodes.
func (l *Lab) Status(ctx context.Context) (Status, error) {
	s := Status{
		Dir: l.layout.dir, Mode: l.state.Mode, Accel: l.state.Accel,
		Kernel: l.state.Kernel.Name + " " + l.state.Kernel.Release, Product: !l.state.Options.WithoutProduct,
	}
	states, err := l.NodeStates(ctx)
	if err != nil {
		states = map[string]string{} // slurmctld may be down; the rest is known
	}
	for _, n := range l.Nodes() {
		st := NodeStatus{Name: n.name, Address: nodeAddress(n.index), Slurm: states[n.name], Console: n.Console()}
		if st.Power, err = n.On(ctx); err != nil {
			return s, err
		}
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		if r, err := n.Exec(short, "uname", "-r"); err == nil {
			st.Release = strings.TrimSpace(r.Stdout)
		}
		cancel()
		s.Nodes = append(s.Nodes, st)
	}
	return s, nil
}

// NodeStates maps node names to Slurm's states, as in "idle" or "idle*".
func (l *Lab) NodeStates(ctx context.Context) (map[string]string, error) {
	out, err := l.must(ctx, l.root(), "sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T")
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 {
			states[f[0]] = f[1]
		}
	}
	return states, nil
}

// WaitIdle waits until Slurm calls every node (or the named ones) idle, with
// no mark beside it.
func (l *Lab) WaitIdle(ctx context.Context, limit time.Duration, names ...string) error {
	if len(names) == 0 {
		for _, n := range l.Nodes() {
			names = append(names, n.name)
		}
	}
	last := map[string]string{}
	var silence error
	start := time.Now()
	err := waitFor(ctx, limit, 200*time.Millisecond, "idle nodes", func() (bool, error) {
		// On a loaded machine slurmctld may not answer within Slurm's own limit.
		states, err := l.NodeStates(ctx)
		if silence = err; errors.Is(err, ErrDown) {
			return false, err
		}
		if err != nil {
			return false, ctx.Err()
		}
		done := true
		for _, name := range names {
			if states[name] != last[name] && states[name] == "idle" {
				l.progress("%s: idle after %.1f s", name, time.Since(start).Seconds())
			}
			done = done && states[name] == "idle"
		}
		last = states
		return done, nil
	})
	if err == nil {
		return nil
	}
	if silence != nil {
		err = fmt.Errorf("%w; the last question failed: %w", err, silence)
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if last[name] != "idle" {
			err = fmt.Errorf("%w\nnode %q is %q; console %s ends:\n%s", err, name, last[name],
				l.layout.console(name), tail(l.layout.console(name), 6))
		}
	}
	return err
}
