// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

var (
	simSeed = flag.Uint64("sim-seed", 0, "run the simulation with this seed alone")
	simRuns = flag.Uint64("sim-runs", 12, "how many seeds the simulation runs")
)

func simulate(t *testing.T, run func(t *testing.T, seed uint64)) {
	t.Helper()
	if *simSeed != 0 {
		run(t, *simSeed)
		return
	}
	for seed := uint64(1); seed <= *simRuns; seed++ {
		run(t, seed)
	}
}

// Without faults every job runs once, on its kernel, and nothing is drained,
// requeued, or seen to reboot unexpectedly.
func TestSimulationWithoutFaults(t *testing.T) {
	kexecs := 0
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2+int(seed%3))
		w.calm = true
		w.run(5*time.Second, nil)
		w.submitSome(12, []string{"", "", "mitgcm", "mitgcm", "lammps"}, 0)
		if !w.run(20*time.Minute, w.allEnded) {
			w.fail("jobs did not end")
		}
		for _, j := range w.slurm.jobs {
			if j.runs != 1 || j.restart != 0 {
				w.fail("job %d ran %d times and was requeued %d times", j.id, j.runs, j.restart)
			}
		}
		if !w.run(2*time.Minute, w.quiet) {
			w.fail("the nodes did not come back")
		}
		for _, n := range w.slurm.nodes {
			if !n.usable() || n.reason != "" {
				w.fail("node %s is not usable: %q", n.name, n.reason)
			}
		}
		kexecs += w.kexecs
	})
	t.Logf("%d kexecs", kexecs)
}

// With cancels at any moment nothing else may go wrong.
func TestSimulationOfCancels(t *testing.T) {
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2)
		w.calm = true
		w.run(5*time.Second, nil)
		w.submitSome(14, []string{"", "mitgcm", "mitgcm", "lammps"}, 0.6)
		if !w.run(20*time.Minute, w.allEnded) {
			w.fail("jobs did not end")
		}
		if !w.run(3*time.Minute, w.quiet) {
			w.fail("the nodes did not come back")
		}
		for _, j := range w.slurm.jobs {
			if !j.cancelled && (j.runs != 1 || j.restart != 0 && !j.missed) {
				w.fail("job %d ran %d times and was requeued %d times", j.id, j.runs, j.restart)
			}
		}
	})
}

// With everything failing that can: what must hold while it does is checked
// where it happens; here, that it ends well when the faults do.
func TestSimulationWithFaults(t *testing.T) {
	crashes, kexecs := 0, 0
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2+int(seed%2))
		w.faulty = true
		w.submitSome(16, []string{"", "mitgcm", "mitgcm", "lammps", "broken"}, 0.2)
		w.run(5*time.Minute, nil)
		w.faulty = false
		w.checkSettles()
		w.administrator()
		if !w.run(30*time.Minute, w.allEnded) {
			w.fail("jobs did not end")
		}
		if !w.run(5*time.Minute, w.quietOrFailed) {
			w.fail("the nodes did not settle")
		}
		for name, s := range w.slurm.nodes {
			n := w.broker.records.nodes[name]
			if n.Failure != nil && !strings.HasPrefix(s.reason, kb.ReasonDrain) {
				w.fail("node %s failed and is not drained by us: %q", name, s.reason)
			}
		}
		w.repair()
		w.repaired = true // one resume has to be enough
		w.resume()
		if !w.run(5*time.Minute, w.quiet) {
			w.fail("the nodes did not come back for the administrator")
		}
		for _, n := range w.slurm.nodes {
			if !n.usable() {
				w.fail("node %s is not usable: %+v", n.name, n)
			}
		}
		w.checkFixpoint()
		crashes += w.crashes
		kexecs += w.kexecs
	})
	t.Logf("%d kexecs, %d broker crashes", kexecs, crashes)
}

// While the distribution's kernel does not load, nodes end drained. What was
// wrong is repaired, and one resume brings them back.
func TestSimulationOfFailedReturns(t *testing.T) {
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2)
		w.calm, w.broker.config.CanReset = true, false
		w.run(5*time.Second, nil)
		w.noStock, w.noReboot = true, true
		w.slurm.submit([]string{"mitgcm", "lammps"}[seed%2], 2, w.between(time.Second, 15*time.Second))
		w.submitSome(2, []string{"", "mitgcm", "lammps"}, 0)
		failed := func() bool {
			return !w.any(func(n *kb.Node, s *simSlurmNode) bool { return n.Failure == nil || !s.drained && !s.down })
		}
		if !w.run(10*time.Minute, failed) {
			w.fail("the nodes are not drained")
		}
		w.run(w.between(0, 3*time.Minute), nil) // to beyond Slurm's patience
		w.noStock, w.noReboot, w.repaired = false, false, true
		w.resume()
		if !w.run(3*time.Minute, func() bool { return w.allEnded() && w.quiet() }) {
			w.fail("one resume was not enough")
		}
		w.run(5*time.Second, nil)
		w.checkFixpoint()
	})
}

