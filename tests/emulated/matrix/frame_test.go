// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

const (
	limit   = emulated.Limit
	profile = "--kernel-profile=mitgcm"
)

// cluster is a Trial with the shared functions of the matrix.
type cluster struct{ *emulated.Trial }

// row is a test of one row, on a cluster that others use before and after it.
type row struct {
	name string
	run  func(c cluster)
}

// rows runs tests one after another on one cluster. Each starts and ends with all nodes idle on stock and no reservation
// of the broker's.
func rows(t *testing.T, change func(*emulated.Options), list ...row) {
	t.Helper()
	t.Parallel()
	c := cluster{emulated.Start(t, change)}
	for _, r := range list {
		ok := t.Run(r.name, func(t *testing.T) {
			own := cluster{c.With(t)}
			own.home()
			time.Sleep(answered)
			r.run(own)
			own.home()
		})
		if !ok {
			// Leftovers of a failed test are not the next one's failure.
			for _, n := range c.Nodes() {
				c.OK(n.Resume(c.Ctx))
			}
			c.Try("root", "scancel", "--user=alice")
			c.Try("root", "scancel", "--user=bob")
			for _, name := range c.reservations() {
				c.Try("root", "scontrol", "delete", "reservationname="+name)
			}
		}
	}
}

// answered is longer than slurmctld takes to ask a node that came back whether it is there. An answer that comes while the node
// boots for the next job would be taken for that boot, and the job be started again (docs/status.md, limits).
const answered = 1500 * time.Millisecond

// home waits until the product has left every node.
func (c cluster) home() {
	c.T.Helper()
	c.Settled(limit)
	c.Wait(limit, "no reservation to be left", func() bool { return len(c.reservations()) == 0 },
		func() string { return fmt.Sprint(c.reservations()) })
}

func (c cluster) reservations() (names []string) {
	c.T.Helper()
	for _, word := range strings.Fields(c.Must("root", "scontrol", "--oneliner", "show", "reservation")) {
		if name, ok := strings.CutPrefix(word, "ReservationName="); ok {
			names = append(names, name)
		}
	}
	return names
}

// on reports whether a node runs or boots a kernel.
func (c cluster) on(node, kernel string) bool {
	return c.Node(node).Kernel() == emulated.KernelNamed(kernel).Release
}

// held submits a job that stays until LetGo, and waits until its step ran on each of that many nodes.
func (c cluster) held(user string, nodes int, args ...string) string {
	c.T.Helper()
	id := c.Sbatch(user, "held", append([]string{"-N" + strconv.Itoa(nodes)}, args...)...)
	c.recorded(user, id, nodes)
	return id
}

// recorded waits for that many records of the job's processes.
func (c cluster) recorded(user, id string, count int) {
	c.T.Helper()
	c.Wait(limit, fmt.Sprintf("job %s to run on %d nodes", id, count),
		func() bool { return len(c.Records(user, id)) == count }, func() string { return c.State(id) })
}

// inSwitch submits a job for a node and stops the node in its boot into
// mitgcm; goOn lets it boot.
func (c cluster) inSwitch(node string, args ...string) (id string, goOn func()) {
	c.T.Helper()
	id = c.Sbatch("alice", "0", append([]string{"-N1", "--nodelist=" + node, profile}, args...)...)
	c.Wait(limit, node+" to boot", func() bool { return c.on(node, "mitgcm") }, func() string { return c.State(id) })
	c.OK(c.Node(node).Pause(c.Ctx))
	if state := c.Job(id)["JobState"]; state != "CONFIGURING" {
		c.T.Fatalf("job %s is %s while %s boots", id, state, node)
	}
	return id, func() {
		c.T.Helper()
		c.OK(c.Node(node).Resume(c.Ctx))
	}
}

// completed waits for a job, which need not wait two minutes after a requeue.
func (c cluster) completed(id string) {
	c.T.Helper()
	c.ends(id, "COMPLETED")
}

func (c cluster) ends(id string, states ...string) {
	c.T.Helper()
	c.Wait(limit, fmt.Sprintf("job %s to be %v", id, states), func() bool {
		c.Hurry(id)
		return slices.Contains(states, c.Job(id)["JobState"])
	}, func() string { return c.State(id) })
}

// ran checks that each process of the job saw the kernel, and their number.
func (c cluster) ran(user, id, kernel string, count int) {
	c.T.Helper()
	records := c.Records(user, id)
	if len(records) != count {
		c.T.Errorf("job %s ran %d times, want %d: %v", id, len(records), count, records)
	}
	for _, r := range records {
		c.CheckRecord(r, emulated.KernelNamed(kernel), kernel)
	}
}

// plain runs a job without a profile on a node.
func (c cluster) plain(node string) {
	c.T.Helper()
	id := c.Sbatch("bob", "0", "-N1", "--nodelist="+node)
	c.completed(id)
	c.ran("bob", id, "stock", 1)
}

// waits checks that a job is in the queue for a reason.
func (c cluster) waits(id, reason string) {
	c.T.Helper()
	c.Wait(limit, "job "+id+" to wait for "+reason, func() bool {
		return c.State(id) == "PENDING "+reason
	}, func() string { return c.State(id) })
}

// background runs a command that the test may end; done delivers its result.
func (c cluster) background(user string, argv ...string) (end func(), done <-chan emulated.Result) {
	ctx, cancel := context.WithCancel(c.Ctx)
	results := make(chan emulated.Result, 1)
	go func() {
		r, err := c.Exec(ctx, user, argv...)
		if err != nil {
			r.Stderr += err.Error()
		}
		results <- r
	}()
	c.T.Cleanup(cancel)
	return cancel, results
}

// within is the result of a command in the background.
func (c cluster) within(done <-chan emulated.Result) emulated.Result {
	c.T.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(limit):
		c.T.Fatal("a command does not end")
	}
	return emulated.Result{}
}
