// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// RetryPause is between two tries to boot back to stock, after a first one: a full disk or a busy
// network is over by then, or somebody has seen to it.
const (
	firstRetry = 20 * time.Second
	RetryPause = time.Minute
)

// returnFailed takes in that a node could not load stock. It is tried again a few
// times; then a reset brings the firmware's stock. The image may be what is
// wrong, and then no node is to blame.
func (d *decision) returnFailed(n *kb.Node, p *kb.Pending, cause string) {
	if p.Progress == kb.ProgressReset {
		return // a reset is on its way
	}
	if p.Way == kb.WayReboot {
		d.tried(n, p, cause)
		d.lastResort(n, p.Kernel, p.Way, cause)
		return
	}
	if endsFirst(p) {
		p.Progress, p.Since = kb.ProgressReset, d.in.Now
		return
	}
	n.Attempts++
	d.note(n, "load failed", fmt.Sprintf("%s, try %d: %s", p.Kernel.Ref(), n.Attempts, cause))
	d.act(Action{Kind: CheckImage, Text: p.Kernel.ImageDigest})
	if n.Attempts >= d.in.Config.StockAttempts && d.in.Damaged[p.Kernel.ImageDigest] == "" {
		d.lastResort(n, p.Kernel, p.Way, cause)
		return
	}
	pause := RetryPause
	if n.Attempts == 1 {
		pause = firstRetry
	}
	n.Pending, n.RetryAt = nil, d.in.Now.Add(pause)
}

// lastResort brings a node back that kexec does not bring back: by a reboot through its boot loader while its agent is
// there, and else, or when that has failed, by a reset from outside. A node that neither brings back needs its
// administrator.
func (d *decision) lastResort(n *kb.Node, stock kb.Kernel, failed kb.Way, cause string) {
	switch {
	case d.owner(n) != nil:
		d.fail(n, kb.FailureNode, stock.Ref(), cause)
	case failed == "" && d.in.Agents[n.Name].Connected:
		d.bootBy(n, stock, kb.WayReboot, cause)
	case failed != kb.WayReset && d.in.Config.CanReset:
		d.bootBy(n, stock, kb.WayReset, cause)
	default:
		d.fail(n, kb.FailureNode, stock.Ref(), cause)
	}
}

// bootBy begins a boot to stock by other means than kexec. The firmware's default kernel is stock.
func (d *decision) bootBy(n *kb.Node, stock kb.Kernel, way kb.Way, cause string) {
	n.RetryAt = time.Time{}
	token := d.in.NewToken()
	n.Issue(token, stock)
	n.Pending = &kb.Pending{Kernel: stock, Token: token, PrevBootID: n.Boot.BootID, Way: way, From: n.Running.Ref,
		Progress: kb.ProgressReset, Generation: n.Generation + 1, Since: d.in.Now, Begun: d.in.Now, Loaded: d.in.Now}
	if way == kb.WayReboot {
		n.Pending.Progress, n.Pending.Executed = kb.ProgressBooting, d.in.Now
	}
	d.note(n, string(way), cause)
}

// imageDamaged keeps nodes from an image of stock that the store has lost. They go back
// without kexec, or wait until somebody has uploaded it again.
func (d *decision) imageDamaged(n *kb.Node, kernel kb.Kernel) bool {
	cause := d.in.Damaged[kernel.ImageDigest]
	if cause == "" || !kernel.Ref().IsStock() {
		return false
	}
	if d.owner(n) == nil {
		d.lastResort(n, kernel, "", cause)
		return true
	}
	d.act(Action{Kind: CheckImage, Text: kernel.ImageDigest})
	n.RetryAt = d.in.Now.Add(RetryPause)
	return true
}
