// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// floorImage is where the profile's kernel lies on the plain cluster's nodes.
const floorImage = "/boot/kb-bench-kernel"

// floor boots the plain cluster's nodes into the profile's kernel by hand: load,
// execute, slurmd, registration. Nothing is fetched, checked, proven or
// recorded, and no job waits. It is done twice: as people do it, and with the
// agent's options, which leave out a check that kexec-tools make by themselves.
func (r *run) floor(ctx context.Context) error {
	if err := r.byHand(ctx, floorTime, ""); err != nil {
		return err
	}
	return r.byHand(ctx, floorNoCheck, "-i")
}

func (r *run) byHand(ctx context.Context, name, options string) error {
	before, err := r.readyToBoot(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := r.onNodes(func(n lab.Node) error { return r.load(ctx, n, options) }); err != nil {
		return err
	}
	loaded := time.Now()
	// A node that boots cannot answer, and no answer is no failure: whether it
	// booted is seen by its registration and by the kernel that then runs.
	over, stop := context.WithCancel(ctx)
	defer stop()
	for _, n := range r.plain.Nodes() {
		go func() { _, _ = n.Shell(over, "setsid kexec -x -y -e >/dev/null 2>&1 &") }()
	}
	end, err := r.plain.registered(ctx, before)
	if err != nil {
		return err
	}
	if err := r.onNodes(func(n lab.Node) error { return r.runs(ctx, n, r.kernel.BuildID) }); err != nil {
		return err
	}
	r.times.Add(name, "hand-made kexec "+options+" of the same kernel to slurmd registered", end.Sub(begin).Seconds())
	r.times.Add(name+floorLoad, "of that: kexec -l", loaded.Sub(begin).Seconds())
	r.times.Add(name+floorBoot, "of that: kexec -e to slurmd registered", end.Sub(loaded).Seconds())
	return nil
}

func (r *run) load(ctx context.Context, n lab.Node, options string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	line := `"--command-line=$(cat /proc/cmdline) ` + strings.Join(r.kernel.Arguments, " ") + `"`
	answer, err := n.Shell(ctx, "kexec -c "+options+" -l "+floorImage+" "+line)
	if err == nil && answer.Exit != 0 {
		err = fmt.Errorf("node %q: kexec -l: exit %d: %s", n.Name(), answer.Exit, strings.TrimSpace(answer.Stderr))
	}
	return err
}

// reset presses the reset button of the plain cluster's nodes, which takes them
// back to their own kernel.
func (r *run) reset(ctx context.Context) error {
	before, err := r.readyToBoot(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := r.onNodes(func(n lab.Node) error { return n.Reset(ctx) }); err != nil {
		return err
	}
	end, err := r.plain.registered(ctx, before)
	if err != nil {
		return err
	}
	if err := r.onNodes(func(n lab.Node) error { return r.runs(ctx, n, r.ownBuild) }); err != nil {
		return err
	}
	r.times.Add(resetTime, "reset button to slurmd registered on the node's own kernel", end.Sub(begin).Seconds())
	return nil
}

// readyToBoot waits for idle nodes and returns when their slurmds started.
func (r *run) readyToBoot(ctx context.Context) ([]string, error) {
	if err := r.plain.idle(ctx); err != nil {
		return nil, err
	}
	return r.plain.startTimes(ctx)
}

// onNodes does something on all nodes of the plain cluster at once.
func (r *run) onNodes(do func(lab.Node) error) error {
	nodes := r.plain.Nodes()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = do(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// runs checks which kernel a node runs.
func (r *run) runs(ctx context.Context, n lab.Node, want string) error {
	id, err := buildID(ctx, n)
	if err == nil && id != want {
		err = fmt.Errorf("node %q: runs build %s, want %s", n.Name(), id, want)
	}
	return err
}

// buildID reads the running kernel's GNU build id.
func buildID(ctx context.Context, n lab.Node) (string, error) {
	answer, err := n.Shell(ctx, "cat /sys/kernel/notes")
	if err != nil {
		return "", err
	}
	// A note of 20 bytes, type 3, of "GNU".
	const head = "\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00"
	_, rest, ok := strings.Cut(answer.Stdout, head)
	if !ok || len(rest) < 20 {
		return "", fmt.Errorf("node %q: no build id in /sys/kernel/notes", n.Name())
	}
	return hex.EncodeToString([]byte(rest[:20])), nil
}
