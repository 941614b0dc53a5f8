// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// retire takes mitgcm out of use.
func (f *fixture) retire() {
	f.t.Helper()
	if _, _, err := f.catalog.Retire(f.t.Context(), "retire", kb.Ref{Profile: "mitgcm"}, "too old"); err != nil {
		f.t.Fatal(err)
	}
}

// A job whose kernel is retired while its nodes switch is held with the reason,
// and its node goes back.
func TestRetiredInMidSwitch(t *testing.T) {
	f, agent, _ := begun(t)
	f.retire()
	until(t, "the job is held", func() bool { return f.slurm.seen("hold 7") > 0 })
	if f.slurm.seen(`comment 7 kernel-broker: kernel "mitgcm@1" is retired since `) == 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	f.slurm.node("n1", "IDLE+POWERING_UP", "")
	agent.wished(t, "stock", func(d kb.DesiredState) bool { return d.Kernel == nil && d.SlurmdAllowed && d.Running.IsStock() })
}

// A job that waited for nodes when its kernel was retired is held before
// anything boots.
func TestRetiredBeforeTheJobHasNodes(t *testing.T) {
	f := newFixture(t)
	f.retire()
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.Is(err, kb.ErrRetired) {
		t.Errorf("Ensure: %v", err)
	}
	if f.slurm.seen("hold 7") != 1 || f.slurm.seen(`comment 7 kernel-broker: kernel "mitgcm@1" is retired since`) != 1 {
		t.Errorf("calls %q", f.slurm.calls)
	}
}

// What is retired still proves a boot: a job that runs on it goes on, and a
// broker that starts knows what the node runs.
func TestRetiredKernelStillProves(t *testing.T) {
	f := newFixture(t)
	f.retire()
	f.start()
	profiles, err := f.catalog.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := newKernels(profiles, nil)
	refs := k.ByBuildID(simKernel("mitgcm").BuildID)
	if len(refs) != 1 || refs[0].String() != "mitgcm@1" {
		t.Errorf("the build id stands for %v", refs)
	}
	if _, err := k.Resolve(refs[0]); !errors.Is(err, kb.ErrRetired) {
		t.Errorf("Resolve: %v", err)
	}
}
