// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"
)

// Slurm has issued the return, and the poll that shows it is older than what the broker heard of the job's end: slurmd stays
// as it is. It would claim the boot that is still to come, which Slurm then waits for no more.
func TestRegisterNotBeforeTheReturn(t *testing.T) {
	for name, gone := range map[string]bool{"job gone": true, "job polled before its end": false} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			start := w.nodes["n1"].SlurmdStart
			w.pass(time.Minute)
			w.unanswered, w.slurm.At = true, w.now
			if gone {
				delete(w.slurm.Jobs, 7)
			}
			w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
			for range 3 {
				w.now = w.now.Add(time.Second)
				w.decide()
			}
			if n := w.nodes["n1"]; n.SlurmdStart != start || !n.Slurm.Awaited.Awaits() || !n.Runs(mit) {
				t.Errorf("start %d, want %d; awaited %+v", n.SlurmdStart, start, n.Slurm.Awaited)
			}
		})
	}
}

// A broker that stood still gives each slurmd its time anew.
func TestRegisterNotAnewAfterAStall(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.node("n1", "IDLE+POWERING_UP", "")
	w.settle()
	w.pass(w.config.RegisterDelay + time.Second)
	w.slurmd("n1")
	start := w.nodes["n1"].SlurmdStart
	w.now = w.now.Add(time.Minute)
	in := w.input()
	for in.Began, in.Now = w.now, w.now; ; in.Now = in.Now.Add(time.Second) {
		in.Slurm.At = in.Now
		out := Decide(in)
		if again := len(out.Nodes) > 0 && out.Nodes[0].SlurmdStart != start; again != (in.Now.Sub(in.Began) > w.config.RegisterRetry) {
			t.Errorf("restarted %v, %v after the stall", again, in.Now.Sub(in.Began))
		} else if again {
			return
		}
	}
}
