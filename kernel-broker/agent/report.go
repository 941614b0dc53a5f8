// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

// sent is what the broker was told on the stream that is up. Reports follow
// from the state and not from events, so a new stream gets them all again.
type sent struct {
	report reportKey
	slurmd slurmdKey
}

type reportKey struct {
	generation uint64
	stage      decide.Stage
}

type slurmdKey struct {
	told       bool
	generation uint64
	running    bool
	start      uint64
	detail     string
	// refusals of the gate, as text.
	refusals string
}

const sendTimeout = time.Second

func (a *Agent) report(ctx context.Context) {
	if !a.observed.Fresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if err := a.reportSwitch(ctx); err != nil {
		a.parts.Log.Warn("switch not reported", "error", err)
	}
	if err := a.reportSlurmd(ctx); err != nil {
		a.parts.Log.Warn("slurmd not reported", "error", err)
	}
}

// reportSwitch never reports Announced: that is said, with a receipt, by the
// action of this name.
func (a *Agent) reportSwitch(ctx context.Context) error {
	target, wanted := decide.Wanted(a.wish, a.parts.Boot)
	s := a.observed.Switch
	if !wanted {
		return nil
	}
	key := reportKey{a.wish.Generation, decide.Fetched}
	switch {
	case s.Stage == decide.Failed:
		if s.Generation == a.wish.Generation {
			key.stage = decide.Failed
		}
	case s.Target.Same(target) && s.Stage != decide.Idle:
		key.stage = s.Stage
	}
	if key.stage == decide.Announced || key == a.sent.report {
		return nil
	}
	fault, detail := decide.NoFault, ""
	if key.stage == decide.Failed {
		fault, detail = s.Fault, s.Cause
	}
	if err := a.parts.Link.Send(ctx, link.SwitchReport(key.generation, key.stage, fault, detail)); err != nil {
		return err
	}
	a.sent.report = key
	return nil
}

func (a *Agent) reportSlurmd(ctx context.Context) error {
	s := a.observed.Slurmd
	refusals := nodestate.Refusals(a.parts.NodeState, a.parts.Boot.BootID)
	key := slurmdKey{true, a.wish.Generation, s.Running, s.Start, a.slurmdCause, fmt.Sprint(refusals)}
	// What is about to change is not worth a message.
	if key == a.sent.slurmd || a.doing(decide.StartSlurmd) || a.doing(decide.StopSlurmd) {
		return nil
	}
	if err := a.parts.Link.Send(ctx, link.SlurmdReport(key.generation, key.running, key.start, key.detail, refusals)); err != nil {
		return err
	}
	a.sent.slurmd = key
	return nil
}

// publish shows the state to the local socket.
func (a *Agent) publish() {
	next := a.describe(time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if next.Ready != a.status.Ready {
		close(a.news)
		a.news = make(chan struct{})
	}
	a.status = next
}

func (a *Agent) describe(now time.Time) local.NodeStatus {
	o := a.observed
	status := local.NodeStatus{
		Node: a.parts.Node, Fresh: o.Fresh, Connected: a.parts.Link.Status().Connected,
		Profile: o.State.Profile, Version: o.State.Version, Jobs: o.State.Jobs, Attested: o.State.Attested,
		Release: o.Boot.Release, BuildID: o.Boot.BuildID, BootID: o.Boot.BootID,
		Switch: o.Switch.Stage.String(), Cause: o.Switch.Cause,
		SlurmdRunning: o.Slurmd.Running, SlurmdStart: o.Slurmd.Start,
		Ready: decide.Ready(a.wish, o, now), Doing: decide.Wait.String(), Since: now,
	}
	if a.wish != nil {
		status.Generation, status.SlurmdAllowed = a.wish.Generation, a.wish.SlurmdAllowed
		if target, wanted := decide.Wanted(a.wish, o.Boot); wanted {
			status.SwitchTo = target.Kernel.Ref().String()
		}
	}
	if a.busy != nil {
		status.Doing, status.Since = a.busy.action.Kind.String(), a.busy.begun
	}
	return status
}

// Status implements local.Agent.
func (a *Agent) Status() local.NodeStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// WaitReady implements local.Agent.
func (a *Agent) WaitReady(ctx context.Context) error {
	for {
		a.mu.Lock()
		ready, news := a.status.Ready, a.news
		a.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("node %q is not ready: %w", a.parts.Node, ctx.Err())
		}
	}
}

// JobEnding implements local.Agent.
func (a *Agent) JobEnding(ctx context.Context, job uint32) (bool, error) {
	return a.parts.Link.JobEnding(ctx, job)
}
