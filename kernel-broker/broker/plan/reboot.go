// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// rebootAsked takes in an administrator's reboot of a node, or a job's (sbatch
// --reboot): what is asked for is the machine's own boot, of whatever its firmware
// finds, and no kexec.
func (d *decision) rebootAsked(n *kb.Node, s kb.SlurmNode) {
	if d.in.Begun[n.Name].ForJob && n.Reboot == nil && n.Boot.BootID != "" && s.Waiting() && d.owner(n) == nil {
		n.Reboot = &kb.Reboot{BootID: n.Boot.BootID, At: d.in.Now, ForJob: true}
	}
	if AdministratorReboots(n, s) && n.Reboot == nil && n.Boot.BootID != "" {
		n.Reboot = &kb.Reboot{Reason: s.PlainReason(), BootID: n.Boot.BootID, At: d.in.Now}
		d.note(n, "reboot", "asked for: "+s.PlainReason())
	}
	r := n.Reboot
	if r == nil {
		return
	}
	// A node that fails is left to the administrator, who has to look at it before it boots for others.
	over := !s.RebootAsked() && (r.Done || !r.Taken || n.Failure != nil && d.owner(n) == nil)
	if r.ForJob {
		over = r.Done || !s.Waiting() || d.owner(n) != nil
	}
	switch {
	case over:
		n.Reboot = nil
		return
	case r.BootID != n.Boot.BootID && r.Due:
		r.Done, r.Due = true, false
	}
	// A kexec may have come between.
	r.BootID = n.Boot.BootID
	r.Due = !r.Done && (s.RebootIssued() || r.ForJob) && (n.Pending == nil || n.Pending.Progress == kb.ProgressLoading)
}

// rebooting reports whether a node's next boot is an administrator's. No kexec
// comes before it, and no slurmd answers for it.
func (d *decision) rebooting(n *kb.Node) bool {
	return n.Reboot != nil && !n.Reboot.Done && d.owner(n) == nil && (n.Pending == nil || n.Pending.Progress == kb.ProgressLoading)
}

// LeftToSite reports whether a boot that slurmctld has begun is one that no agent does: the node's is away, and the node has
// no power, or an administrator or a job without a profile asked for the boot. n is nil for a node without a record.
func LeftToSite(n *kb.Node, s kb.SlurmNode, connected, off, forJob bool) bool {
	off = off || n != nil && n.Slurm.PoweredOffBoot != ""
	begun := s.RebootIssued() && s.Free() && (n == nil || n.Pending == nil)
	return !connected && (off || forJob || begun && AdministratorReboots(n, s))
}

// begunBoots has nodes reset that are left to the broker. An agent that was there a moment ago, or may not have come yet to
// a broker that has just begun, boots its node itself.
func (d *decision) begunBoots() {
	for _, name := range slices.Sorted(maps.Keys(d.in.Begun)) {
		b, agent, n := d.in.Begun[name], d.in.Agents[name], d.nodes[name]
		if n == nil {
			n = d.in.Nodes[name]
		}
		switch {
		case d.in.Slurm.At.After(b.At) && !d.in.Slurm.Nodes[name].Waiting(),
			agent.Connected && (b.Reset || n != nil && n.Reboot != nil),
			Done(d.in.Receipts, RebootNode, name):
			d.out.BootsOver = append(d.out.BootsOver, name)
		case b.Reset && d.in.Now.Sub(agent.Since) >= d.in.Config.ReturnGrace:
			d.act(Action{Kind: RebootNode, Node: name, Text: "Slurm wants it booted, and it has no agent"})
		}
	}
}

// reboot leaves a node to its reboot. Until Slurm begins it the node keeps its
// slurmd, which Slurm waits for; one that has none is set down.
func (d *decision) reboot(n *kb.Node) {
	if !n.Reboot.Due {
		switch s, known := d.slurmNode(n.Name); {
		case !n.Runs(stockRef) && s.RebootAsked() && bootDeferred(s):
			d.act(Action{Kind: DownNode, Node: n.Name, Text: s.Reason})
		case n.Reboot.Taken && known && !s.RebootAsked() && d.in.Slurm.At.After(d.ended(n)):
			d.armLater(n) // the job left before its return was armed in the reboot's place
		}
		return
	}
	d.desire(n, stockRef)
	if n.Pending != nil {
		n.Pending = nil
	}
}
