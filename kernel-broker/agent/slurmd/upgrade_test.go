// SPDX-License-Identifier: Apache-2.0

package slurmd_test

import (
	"slices"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/slurmd"
)

// An agent that takes over from one of commit 209bc79 in the same boot reads what
// that one left: what the gate reads, and what was done to slurmd.
func TestUpgradeFrom209bc79(t *testing.T) {
	const dir = "../testdata/209bc79/"
	state, there, err := nodestate.Read(dir + "node.state")
	if err != nil || !there || state.Profile != "mitgcm" || state.Version != 1 || !state.Attested || state.Release != "6.1-mitgcm" ||
		!slices.Equal(state.Jobs, []uint32{8}) || len(state.Lost) != 0 {
		t.Fatalf("%+v, %v, %v", state, there, err)
	}
	s := slurmd.Slurmd{MarkFile: dir + "slurmd.mark", BootID: state.BootID, PIDFile: t.TempDir() + "/pid"}
	if o, err := s.Observe(); err != nil || o.Mark != decide.Started || o.Start != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	s.BootID = "another"
	if o, err := s.Observe(); err != nil || o.Mark != decide.Untouched {
		t.Errorf("after another boot: %+v, %v", o, err)
	}
}
