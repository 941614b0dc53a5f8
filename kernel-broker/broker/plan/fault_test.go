// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// failsOn has the job's node come back on stock until no try is left.
func failsOn(w *world, name string) {
	for range 2 {
		w.report(name, kb.ProgressBooting, "", "")
		w.settle()
		w.boot(name, kernels[0], "")
		w.settle()
	}
}

// A node that alone fails with a kernel that boots on others is drained, and the
// kernel left alone. A kernel that nothing else has booted is to blame itself.
func TestWhoseFaultAFailedBootIs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world)
		kind   kb.FailureKind
		only   bool
	}{
		{"the only node that tried", func(*world) {}, kb.FailureKernel, true},
		{"it boots elsewhere", func(w *world) { w.nodes["n2"].HasBooted(mit) }, kb.FailureNode, false},
		{"another one boots elsewhere", func(w *world) { w.nodes["n2"].HasBooted(kb.Ref{Profile: "mitgcm", Version: 2}) }, kb.FailureKernel, true},
		{"another node tries", func(w *world) { w.nodes["n2"].Issue("x", kernels[1]) }, kb.FailureKernel, false},
		{"it boots and fails elsewhere", func(w *world) {
			w.nodes["n2"].HasBooted(mit)
			w.catalog.failedOn = map[string]bool{"n2": true}
		}, kb.FailureKernel, false},
	} {
		w := steadyOnStock(t, "n1", "n2")
		w.job(7, "CONFIGURING", true, "n1")
		w.node("n1", "ALLOCATED+POWERING_UP", "")
		c.change(w)
		w.ensure(7, mit, "n1")
		w.settle()
		failsOn(w, "n1")
		// The kernel's fault costs the job, and then the node is free again.
		f, faults, a := w.nodes["n1"].Failure, w.nodes["n1"].Faults, w.allocs[kb.JobID{Job: 7}]
		if (f != nil) != (c.kind == kb.FailureNode) || a.Hold != (c.kind == kb.FailureKernel) || len(faults) != 2 || faults[1].Only != c.only {
			t.Errorf("%s: failure %+v, faults %+v, job held %v", c.name, f, faults, a.Hold)
			continue
		}
		drained := has(w.pass(time.Second), DrainNode)
		if drained != (c.kind == kb.FailureNode) || drained && !strings.HasSuffix(f.Cause, "and it boots on n2") {
			t.Errorf("%s: drained %v: %+v", c.name, drained, f)
		}
	}
}

// A node that proved a kernel remembers it, whatever it boots later.
func TestBootedKernelsAreRemembered(t *testing.T) {
	w := running(t)
	if n := w.nodes["n1"]; len(n.Booted) != 1 || n.Booted[0] != mit || !n.Tried(mit) || n.Tried(kb.Ref{Profile: "lammps", Version: 1}) {
		t.Errorf("booted %v", n.Booted)
	}
	n := new(kb.Node)
	for i := range uint32(100) {
		n.HasBooted(kb.Ref{Profile: "p", Version: i + 1})
		n.HasBooted(kb.Ref{Profile: "p", Version: i + 1})
	}
	if len(n.Booted) != 32 || n.Booted[31].Version != 100 {
		t.Errorf("booted %v", n.Booted)
	}
}
