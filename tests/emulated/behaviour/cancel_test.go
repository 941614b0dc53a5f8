// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"context"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Cancelling a pending job costs nothing.
func cancelBefore(c *cluster) {
	c.costs(0, func() {
		first := c.held("bob", "-N2")
		c.waitJob(first, "RUNNING")
		id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm")
		c.waitJob(id, "PENDING")
		c.must("alice", "scancel", id)
		c.waitJob(id, "CANCELLED")
		c.letGo("bob", first)
		c.waitJob(first, "COMPLETED")
		c.ranOn("bob", first, "stock", 2)
		c.neverRan("alice", id)
	})
}

// Cancels that meet the switch wherever it happens to be, with plain jobs
// behind them.
func cancelAtOnce(c *cluster) {
	for range 3 {
		id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm")
		plain := c.sbatch("bob", "-N2")
		c.must("alice", "scancel", id)
		c.waitJob(id, "CANCELLED")
		c.waitJob(plain, "COMPLETED")
		c.ranOn("bob", plain, "stock", 2)
		c.neverRan("alice", id)
	}
}

// A cancel while one node boots and the other has not even begun.
func cancelDuring(c *cluster) {
	resume := c.pause("n1")
	id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm")
	plain := c.sbatch("bob", "-N2")
	c.waitEvent(id, "n2", "kexec")
	if job := c.job(id); job["JobState"] != "CONFIGURING" {
		c.t.Errorf("job %s is %s while its nodes boot", id, job["JobState"])
	}
	c.must("alice", "scancel", id)
	c.waitJob(id, "CANCELLED")
	resume()
	c.waitJob(plain, "COMPLETED")
	c.ranOn("bob", plain, "stock", 2)
	c.neverRan("alice", id)
	c.settled()
	j := c.jobRecord(id)
	if _, ok := j.event("", "ready"); ok || j.Phase != "done" {
		c.t.Errorf("job %s: %s: %v", id, j.Phase, j.Timeline)
	}
}

// After a cancel of a running job its nodes return.
func cancelAfter(c *cluster) {
	c.costs(4, func() {
		id := c.held("alice", "-N2", "--kernel-profile=mitgcm")
		plain := c.sbatch("bob", "-N2")
		c.wait(switchLimit, "job "+id+" to run", func() bool { return len(c.records("alice", id)) == 2 })
		c.must("alice", "scancel", id)
		c.waitJob(id, "CANCELLED")
		c.ranOn("alice", id, "mitgcm", 2)
		c.waitJob(plain, "COMPLETED")
		c.ranOn("bob", plain, "stock", 2)
	})
}

// An interrupted srun cancels its job, even while the nodes boot.
func cancelSrun(c *cluster) {
	ctx, interrupt := context.WithCancel(c.ctx)
	defer interrupt()
	resume := c.pause("n2")
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, "bob", lab.Streams{}, "srun", "-N2", "--job-name=interrupted", "--kernel-profile=mitgcm", "./record.sh")
		ended <- err
	}()
	id := ""
	c.wait(switchLimit, "srun's job", func() bool {
		id = strings.TrimSpace(c.try("bob", "squeue", "--noheader", "--name=interrupted", "--states=CONFIGURING", "--format=%A").Stdout)
		return id != ""
	})
	c.waitEvent(id, "", "switching")
	interrupt()
	select {
	case err := <-ended:
		c.t.Logf("srun was interrupted: %v", err)
	case <-time.After(switchLimit):
		c.t.Fatal("srun does not end")
	}
	c.waitJob(id, "CANCELLED", "FAILED") // srun cancels it itself
	resume()
	c.settled()
	c.neverRan("bob", id)
}
