// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// stepLocked says which step the slowest nodes of a switch are at, how many are ready, and how long it usually takes.
func (c *Controller) stepLocked(a *kb.Allocation, ready int) string {
	step := "registering in Slurm"
	for _, name := range a.Nodes {
		switch n := c.records.nodes[name]; {
		case n == nil || n.Owner != a.ID || n.Progress() == kb.ProgressLoading || n.Progress() == kb.ProgressUnproven:
			step = "loading"
		case n.Progress() == kb.ProgressBooting && step != "loading":
			step = "booting"
		}
	}
	text := fmt.Sprintf("%s, %d of %d nodes ready", step, ready, len(a.Nodes))
	if usual := c.records.ledger.usual(a.Kernel.Ref()); usual > 0 {
		text += ", usually " + rounded.Time(usual)
	}
	return text
}

// usual is the median time of a boot into a kernel, on all hardware; 0 if none is known.
func (l ledger) usual(ref kb.Ref) time.Duration {
	var all []time.Duration
	for _, row := range l.rows {
		if row.Kernel != ref || row.Way != kb.WaySwitch {
			continue
		}
		for _, t := range row.Times() {
			if t.Load >= 0 && t.Stop >= 0 && t.Shutdown >= 0 && t.Start >= 0 {
				all = append(all, t.Load+t.Stop+t.Shutdown+t.Start)
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
