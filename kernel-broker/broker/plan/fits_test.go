// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A node whose root only an initrd finds leaves stock for no kernel without one, nor while stock itself has none.
func TestRootsAreCheckedBeforeTheBoot(t *testing.T) {
	for name, c := range map[string]struct {
		root, module          string
		stockBrings, itBrings bool
		words                 string // of the refusal by the broker
		rules                 []kb.HardwareRule
	}{
		"the kernel finds it":        {"", "", false, false, "", nil},
		"both bring an initrd":       {"UUID=1", "", true, true, "", nil},
		"stock could not return":     {"UUID=1", "", false, true, "the node could not return: kernel \"stock@1\": brings no initrd, and only one finds the node's root UUID=1", nil},
		"stock could not find it":    {"", "ext4", false, false, "the node could not return: kernel \"stock@1\": brings no initrd, and only one has the module ext4", nil},
		"stock's initrd finds it":    {"", "ext4", true, false, "", nil},
		"it returns by a reboot":     {"UUID=1", "", false, true, "", []kb.HardwareRule{{Name: "r", Node: "n1", Kexec: kb.KexecNoReturn, By: kb.WayReboot}}},
		"the agent refuses the boot": {"UUID=1", "", true, false, "", nil},
	} {
		w := steadyOnStock(t, "n1")
		w.rules = c.rules
		agent := w.agents["n1"]
		agent.Inventory.InitrdRoot, agent.Inventory.InitrdModule = c.root, c.module
		w.agents["n1"] = agent
		w.node("n1", "ALLOCATED+POWERING_UP", "")
		w.job(7, "CONFIGURING", true, "n1")
		a := w.ensure(7, kb.Ref{Profile: "mitgcm", Version: 3}, "n1")
		if c.itBrings {
			a.Kernel.InitrdDigest = "sha256:aa"
		}
		w.catalog.stockInitrd = map[bool]string{true: "sha256:bb"}[c.stockBrings]
		w.settle()
		a, n := w.allocs[a.ID], w.nodes["n1"]
		if c.words != "" && (!a.Hold || drained(n)) {
			t.Errorf("%s: hold %v, drained %v: the node is good", name, a.Hold, drained(n))
		}
		if begun := n.Pending != nil && a.Phase == kb.PhaseSwitching; begun != (c.words == "") || !strings.Contains(a.Reason, c.words) {
			t.Errorf("%s: %s, %q, pending %+v", name, a.Phase, a.Reason, n.Pending)
		}
	}
}

// A kernel with system cores is not sent to a node that has too few, nor to an agent that is too old to divide them.
func TestSystemCoresAreCheckedBeforeTheBoot(t *testing.T) {
	for cores, words := range map[uint32]string{0: "the node's agent reports no cores", 2: "of 2 cores none is left for the application", 3: ""} {
		w := steadyOnStock(t, "n1")
		agent := w.agents["n1"]
		agent.Inventory.Cores = cores
		w.agents["n1"] = agent
		w.node("n1", "ALLOCATED+POWERING_UP", "")
		w.job(7, "CONFIGURING", true, "n1")
		a := w.ensure(7, kb.Ref{Profile: "mitgcm", Version: 3}, "n1")
		a.Kernel.SystemCores = 2
		w.settle()
		a, n := w.allocs[a.ID], w.nodes["n1"]
		if words == "" {
			if n.Pending == nil || a.Phase != kb.PhaseSwitching {
				t.Errorf("%d cores: %s (%s), pending %+v", cores, a.Phase, a.Reason, n.Pending)
			}
			continue
		}
		if n.Pending != nil || len(n.Issued) != 0 || a.Phase != kb.PhaseFailed || !a.Hold || !strings.Contains(a.Reason, words) || drained(n) {
			t.Errorf("%d cores: %s, hold %v, %q, pending %+v", cores, a.Phase, a.Hold, a.Reason, n.Pending)
		}
	}
}
