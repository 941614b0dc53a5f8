// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Limits of what one node's messages cause. Root on a node can send any number of
// them; a new boot is written to the store, and each poll is a load on slurmctld,
// which serve all nodes.
var (
	// attachRate is of streams, each of which may bring another boot and other
	// hardware. Nodes that reboot or whose network is bad keep below it.
	attachRate = limit.Rate{PerSecond: 1, Burst: 30}
	// pollRate is of polls of slurmctld that do not wait for their turn. Past it
	// a node's report is taken in all the same, and seen with the next poll.
	pollRate = limit.Rate{PerSecond: 0.5, Burst: 10}
	// linesRate is of lines in the log. A switch and a return with a profiling run
	// write twenty. journald drops lines beyond its own limit, the audit log's heads
	// among them.
	linesRate = limit.Rate{PerSecond: 0.5, Burst: 40}
)

// maxTurns are kept of nodes that wait for theirs, as many as Slurm has nodes.
const maxTurns = 65536

// maxReports of one stream wait for a pass; an agent sends a few for each boot.
const maxReports = 64

// pace counts what each node causes.
type pace struct {
	turns           *limit.Turns // of all nodes
	attaches, polls *limit.Rates
	lines           *limit.LogSampler
}

func newPace() pace {
	return pace{
		turns:    limit.NewTurns(returnRate(), maxTurns, nil),
		attaches: limit.NewRates(attachRate, limit.DefaultKeep, nil),
		polls:    limit.NewRates(pollRate, limit.DefaultKeep, nil),
		lines:    limit.NewLogSampler(linesRate),
	}
}

// attach refuses a stream of a node that has begun too many of late.
func (p pace) attach(node string) error {
	wait := p.attaches.Take(node)
	if wait == 0 {
		return nil
	}
	wait = wait.Truncate(time.Second) + time.Second
	return &kb.RetryableError{Wait: wait, Err: fmt.Errorf("node %q connects too often, and may connect again in %v: %w", node, wait, kb.ErrExhausted)}
}

// pollForLocked has slurmctld polled now because of what a node said, and more
// often for a while where Slurm waits for a boot of the node.
func (c *Controller) pollForLocked(node string) {
	if c.pace.polls.Take(node) > 0 {
		return
	}
	if n := c.records.nodes[node]; n != nil && n.Slurm.Awaited.Awaits() {
		c.eager = time.Now()
	}
	c.pollNow()
}

// endsLocked reports whether the job that the node's epilog asks for is the one
// that the node was switched for. What becomes of a node after any other needs no look.
func (c *Controller) endsLocked(s *Session) bool {
	n := c.records.nodes[s.node]
	if s.agent.Ending == 0 || n == nil {
		return false
	}
	a := c.records.allocs[n.Timeline]
	return a != nil && a.ID.Job == s.agent.Ending
}

// discard is the log for lines that are left out.
var discard = slog.New(slog.DiscardHandler)

// nodeLog returns the log for one line about a node, or discard. A line names the
// number of lines left out before it.
func (c *Controller) nodeLog(node string) *slog.Logger {
	left, write := c.pace.lines.Sample(node)
	switch {
	case !write:
		return discard
	case left > 0:
		return c.log.With("node", node, "left_out", left)
	}
	return c.log.With("node", node)
}

// reportLog returns the log for a node's report, or discard for a repeated one.
func (s *Session) reportLog(news bool) *slog.Logger {
	if !news {
		return discard
	}
	return s.controller.nodeLog(s.node)
}
