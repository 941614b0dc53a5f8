// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

// Next picks what to do. A nil desired state means that the broker has sent none since
// the agent started.
func Next(desired *kb.DesiredState, o Observed, now time.Time) Action {
	d := decision{desired: desired, o: o, now: now}
	for _, ask := range []func() (Action, bool){d.unload, d.state, d.reboot, d.boot, d.slurmd} {
		if action, ok := ask(); ok {
			return action
		}
	}
	return Action{Kind: Wait, Wake: d.wake}
}

// Wanted returns the target of the desired state that does not run yet.
func Wanted(desired *kb.DesiredState, boot kb.Boot) (Target, bool) {
	if desired == nil || desired.Kernel == nil {
		return Target{}, false
	}
	t := Target{Kernel: *desired.Kernel, Token: desired.Token, Envelope: desired.Envelope}
	if desired.Token == boot.Token {
		// Booted with this token already. That it is the wrong kernel then
		// is a failure, see decision.refusal; with no token at all it is a
		// desired state that cannot be met.
		return t, desired.Kernel.BuildID != boot.BuildID
	}
	return t, true
}

// Ready reports whether slurmd may be started.
func Ready(desired *kb.DesiredState, o Observed, now time.Time) bool {
	d := decision{desired: desired, o: o, now: now}
	if desired == nil {
		return d.noBroker() && o.State.Equal(d.stateWanted())
	}
	_, switching := d.switching()
	return !switching && d.slurmdMayRun() && !now.Before(desired.SlurmdNotBefore)
}

// GateKnows reports whether the gate's file says what the broker has sent.
func GateKnows(desired *kb.DesiredState, o Observed) bool {
	d := decision{desired: desired, o: o}
	return desired != nil && o.State.Equal(d.stateWanted())
}

// decision holds one question; wake collects the earliest time to ask again.
type decision struct {
	desired *kb.DesiredState
	o       Observed
	now     time.Time
	wake    time.Time
}

func (d *decision) wakeAt(t time.Time) {
	if d.wake.IsZero() || t.Before(d.wake) {
		d.wake = t
	}
}

// try returns the action unless it has to wait after a failure.
func (d *decision) try(a Action) (Action, bool) {
	if hold := d.o.Hold[a.Kind]; d.now.Before(hold) {
		d.wakeAt(hold)
		return Action{}, false
	}
	return a, true
}

// unload takes out what the desired state no longer names. When that cannot be
// done the rest goes on: an image that nobody executes does no harm.
func (d *decision) unload() (Action, bool) {
	s := d.o.Switch
	if d.o.Leftover {
		return d.try(Action{Kind: Unload, Reason: "unknown image loaded"})
	}
	if s.Progress != kb.ProgressLoaded && s.Progress != kb.ProgressBooting {
		return Action{}, false
	}
	if target, wanted := Wanted(d.desired, d.o.Boot); !wanted || !target.Same(s.Target) {
		return d.try(Action{Kind: Unload, Reason: "no longer wanted", Target: s.Target})
	}
	return Action{}, false
}

// state keeps the gate's file equal to what the broker has sent.
func (d *decision) state() (Action, bool) {
	want := d.stateWanted()
	if d.o.State.Equal(want) {
		return Action{}, false
	}
	return d.try(Action{Kind: WriteState, State: want})
}

func (d *decision) stateWanted() nodestate.State {
	b := d.o.Boot
	want := nodestate.State{BootID: b.BootID, BuildID: b.BuildID, Release: b.Release}
	if d.desired != nil {
		want.Jobs, want.Lost = slices.Clone(d.desired.Jobs), slices.Clone(d.desired.Lost)
		want.Attested = d.desired.Attested
		// An unproven kernel that was booted with a token has no name.
		if d.desired.Attested || b.Token == "" {
			want.Profile, want.Version = d.desired.Running.Profile, d.desired.Running.Version
		}
		return want
	}
	mine := d.o.State.BootID == b.BootID && d.o.State.BuildID == b.BuildID
	if mine && (d.o.State.Profile != "" || !d.noBroker()) {
		return d.o.State // what the broker sent last in this boot
	}
	if d.noBroker() {
		want.Profile = kb.StockProfile
	}
	return want
}

// noBroker reports whether the node decides without the broker: it has sent
// nothing for the grace time, and firmware booted what runs, so it is the stock
// kernel.
func (d *decision) noBroker() bool {
	if d.desired != nil || d.o.Boot.Token != "" {
		return false
	}
	if d.now.Before(d.o.GraceEnds) {
		d.wakeAt(d.o.GraceEnds)
		return false
	}
	return true
}

// reboot reboots the machine by its firmware. A command that succeeded is not
// repeated for a while: the machine ends what runs on it first.
func (d *decision) reboot() (Action, bool) {
	if d.desired == nil || !d.desired.Reboot || !d.o.Fresh {
		return Action{}, false
	}
	return d.try(Action{Kind: Reboot, Generation: d.desired.Generation, Reason: "the broker asked for it"})
}

// switching returns the target of the switch; none when it has failed.
func (d *decision) switching() (Target, bool) {
	target, wanted := Wanted(d.desired, d.o.Boot)
	s := d.o.Switch
	if wanted && s.Progress == kb.ProgressFailed && s.Generation == d.desired.Generation {
		return Target{}, false
	}
	return target, wanted
}

