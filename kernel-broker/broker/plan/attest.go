// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// proofOf is what a boot proves: the kernel it was issued a token for, or stock
// when firmware booted it without one.
func proofOf(catalog Catalog, node *kb.Node, boot kb.Boot) (kb.Proof, string) {
	proof := kb.Proof{BootID: boot.BootID, BuildID: boot.BuildID, Release: boot.Release}
	if boot.Token == "" {
		return firmwareProof(catalog, proof)
	}
	for i := range node.Issued {
		issued := &node.Issued[i]
		if issued.Token != boot.Token {
			continue
		}
		switch {
		case issued.BootID != "" && issued.BootID != boot.BootID:
			return kb.Proof{}, "its one-time token was used by another boot"
		case issued.BuildID != boot.BuildID:
			return kb.Proof{}, fmt.Sprintf("build id %s runs, %s was loaded", boot.BuildID, issued.BuildID)
		case issued.Modules != boot.Modules && boot.ModulesFault != "":
			return kb.Proof{}, "its modules could not be loaded: " + boot.ModulesFault
		case issued.Modules != boot.Modules:
			return kb.Proof{}, fmt.Sprintf("modules %q are loaded, %q belong to it", boot.Modules, issued.Modules)
		}
		proof.Ref = issued.Ref
		return proof, ""
	}
	return kb.Proof{}, "its token was not issued by this broker"
}

// firmwareProof holds a boot without a token for stock: it is the node's
// default. Only a kernel known to be another profile's is not.
func firmwareProof(catalog Catalog, proof kb.Proof) (kb.Proof, string) {
	refs := catalog.ByBuildID(proof.BuildID)
	for _, ref := range refs {
		if ref.IsStock() {
			proof.Ref = ref
			return proof, ""
		}
	}
	if len(refs) > 0 {
		return kb.Proof{}, fmt.Sprintf("kernel of profile %q runs without a token", refs[0])
	}
	proof.Ref = stockRef
	return proof, ""
}

// attest takes in what a node shows: a boot that is new, or one whose proof
// can be given only now.
func (d *decision) attest(n *kb.Node, agent Agent) {
	boot := agent.Boot
	if !agent.Connected || boot.BootID == "" {
		return
	}
	n.Inventory = agent.Inventory
	fresh := boot.BootID != n.Boot.BootID
	if !fresh && n.Running.BootID == boot.BootID && n.Boot.Token == boot.Token {
		// An agent that was upgraded in this boot reports what the one before it did not.
		n.Hardware = hardware(n, agent, n.Running)
		return
	}
	proof, problem := proofOf(d.in.Catalog, n, boot)
	n.Boot, n.Running = boot, proof
	n.Hardware = hardware(n, agent, proof)
	for i := range n.Issued {
		if n.Issued[i].Token == boot.Token && proof.Ref.Profile != "" {
			n.Issued[i].BootID = boot.BootID
		}
	}
	if !fresh {
		return
	}
	d.started(n, agent)
	d.note(n, "booted", "kernel "+boot.Release)
	if problem != "" {
		d.note(n, "unproven", problem)
	} else {
		d.note(n, "attested", fmt.Sprintf("%s, build id %s", proof.Ref, proof.BuildID))
	}
	d.booted(n, agent)
	d.resolvePending(n, problem)
}

// hardware is what the agent reports on stock. An application's kernel may have no driver for a part of it, so its report
// counts only where there is none.
func hardware(n *kb.Node, agent Agent, runs kb.Proof) kb.Hardware {
	if seen := agent.Inventory.Hardware; seen != (kb.Hardware{}) && (runs.Ref.IsStock() || n.Hardware == (kb.Hardware{})) {
		return seen
	}
	return n.Hardware
}

// resolvePending decides what a fresh boot means for the boot that was asked for.
func (d *decision) resolvePending(n *kb.Node, problem string) {
	p := n.Pending
	if p == nil {
		return
	}
	began := p.Progress != kb.ProgressLoading
	if n.Runs(p.Kernel.Ref()) {
		if n.Boot.Token == p.Token {
			n.HasBooted(n.Running.Ref)
			n.Kexecs++
		}
		n.Pending, n.Attempts = nil, 0
		return
	}
	n.Pending = nil
	if problem == "" {
		problem = fmt.Sprintf("the node came back on %s", n.Running.Release)
	}
	if p.Progress == kb.ProgressReset {
		problem = "no sign of life in time; after a reset " + problem
	}
	if !began && n.Boot.Token == "" {
		problem = "the node was reset while it loaded"
	}
	d.bootFailed(n, p, problem, began)
}

// bootFailed counts a boot that did not bring up its kernel.
func (d *decision) bootFailed(n *kb.Node, p *kb.Pending, cause string, blameKernel bool) {
	n.Attempts++
	ref := p.Kernel.Ref()
	d.note(n, "boot failed", fmt.Sprintf("%s, try %d: %s", ref, n.Attempts, cause))
	if blameKernel && !ref.IsStock() {
		d.fault(n, p.Token, ref, cause)
	}
	limit := d.in.Config.StockAttempts
	if owner := d.owner(n); owner != nil && !ref.IsStock() {
		limit = owner.BootAttempts
	}
	if n.Attempts < limit {
		return
	}
	kind := kb.FailureNode
	if ref.IsStock() {
		d.lastResort(n, p.Kernel, begunBy(p), cause)
		return
	}
	if blameKernel {
		kind, cause = d.bootFault(n, ref, cause)
	}
	d.fail(n, kind, ref, cause)
}

func (d *decision) fail(n *kb.Node, kind kb.FailureKind, ref kb.Ref, cause string) {
	drained := n.Failure != nil && n.Failure.Drained
	n.Failure = &kb.Failure{Kind: kind, Ref: ref, Cause: cause, At: d.in.Now, Drained: drained}
	n.Pending = nil
	d.note(n, "failed", fmt.Sprintf("%s: %s", ref, cause))
}
