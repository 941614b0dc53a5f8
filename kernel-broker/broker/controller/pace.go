// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"reflect"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Limits of what one node's messages cause. Root on a node can send any number of
// them; each new boot is written to the store, and each poll is a load on slurmctld,
// which serve all nodes.
var (
	// helloRate is of boots and inventories that nobody asked for: a node that
	// is reset again and again, and one whose agent is tried out, keep below it.
	helloRate = limit.Rate{PerSecond: 0.1, Burst: 10}
	// pollRate is of looks at slurmctld that do not wait for their turn. Past it
	// a node's report is taken in all the same, and seen with the next poll.
	pollRate = limit.Rate{PerSecond: 1, Burst: 10}
	// eagerRate is of the seconds in which slurmctld is looked at more often.
	eagerRate = limit.Rate{PerSecond: 0.1, Burst: 5}
)

// maxReports of one stream wait for a pass; an agent sends a few for each boot.
const maxReports = 64

// pace counts what each node causes. The controller's lock guards it.
type pace struct {
	hellos, polls, eager *limit.Rates
	shown                map[string]shown
	logs                 nodeLogs
}

func newPace() *pace {
	return &pace{shown: map[string]shown{}, logs: newNodeLogs(),
		hellos: limit.NewRates(helloRate, limit.DefaultKeep, nil),
		polls:  limit.NewRates(pollRate, limit.DefaultKeep, nil),
		eager:  limit.NewRates(eagerRate, limit.DefaultKeep, nil)}
}

// shown is what a node's last hello said.
type shown struct {
	boot      kb.Boot
	inventory kb.Inventory
}

// hello takes in what a node shows, and refuses it if it has shown too much of
// late. A boot that was asked for is free, which its token says, and so is what
// is known already: all nodes come at once when a broker starts.
func (p *pace) hello(n *kb.Node, name string, boot kb.Boot, inventory kb.Inventory) (kb.Boot, error) {
	last, known := p.shown[name]
	if !known && n != nil {
		last = shown{n.Boot, n.Inventory}
	}
	same := sameBoot(last.boot, boot)
	if same {
		// Its second is the kernel's reckoning, which changes with the clock.
		boot.BootedAt = last.boot.BootedAt
	}
	if !same || !sameInventory(last.inventory, inventory) {
		asked := n != nil && n.Pending != nil && boot.Token == n.Pending.Token && boot.BootID != n.Pending.PrevBootID && last.boot.Token != boot.Token
		if !asked {
			if wait := p.hellos.Take(name); wait > 0 {
				wait = wait.Truncate(time.Second) + time.Second
				return boot, &kb.RetryableError{Wait: wait, Err: fmt.Errorf("node %q shows another boot or other hardware too often, "+
					"and may report again in %v: %w", name, wait, kb.ErrExhausted)}
			}
		}
	}
	p.shown[name] = shown{boot, inventory}
	return boot, nil
}

func sameBoot(a, b kb.Boot) bool {
	return a.BootID == b.BootID && a.BuildID == b.BuildID && a.Release == b.Release && a.Token == b.Token
}

func sameInventory(a, b kb.Inventory) bool {
	if len(a.Drivers) == 0 && len(b.Drivers) == 0 {
		a.Drivers, b.Drivers = nil, nil // the store knows no difference
	}
	return reflect.DeepEqual(a, b)
}

// pollFor has slurmctld looked at now because of what a node said.
func (c *Controller) pollFor(node string) {
	if c.pace.polls.Take(node) == 0 {
		c.pollNow()
	}
}

// eagerForLocked has slurmctld looked at more often for a while: it waits for a
// boot of the node, whose slurmd begins to run.
func (c *Controller) eagerForLocked(node string) {
	if n := c.records.nodes[node]; n != nil && n.Waiting && c.pace.eager.Take(node) == 0 {
		c.eager = time.Now()
	}
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