// boot takes the switch one step further. While a step has to wait, nothing
// else is done either: slurmd is about to be stopped anyway.
func (d *decision) boot() (Action, bool) {
	target, ok := d.switching()
	if !ok {
		return Action{}, false
	}
	if fault, err := d.refusal(target); err != nil {
		return d.giveUp(fault, err)
	}
	stage := d.o.Switch.Progress
	if stage == kb.ProgressFailed || !target.Same(d.o.Switch.Target) {
		stage = kb.ProgressIdle
	}
	action := Action{Target: target, Generation: d.desired.Generation}
	switch {
	case d.mustStopNow():
		action.Kind, action.Reason = StopSlurmd, "the broker does not allow it here"
	case !d.o.Fresh:
		return d.pause()
	case stage == kb.ProgressIdle:
		action.Kind = Fetch
	case stage == kb.ProgressLoading:
		action.Kind = Load
	case d.desired.LoadOnly:
		return d.pause()
	case d.o.Slurmd.Running:
		action.Kind, action.Reason = StopSlurmd, "the node boots another kernel"
	case stage == kb.ProgressLoaded || d.o.Switch.Generation != d.desired.Generation:
		action.Kind = Announce
	default:
		action.Kind = Execute
	}
	if action, ok := d.try(action); ok {
		return action, true
	}
	return d.pause()
}

func (d *decision) pause() (Action, bool) { return Action{Kind: Wait, Wake: d.wake}, true }

// refusal says why the target cannot be booted here at all.
func (d *decision) refusal(target Target) (kb.FailureKind, error) {
	if err := target.Kernel.Validate(); err != nil {
		return kb.FailureKernel, err
	}
	if target.Token == d.o.Boot.Token && target.Token != "" {
		return kb.FailureKernel, fmt.Errorf("kernel %q: build id %s came up, %s was expected",
			target.Kernel.Ref(), d.o.Boot.BuildID, target.Kernel.BuildID)
	}
	if err := kb.ValidateToken(target.Token); err != nil {
		return kb.FailureNode, err
	}
	if err := target.Kernel.CheckFits(d.o.Inventory); err != nil {
		return kb.FailureKernel, err
	}
	return kb.FailureNone, nil
}

func (d *decision) giveUp(fault kb.FailureKind, err error) (Action, bool) {
	target, _ := d.switching()
	return Action{Kind: Fail, Target: target, Generation: d.desired.Generation, Fault: fault, Reason: err.Error()}, true
}

// mustStopNow: slurmd runs on a kernel that it may not run on. A slurmd that
// only makes way for the next kernel may stay until that kernel is loaded.
func (d *decision) mustStopNow() bool {
	return d.o.Slurmd.Running && !d.desired.SlurmdAllowed && !d.desired.Attested
}

func (d *decision) slurmdMayRun() bool {
	proven := d.desired.Attested || d.o.Boot.Token == ""
	return d.desired.SlurmdAllowed && proven && d.o.State.Equal(d.stateWanted())
}

// awaitedWithoutBroker: Slurm allocated this node to a job with a profile while
// the broker was away, and the job has left. Plain jobs cannot run on the node
// before its slurmd, restarted, claims the boot that slurmctld waits for. On
// another kernel than stock no restart is needed: plain jobs may not have it.
func (d *decision) awaitedWithoutBroker() bool {
	if !d.o.Awaited || d.o.Fresh || !d.o.Slurmd.Running || d.o.State.Profile != kb.StockProfile {
		return false
	}
	return d.desired != nil && d.slurmdMayRun() || d.noBroker()
}

// slurmd starts and stops slurmd on a kernel that stays. It also starts one that
// ended by itself, under the same rules, since nobody else does. One that an
// administrator stopped stays down until the broker asks for another start.
func (d *decision) slurmd() (Action, bool) {
	s := d.o.Slurmd
	if d.awaitedWithoutBroker() {
		return d.try(Action{Kind: StopSlurmd, Reason: "slurmctld waits for a boot and the broker is away"})
	}
	if d.desired == nil {
		if !d.noBroker() || s.Running || s.Mark == Started && !d.startsAgain() || !d.o.State.Equal(d.stateWanted()) {
			return Action{}, false
		}
		return d.try(Action{Kind: StartSlurmd, Start: s.Start, Claim: d.claims(true), Reason: "the broker is silent and the kernel is stock"})
	}
	if !d.slurmdMayRun() {
		if !s.Running || d.desired.SlurmdAllowed && !d.o.State.Equal(d.stateWanted()) {
			return Action{}, false
		}
		return d.try(Action{Kind: StopSlurmd, Reason: "the broker does not allow it here"})
	}
	if d.desired.SlurmdStart <= s.Start && (s.Running || s.Mark == Started && !d.startsAgain()) {
		return Action{}, false
	}
	if d.now.Before(d.desired.SlurmdNotBefore) {
		d.wakeAt(d.desired.SlurmdNotBefore)
		return Action{}, false
	}
	if s.Running {
		return d.try(Action{Kind: StopSlurmd, Reason: "restart requested"})
	}
	return d.try(Action{Kind: StartSlurmd, Start: max(d.desired.SlurmdStart, s.Start), Claim: d.claims(!d.desired.NoBootAwaited)})
}

// claims reports whether a slurmd that starts now tells Slurm that the node has
// booted. The first one in a boot does so after a kexec, since nothing else tells
// Slurm; a boot by firmware it sees by itself. Later ones do where Slurm awaits it.
func (d *decision) claims(awaited bool) bool {
	if d.o.Slurmd.Mark == Untouched {
		return d.o.Boot.Token != "" && (d.desired == nil || !d.desired.BootKnown)
	}
	if d.o.Slurmd.Died && !d.o.Fresh {
		// Jobs may run on the node, and what the broker sent last is old: a boot
		// that Slurm does not wait for would end them.
		return d.o.Awaited
	}
	// What slurmctld has answered while the broker is away is newer than what the
	// broker has sent.
	return awaited || d.o.Awaited
}
