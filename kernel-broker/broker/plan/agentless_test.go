// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Slurm's wait for a node without agent is ended when it began for a job of ours
// that is off the node, and in no other case.
func TestWaitOfANodeWithoutAgent(t *testing.T) {
	for _, c := range []struct {
		name, state string
		reason      string
		job         string // of the job that was refused
		ended, over bool
	}{
		{name: "the job is to be held", state: "ALLOCATED+POWERING_UP", job: "CONFIGURING"},
		{name: "it leaves", state: "IDLE+COMPLETING+POWERING_UP", job: "COMPLETING"},
		{name: "it is gone", state: "IDLE+NOT_RESPONDING+POWERING_UP", ended: true},
		{name: "it is gone, on 26.05", state: "IDLE+NOT_RESPONDING+POWERING_UP+REBOOT_ISSUED", ended: true},
		{name: "the node is hidden", ended: true},
		{name: "another job has it", state: "ALLOCATED+POWERING_UP"},
		{name: "an administrator's boot", state: "DOWN+REBOOT_ISSUED", over: true},
		{name: "an administrator drained it", state: "IDLE+DRAIN+NOT_RESPONDING+POWERING_UP", reason: "bad DIMM"},
		{name: "it is drained for its boot", state: "IDLE+DRAIN+NOT_RESPONDING+POWERING_UP", reason: "Reboot ASAP", ended: true},
		{name: "it came up", state: "IDLE", over: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			id := kb.JobID{Job: 7}
			w.allocs[id] = &kb.Allocation{ID: id, Reference: "7", Nodes: []string{"n3"}, Phase: kb.PhaseFailed, Hold: true, Requeued: true, Reason: "no agent", Created: w.now, Since: w.now, Ended: w.now}
			if c.state != "" {
				w.node("n3", c.state, c.reason)
			}
			if c.job != "" {
				w.job(7, c.job, true, "n3")
			}
			actions := w.pass(time.Second)
			if has(actions, EndWait) != c.ended || (w.allocs[id] == nil) != c.over {
				t.Errorf("actions %v, refused %+v", actions, w.allocs[id])
			}
			if has(actions, ArmReturn) || has(actions, HoldJob) {
				t.Errorf("armed, or held again: %v", actions)
			}
			if w.pass(longestWait + time.Hour); w.allocs[id] != nil && c.job != "CONFIGURING" {
				t.Error("remembered for ever")
			}
		})
	}
}
