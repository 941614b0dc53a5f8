// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"reflect"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
)

// sent is what the broker was sent last on the stream that is up. Reports follow
// from the state and not from events, so a new stream gets them all again.
type sent struct {
	report kb.SwitchReport
	slurmd *kb.SlurmdReport
	// gate is the newest generation that the gate goes by.
	gate uint64
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

// reportSwitch never reports Booting: the action Announce sends that, and waits
// for its receipt.
func (a *Agent) reportSwitch(ctx context.Context) error {
	target, wanted := decide.Wanted(a.desired, a.parts.Boot)
	s := a.observed.Switch
	if a.desired != nil && a.desired.Reboot && a.unrebooted.Generation == a.desired.Generation && a.sent.report != a.unrebooted {
		if err := a.parts.Link.Send(ctx, convert.SwitchReportToProto(a.unrebooted)); err != nil {
			return err
		}
		a.sent.report = a.unrebooted
		return nil
	}
	if !wanted {
		return nil
	}
	report := kb.SwitchReport{Generation: a.desired.Generation, Progress: kb.ProgressLoading}
	switch {
	case s.Progress == kb.ProgressFailed:
		if s.Generation == a.desired.Generation {
			report.Progress, report.Kind, report.Detail = s.Progress, s.Fault, s.Cause
		}
	case s.Target.Same(target) && s.Progress != kb.ProgressIdle:
		report.Progress = s.Progress
	}
	if report.Progress == kb.ProgressBooting || report == a.sent.report {
		return nil
	}
	if err := a.parts.Link.Send(ctx, convert.SwitchReportToProto(report)); err != nil {
		return err
	}
	a.sent.report = report
	return nil
}

func (a *Agent) reportSlurmd(ctx context.Context) error {
	s := a.observed.Slurmd
	if decide.GateKnows(a.desired, a.observed) {
		a.sent.gate = a.desired.Generation
	}
	report := kb.SlurmdReport{Generation: a.sent.gate, Running: s.Running, Start: s.Start, Detail: a.slurmdCause,
		Refusals: nodestate.Refusals(a.parts.NodeState, a.parts.Boot.BootID)}
	// What is about to change is not worth a message.
	if reflect.DeepEqual(a.sent.slurmd, &report) || a.doing(decide.StartSlurmd) || a.doing(decide.StopSlurmd) {
		return nil
	}
	if err := a.parts.Link.Send(ctx, convert.SlurmdReportToProto(report)); err != nil {
		return err
	}
	a.sent.slurmd = &report
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
		Node: a.parts.Node, Configuration: a.parts.Configuration, Fresh: o.Fresh, Connected: a.parts.Link.Status().Connected,
		Profile: o.State.Profile, Version: o.State.Version, Jobs: o.State.Jobs, Attested: o.State.Attested,
		Release: o.Boot.Release, BuildID: o.Boot.BuildID, BootID: o.Boot.BootID,
		Switch: o.Switch.Progress.String(), Cause: o.Switch.Cause,
		SlurmdRunning: o.Slurmd.Running, SlurmdStart: o.Slurmd.Start,
		Ready: decide.Ready(a.desired, o, now), Doing: decide.Wait.String(), Since: now,
	}
	if a.desired != nil {
		status.Generation, status.SlurmdAllowed = a.desired.Generation, a.desired.SlurmdAllowed
		if target, wanted := decide.Wanted(a.desired, o.Boot); wanted {
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
