// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
)

const (
	minHold = 200 * time.Millisecond
	maxHold = 10 * time.Second
	// receiptTimeout bounds the wait for the broker's receipt of the report
	// that the node boots; without one it does not.
	receiptTimeout = 2 * time.Second
	// syncTimeout bounds the disks' sync; a dead network file system must
	// not keep a node from its boot.
	syncTimeout = 10 * time.Second
	// maxDamaged is how often the cache may lose an artifact before the
	// node's disk counts as broken.
	maxDamaged = 3
)

// errSuperseded: the desired state has changed since the decision.
var errSuperseded = errors.New("superseded by a newer desired state")

// act begins the next action, or ends a fetch that is no longer wanted.
func (a *Agent) act(ctx context.Context) {
	if a.busy != nil {
		if a.busy.action.Kind == decide.Fetch && !a.wanted(a.busy.action.Target) {
			a.busy.cancel()
		}
		return
	}
	action := decide.Next(a.desired, a.observed, time.Now())
	if action.Kind == decide.Fail {
		a.fail(action.Target, action.Generation, action.Fault, action.Reason)
		action = decide.Next(a.desired, a.observed, time.Now())
	}
	a.wake = action.Wake
	if action.Kind == decide.Wait || action.Kind == decide.Fail {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	begun, session := time.Now(), a.session
	a.busy = &task{action: action, cancel: cancel, begun: begun}
	go func() {
		err := a.do(ctx, action, session)
		a.done <- result{action: action, session: session, err: err, cut: ctx.Err() != nil, took: time.Since(begun)}
	}()
}

// wanted compares with the newest desired state, not with the one last observed.
func (a *Agent) wanted(t decide.Target) bool {
	target, wanted := decide.Wanted(a.parts.Link.Status().Desired, a.parts.Boot)
	return wanted && target.Same(t)
}

// do performs one action, begun in a session. It runs beside the loop and changes none of its state.
func (a *Agent) do(ctx context.Context, action decide.Action, session uint64) error {
	switch action.Kind {
	case decide.Unload:
		return a.parts.Booter.Unload(ctx)
	case decide.WriteState:
		return nodestate.Write(a.parts.NodeState, action.State)
	case decide.Fetch:
		return a.parts.Booter.Fetch(ctx, action.Target)
	case decide.Load:
		// That may take long, so what is wanted is asked after it.
		a.parts.Settle(ctx)
		if !a.wanted(action.Target) {
			return errSuperseded
		}
		return a.parts.Booter.Load(ctx, action.Target)
	case decide.StopSlurmd:
		return a.parts.Slurmd.Stop(ctx)
	case decide.StartSlurmd:
		return a.parts.Slurmd.Start(ctx, action.Start, action.Claim)
	case decide.Announce:
		return a.announce(ctx, action, session)
	case decide.Execute:
		return a.execute(ctx, action, session)
	case decide.Reboot:
		return a.reboot(ctx, action)
	default:
		return fmt.Errorf("action %q: %w", action.Kind, kb.ErrInvalid)
	}
}

// announce reports that the node boots, and waits until the broker has that. The
// site's own steps and the disks' sync come before, since they may take long and
// nothing slow may come between the last check of the desired state and the boot.
func (a *Agent) announce(ctx context.Context, action decide.Action, session uint64) error {
	if err := a.parts.Booter.Prepare(ctx); err != nil {
		return err
	}
	synced := make(chan struct{})
	go func() {
		a.parts.Sync()
		close(synced)
	}()
	select {
	case <-synced:
	case <-time.After(syncTimeout):
		a.parts.Log.Warn("disks not synced in time", "timeout", syncTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, receiptTimeout)
	defer cancel()
	// The boot ends what is known of the gate's refusals; slurmd is down by now.
	if refusals := nodestate.Refusals(a.parts.NodeState, a.parts.Boot.BootID); len(refusals) > 0 {
		if err := a.parts.Link.Send(ctx, convert.SlurmdReportToProto(kb.SlurmdReport{Generation: action.Generation, Refusals: refusals})); err != nil {
			return err
		}
	}
	message := convert.SwitchReportToProto(kb.SwitchReport{Generation: action.Generation, Progress: kb.ProgressBooting})
	if err := a.parts.Link.Send(ctx, message); err != nil {
		return err
	}
	if err := a.parts.Link.Flush(ctx); err != nil {
		return err
	}
	// A receipt over another stream is none for what this one lost.
	if a.parts.Link.Status().Session != session {
		return errSuperseded
	}
	return nil
}

// execute boots what is loaded, unless the node no longer trusts it: since the
// load slurmd may have taken long to stop, or the stream to come back. Trust is
// checked before the last check of the desired state, since that reads files. A
// broker that came meanwhile does not know of the boot.
func (a *Agent) execute(ctx context.Context, action decide.Action, session uint64) error {
	if err := a.parts.Booter.Admit(ctx, action.Target); err != nil {
		return err
	}
	status := a.parts.Link.Status()
	if !status.Fresh || status.Session != session || status.Desired.Generation != action.Generation || !a.wanted(action.Target) {
		return errSuperseded
	}
	return a.parts.Booter.Execute(ctx)
}

// finish records the result of an action.
func (a *Agent) finish(r result) {
	a.busy.cancel()
	a.busy = nil
	kind := r.action.Kind
	switch {
	case r.err == nil:
		a.fails[kind], a.observed.Hold[kind] = 0, time.Time{}
		a.parts.Log.Info("action done", "node", a.parts.Node, "action", kind.String(), "reason", r.action.Reason,
			"took_ms", r.took.Milliseconds())
		a.succeeded(r)
		return
	case r.cut || errors.Is(r.err, errSuperseded):
		a.parts.Log.Info("action abandoned", "node", a.parts.Node, "action", kind.String(), "reason", r.err.Error())
		return
	}
	a.hold(kind)
	a.failed(r)
}

// hold delays the next try of an action, longer each time.
func (a *Agent) hold(kind decide.Kind) {
	wait := min(minHold<<min(a.fails[kind], 10), maxHold)
	a.fails[kind]++
	a.observed.Hold[kind] = time.Now().Add(wait)
}

func (a *Agent) succeeded(r result) {
	action, s := r.action, &a.observed.Switch
	switch action.Kind {
	case decide.Unload:
		a.observed.Leftover = false
		if s.Progress == kb.ProgressLoaded || s.Progress == kb.ProgressBooting {
			a.setProgress(kb.ProgressIdle, action.Reason)
			*s = decide.Switch{}
		}
	case decide.WriteState:
		a.parts.Log.Info("node state", "node", a.parts.Node, "from", describeState(a.observed.State), "to", describeState(action.State),
			"jobs", action.State.Jobs, "reason", a.source())
		a.observed.State = action.State
	case decide.Fetch:
		if s.Progress == kb.ProgressLoaded || s.Progress == kb.ProgressBooting {
			a.observed.Leftover = true // its unloading failed before
		}
		if !s.Target.Same(action.Target) {
			a.damaged = 0
		}
		*s = decide.Switch{Target: action.Target}
		a.setProgress(kb.ProgressLoading, "the artifacts are in the cache")
	case decide.Load:
		a.damaged, a.observed.Leftover = 0, false
		a.setProgress(kb.ProgressLoaded, "digests checked, the kernel holds the image")
	case decide.Announce:
		s.Generation, a.announced = action.Generation, r.session
		a.sent.report = kb.SwitchReport{Generation: action.Generation, Progress: kb.ProgressBooting}
		a.setProgress(kb.ProgressBooting, "the broker has acknowledged the boot")
	case decide.Reboot:
		a.observed.Hold[decide.Reboot] = time.Now().Add(rebootTime)
	case decide.StartSlurmd:
		a.slurmdCause = ""
		// One that has ended since is seen to have done so anew.
		a.observed.Slurmd.Died = false
		a.observed.Awaited, a.noBroker.started = false, time.Now() // until the next poll of slurmctld
	case decide.StopSlurmd:
		// What slurmctld waits for is what the next start claims.
		a.slurmdCause = ""
	}
}

// source says what the node state is written from.
func (a *Agent) source() string {
	if a.desired == nil {
		return "the broker has sent nothing"
	}
	return fmt.Sprintf("the desired state of generation %d", a.desired.Generation)
}

// describeState names the kernel of a node state for the log.
func describeState(s nodestate.State) string {
	switch {
	case s.BootID == "":
		return "none"
	case s.Profile == "":
		return "unproven"
	case !s.Attested:
		return s.Profile + ", not attested"
	default:
		return fmt.Sprintf("%s@%d, attested", s.Profile, s.Version)
	}
}

func (a *Agent) failed(r result) {
	kind, target := r.action.Kind, r.action.Target
	a.parts.Log.Error("action failed", "node", a.parts.Node, "action", kind.String(), "error", r.err,
		"took_ms", r.took.Milliseconds())
	if kind == decide.StartSlurmd || kind == decide.StopSlurmd {
		a.slurmdCause = r.err.Error()
	}
	switch kind {
	case decide.Reboot:
		a.unrebooted = kb.SwitchReport{Generation: r.action.Generation, Progress: kb.ProgressFailed, Kind: kb.FailureNode, Detail: "the reboot failed: " + r.err.Error()}
		return
	case decide.Fetch, decide.Load:
		if errors.Is(r.err, kb.ErrUnavailable) {
			return
		}
		if errors.Is(r.err, kexec.ErrDamaged) && a.damaged < maxDamaged {
			a.damaged++
			a.setProgress(kb.ProgressIdle, "the cache lost an artifact")
			return
		}
	case decide.Execute:
	case decide.Announce:
		if !errors.Is(r.err, kexec.ErrNotPrepared) {
			return
		}
	case decide.StopSlurmd:
		if errors.Is(r.err, kb.ErrUnavailable) {
			return // slurmd ends while the next try waits; the broker bounds the whole
		}
		if a.observed.Switch.Progress != kb.ProgressLoaded && a.observed.Switch.Progress != kb.ProgressBooting {
			return
		}
	default:
		return
	}
	fault := kb.FailureNode
	if errors.Is(r.err, kexec.ErrKernel) {
		fault = kb.FailureKernel
	}
	if kind == decide.StopSlurmd {
		target = a.observed.Switch.Target
	}
	a.fail(target, a.generation(r.action), fault, r.err.Error())
}

// generation is the newest one that wants what the action was for.
func (a *Agent) generation(action decide.Action) uint64 {
	if now, wanted := decide.Wanted(a.desired, a.parts.Boot); wanted && now.Same(action.Target) {
		return a.desired.Generation
	}
	return action.Generation
}

// fail ends the switch to a target for a generation. A load that failed may have left
// something behind, and what failed to boot is still loaded.
func (a *Agent) fail(t decide.Target, generation uint64, fault kb.FailureKind, cause string) {
	s := &a.observed.Switch
	a.observed.Leftover = a.loaded()
	s.Target = t
	a.setProgress(kb.ProgressFailed, cause)
	*s = decide.Switch{Progress: kb.ProgressFailed, Target: t, Generation: generation, Fault: fault, Cause: cause}
}