// Where nodes can be reset, they come back without anybody's help.
func TestSimulationOfReturnsByReset(t *testing.T) {
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2)
		w.calm, w.broker.config.CanReset, w.noStock, w.noReboot = true, true, true, seed%2 == 0
		w.run(5*time.Second, nil)
		w.slurm.submit([]string{"mitgcm", "lammps"}[seed%2], 2, w.between(time.Second, 15*time.Second))
		w.submitSome(2, []string{"", "mitgcm", "lammps"}, 0)
		if !w.run(20*time.Minute, func() bool { return w.quiet() && !w.any(func(_ *kb.Node, s *simSlurmNode) bool { return !s.usable() }) }) {
			w.fail("the nodes did not come back by themselves")
		}
		w.checkFixpoint()
	})
}

// Nodes that can load stock never, and have no reset, return by their own reboots.
func TestSimulationOfReturnsByReboot(t *testing.T) {
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2)
		w.calm, w.noStock = true, true
		w.run(5*time.Second, nil)
		w.slurm.submit([]string{"mitgcm", "lammps"}[seed%2], 2, w.between(time.Second, 15*time.Second))
		w.submitSome(2, []string{"", "mitgcm", "lammps"}, 0)
		if !w.run(20*time.Minute, func() bool { return w.quiet() && !w.any(func(_ *kb.Node, s *simSlurmNode) bool { return !s.usable() }) }) {
			w.fail("the nodes did not come back by themselves")
		}
		w.checkFixpoint()
	})
}

func (w *simWorld) submitSome(count int, wants []string, cancels float64) {
	for range count {
		j := w.slurm.submit(wants[w.rng.IntN(len(wants))], 1+w.rng.IntN(min(2, len(w.names))), w.between(time.Second, 15*time.Second))
		if w.chance(cancels) {
			if j.hasty = w.chance(0.4); !j.hasty {
				j.cancelAt = w.now.Add(w.between(0, 60*time.Second))
			}
		}
		w.run(w.between(0, 8*time.Second), nil)
	}
}

// administrator repairs hung nodes and resumes what Slurm does not use.
func (w *simWorld) administrator() {
	w.repair()
	w.resume()
}

func (w *simWorld) repair() {
	for _, name := range w.names {
		if n := w.nodes[name]; n.hung {
			n.powerLost()
		}
	}
	w.run(30*time.Second, nil)
}

func (w *simWorld) resume() {
	for _, name := range w.names {
		w.slurm.resume(name)
	}
	w.run(5*time.Second, nil)
}

func (w *simWorld) allEnded() bool {
	for _, j := range w.slurm.jobs {
		if j.state != "DONE" && !j.held {
			// What the administrator does when he is called.
			for _, name := range w.names {
				if n := w.slurm.nodes[name]; (n.down && !n.issued || n.drained) && w.chance(0.001) {
					w.slurm.resume(name)
				}
				if n := w.nodes[name]; n.hung && w.chance(0.001) {
					n.powerLost()
				}
			}
			return false
		}
		if j.held && !strings.HasPrefix(j.comment, "kernel-broker: ") {
			w.fail("job %d is held and its user does not know why: %q", j.id, j.comment)
		}
	}
	return true
}

// quiet: every node on stock, nothing pending, all allocations closed.
func (w *simWorld) quiet() bool {
	return w.quietOrFailed() && !w.any(func(n *kb.Node, s *simSlurmNode) bool { return n.Failure != nil || s.down })
}

func (w *simWorld) quietOrFailed() bool {
	return w.broker.up && len(w.broker.records.allocs) == 0 && len(w.slurm.reservations) == 0 &&
		!w.any(func(n *kb.Node, s *simSlurmNode) bool {
			settled := n.Steady() && n.Desired.IsStock() && w.nodes[n.Name].slurmd.Running && !s.requested && !s.issued && !s.poweringUp && s.active == simFeature
			failed := n.Failure != nil && s.drained
			return !settled && !failed || n.KeptFor != "" || n.Slurm.Armed()
		})
}

func (w *simWorld) any(is func(n *kb.Node, s *simSlurmNode) bool) bool {
	for _, name := range w.names {
		if n := w.broker.records.nodes[name]; n == nil || is(n, w.slurm.nodes[name]) {
			return true
		}
	}
	return false
}

// checkFixpoint: nothing changes in the world, so no record may.
func (w *simWorld) checkFixpoint() {
	w.broker.view = w.slurm.poll(false)
	w.broker.pass() // takes in what Slurm says last
	if out := plan.Decide(w.broker.input()); len(out.Nodes)+len(out.Allocations)+len(out.Actions) > 0 {
		w.fail("a quiet cluster is not left alone: %d nodes, %d allocations, actions %v", len(out.Nodes), len(out.Allocations), out.Actions)
	}
}

// checkSettles: in the middle of things too, the same observations lead to no
// change after a few rounds.
func (w *simWorld) checkSettles() {
	if !w.broker.up {
		return
	}
	in := w.broker.input()
	for range 6 {
		out := plan.Decide(in)
		if len(out.Nodes)+len(out.Allocations) == 0 {
			return
		}
		w.broker.commit(out.Nodes, out.Allocations)
		in = w.broker.input()
		for name, a := range in.Agents {
			a.Reports = nil
			in.Agents[name] = a
		}
	}
	w.fail("the records do not come to rest")
}
