// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// forbidden is why no kexec may bring a node to a profile's kernel; empty if one may.
func (d *decision) forbidden(n *kb.Node, kernel kb.Kernel) string {
	if kernel.Ref().IsStock() {
		return ""
	}
	for _, r := range d.in.Rules {
		if r.Kexec == kb.KexecNever && r.Matches(n.Name, n.Hardware, kernel.Ref()) {
			return fmt.Sprintf("no kexec on %s (%s)", n.Hardware, r.Why())
		}
	}
	return ""
}

// returnRule is the rule by which a node returns without kexec; nil if there is none.
func (d *decision) returnRule(n *kb.Node, kernel kb.Kernel) (found *kb.HardwareRule) {
	if !kernel.Ref().IsStock() || d.owner(n) != nil {
		return nil
	}
	for i, r := range d.in.Rules {
		if r.Matches(n.Name, n.Hardware, n.Running.Ref) && (found == nil || r.Once) {
			found = &d.in.Rules[i]
		}
	}
	return found
}

// ruledOut begins a return without kexec where a rule says so. A rule for one return ends with that.
func (d *decision) ruledOut(n *kb.Node, kernel kb.Kernel) bool {
	found := d.returnRule(n, kernel)
	if found == nil {
		return false
	}
	way := found.By
	if way == kb.WayReset && !d.in.Config.CanReset {
		way = kb.WayReboot
	}
	if found.Once {
		d.out.UsedRules = append(d.out.UsedRules, found.Name)
	}
	d.bootBy(n, kernel, way, found.Why())
	n.Pending.Progress = kb.ProgressBooting
	return true
}

// A node that a rule has reset ends first what runs on it, by its own reboot. A firmware that has begun meanwhile begins
// once more.
const (
	// rebootBegins is the longest time until its agent is gone.
	rebootBegins = 5 * time.Minute
	// unmountTime is how long it may then unmount its file systems.
	unmountTime = 30 * time.Second
)

// endsFirst reports whether a node that is to be reset ends what runs on it.
func endsFirst(p *kb.Pending) bool { return p.Way == kb.WayReset && p.Progress == kb.ProgressBooting }

// begunBy is the way by which a boot was begun other than by kexec; empty for that.
func begunBy(p *kb.Pending) kb.Way {
	if endsFirst(p) {
		return kb.WayReboot
	}
	return p.Way
}

// ends resets a node whose own reboot has had its time.
func (d *decision) ends(n *kb.Node, p *kb.Pending, agent Agent) {
	if agent.Connected && d.age(p.Since) <= rebootBegins || !agent.Connected && d.age(later(p.Since, agent.Since)) <= unmountTime {
		return
	}
	p.Progress, p.Since = kb.ProgressReset, d.in.Now
	d.reset(n, agent)
}

// seen are the times of a boot as far as this broker saw them.
func (d *decision) seen(p *kb.Pending, agent Agent) kb.BootTimes {
	times := kb.UnknownTimes()
	if p.Begun.IsZero() || p.Begun.Before(d.in.Began) || p.Loaded.IsZero() || p.Executed.IsZero() {
		return times
	}
	times.Load, times.Stop = p.Loaded.Sub(p.Begun), p.Executed.Sub(p.Loaded)
	if up := agent.Boot.Up; up > 0 && agent.Since.After(p.Executed) {
		times.Start = min(up, agent.Since.Sub(p.Executed))
		times.Shutdown = agent.Since.Sub(p.Executed) - times.Start
	}
	return times
}

// started notes when the kernel of a fresh boot began to run.
func (d *decision) started(n *kb.Node, agent Agent) {
	a, p := d.allocs[n.Timeline], n.Pending
	if a == nil || p == nil || agent.Boot.Up <= 0 || p.Executed.IsZero() || !agent.Since.After(p.Executed) {
		return
	}
	a.NoteLate(later(p.Executed, agent.Since.Add(-agent.Boot.Up)), n.Name, "started", "its kernel")
}

// booted records what became of a boot that had begun.
func (d *decision) booted(n *kb.Node, agent Agent) {
	p := n.Pending
	if p == nil || p.Progress == kb.ProgressLoading {
		return
	}
	ok, cause := n.Runs(p.Kernel.Ref()), "the node came back on "+n.Boot.Release
	switch {
	case p.Progress == kb.ProgressReset:
		if p.ResetAt.IsZero() {
			return // it came up by itself
		}
		d.try(n, p, kb.WayReset, n.Runs(stockRef), cause, kb.UnknownTimes())
		return
	case p.Way == "" && n.Boot.Token != p.Token:
		ok, cause = false, "the machine rebooted instead, to "+n.Boot.Release
	}
	d.try(n, p, way(p), ok, cause, d.seen(p, agent))
}

// tried records a boot that did not come to an end.
func (d *decision) tried(n *kb.Node, p *kb.Pending, cause string) {
	d.try(n, p, way(p), false, cause, kb.UnknownTimes())
}

func (d *decision) try(n *kb.Node, p *kb.Pending, way kb.Way, ok bool, cause string, times kb.BootTimes) {
	kernel := p.Kernel.Ref()
	if kernel.IsStock() {
		kernel = p.From
	}
	if kernel.Profile == "" || kernel.IsStock() {
		return // of a boot that an older broker requested, or from an unknown kernel
	}
	if ok {
		cause = ""
	}
	d.out.Tries = append(d.out.Tries, kb.Try{Node: n.Name, Hardware: n.Hardware, Kernel: kernel, Way: way, OK: ok, Cause: cause, At: d.in.Now, Times: times})
}

// way of a boot in the ledger.
func way(p *kb.Pending) kb.Way {
	switch by := begunBy(p); {
	case by != "":
		return by
	case p.Kernel.Ref().IsStock():
		return kb.WayReturn
	}
	return kb.WaySwitch
}

// patience is how long a boot may take, and how it is told.
func (d *decision) patience(n *kb.Node, p *kb.Pending) (limit time.Duration, late string) {
	if p.Way == kb.WayReboot {
		return d.in.Config.RebootTimeout, fmt.Sprintf("not back %v after its reboot", d.in.Config.RebootTimeout)
	}
	limit = d.bootTimeout(n, p.Kernel.Ref())
	return limit, fmt.Sprintf("no sign of life %v after the kexec", limit)
}
