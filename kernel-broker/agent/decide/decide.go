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
	j := decision{desired: desired, o: o, now: now}
	for _, ask := range []func() (Action, bool){j.unload, j.state, j.reboot, j.boot, j.slurmd} {
		if action, ok := ask(); ok {
			return action
		}
	}
	return Action{Kind: Wait, Wake: j.wake}
}

// Wanted returns the target of the desired state that does not run yet.
func Wanted(desired *kb.DesiredState, boot kb.Boot) (Target, bool) {
	if desired == nil || desired.Kernel == nil {
		return Target{}, false
	}
	t := Target{Kernel: *desired.Kernel, Token: desired.Token, Envelope: desired.Envelope}
	if desired.Token == boot.Token {
		// Booted with this token already. That it is the wrong kernel then
		// is a failure, see judge.refusal; with no token at all it is a
		// desired state that cannot be met.
		return t, desired.Kernel.BuildID != boot.BuildID
	}
	return t, true
}

// Ready reports whether slurmd may be started by whoever starts it.
func Ready(desired *kb.DesiredState, o Observed, now time.Time) bool {
	j := decision{desired: desired, o: o, now: now}
	if desired == nil {
		return j.alone() && o.State.Equal(j.stateWanted())
	}
	_, switching := j.switching()
	return !switching && j.slurmdMayRun() && !now.Before(desired.SlurmdNotBefore)
}

// decision holds one question; wake collects the earliest time to ask again.
type decision struct {
	desired *kb.DesiredState
	o       Observed
	now     time.Time
	wake    time.Time
}

func (j *decision) wakeAt(t time.Time) {
	if j.wake.IsZero() || t.Before(j.wake) {
		j.wake = t
	}
}

// try returns the action unless it has to wait after a failure.
func (j *decision) try(a Action) (Action, bool) {
	if hold := j.o.Hold[a.Kind]; j.now.Before(hold) {
		j.wakeAt(hold)
		return Action{}, false
	}
	return a, true
}

// unload takes out what the desired state no longer names. When that cannot be
// done the rest goes on: an image that nobody executes does no harm.
func (j *decision) unload() (Action, bool) {
	s := j.o.Switch
	if j.o.Leftover {
		return j.try(Action{Kind: Unload, Reason: "nobody knows what is loaded"})
	}
	if s.Progress != kb.ProgressLoaded && s.Progress != kb.ProgressBooting {
		return Action{}, false
	}
	if target, wanted := Wanted(j.desired, j.o.Boot); !wanted || !target.Same(s.Target) {
		return j.try(Action{Kind: Unload, Reason: "no longer wanted", Target: s.Target})
	}
	return Action{}, false
}

// state keeps the gate's file in step with the broker's word.
func (j *decision) state() (Action, bool) {
	want := j.stateWanted()
	if j.o.State.Equal(want) {
		return Action{}, false
	}
	return j.try(Action{Kind: WriteState, State: want})
}

func (j *decision) stateWanted() nodestate.State {
	b := j.o.Boot
	want := nodestate.State{BootID: b.BootID, BuildID: b.BuildID, Release: b.Release}
	if j.desired != nil {
		want.Jobs, want.Lost = slices.Clone(j.desired.Jobs), slices.Clone(j.desired.Lost)
		want.Attested = j.desired.Attested
		// Nobody's word is worth anything on an unproven kernel that came
		// with a token.
		if j.desired.Attested || b.Token == "" {
			want.Profile, want.Version = j.desired.Running.Profile, j.desired.Running.Version
		}
		return want
	}
	mine := j.o.State.BootID == b.BootID && j.o.State.BuildID == b.BuildID
	if mine && (j.o.State.Profile != "" || !j.alone()) {
		return j.o.State // the last word of this boot stands
	}
	if j.alone() {
		want.Profile = kb.StockProfile
	}
	return want
}

// alone reports whether the node helps itself: the broker has not spoken for
// the time of grace, and firmware booted what runs, so it is the stock kernel.
func (j *decision) alone() bool {
	if j.desired != nil || j.o.Boot.Token != "" {
		return false
	}
	if j.now.Before(j.o.GraceEnds) {
		j.wakeAt(j.o.GraceEnds)
		return false
	}
	return true
}

// reboot has the machine boot by its firmware. A command that was taken is not
// given again for a while: the machine ends what runs on it first.
func (j *decision) reboot() (Action, bool) {
	if j.desired == nil || !j.desired.Reboot || !j.o.Fresh {
		return Action{}, false
	}
	return j.try(Action{Kind: Reboot, Generation: j.desired.Generation, Reason: "an administrator asked Slurm for it"})
}

// switching returns the target to work towards; none when it was given up.
func (j *decision) switching() (Target, bool) {
	target, wanted := Wanted(j.desired, j.o.Boot)
	s := j.o.Switch
	if wanted && s.Progress == kb.ProgressFailed && s.Generation == j.desired.Generation {
		return Target{}, false
	}
	return target, wanted
}

// boot takes the switch one step further. While a step has to wait, nothing
// else is done either: slurmd is about to be stopped anyway.
func (j *decision) boot() (Action, bool) {
	target, ok := j.switching()
	if !ok {
		return Action{}, false
	}
	if fault, err := j.refusal(target); err != nil {
		return j.giveUp(fault, err)
	}
	stage := j.o.Switch.Progress
	if stage == kb.ProgressFailed || !target.Same(j.o.Switch.Target) {
		stage = kb.ProgressIdle
	}
	action := Action{Target: target, Generation: j.desired.Generation}
	switch {
	case j.mustStopNow():
		action.Kind, action.Reason = StopSlurmd, "the broker does not allow it here"
	case !j.o.Fresh:
		return j.pause()
	case stage == kb.ProgressIdle:
		action.Kind = Fetch
	case stage == kb.ProgressLoading:
		action.Kind = Load
	case j.o.Slurmd.Running:
		action.Kind, action.Reason = StopSlurmd, "the node boots another kernel"
	case stage == kb.ProgressLoaded || j.o.Switch.Generation != j.desired.Generation:
		action.Kind = Announce
	default:
		action.Kind = Execute
	}
	if action, ok := j.try(action); ok {
		return action, true
	}
	return j.pause()
}

func (j *decision) pause() (Action, bool) { return Action{Kind: Wait, Wake: j.wake}, true }

// refusal says why the target cannot be booted here at all.
func (j *decision) refusal(target Target) (kb.FailureKind, error) {
	if err := target.Kernel.Validate(); err != nil {
		return kb.FailureKernel, err
	}
	if target.Token == j.o.Boot.Token && target.Token != "" {
		return kb.FailureKernel, fmt.Errorf("kernel %q: build id %s came up, %s was expected",
			target.Kernel.Ref(), j.o.Boot.BuildID, target.Kernel.BuildID)
	}
	if err := kb.ValidateToken(target.Token); err != nil {
		return kb.FailureNode, err
	}
	if err := target.Kernel.CheckFits(j.o.Inventory); err != nil {
		return kb.FailureKernel, err
	}
	return kb.FailureNone, nil
}

func (j *decision) giveUp(fault kb.FailureKind, err error) (Action, bool) {
	target, _ := j.switching()
	return Action{Kind: Fail, Target: target, Generation: j.desired.Generation, Fault: fault, Reason: err.Error()}, true
}

// mustStopNow: slurmd runs on a kernel that it may not run on. A slurmd that
// only makes way for the next kernel may stay until that kernel is loaded.
func (j *decision) mustStopNow() bool {
	return j.o.Slurmd.Running && !j.desired.SlurmdAllowed && !j.desired.Attested
}

func (j *decision) slurmdMayRun() bool {
	proven := j.desired.Attested || j.o.Boot.Token == ""
	return j.desired.SlurmdAllowed && proven && j.o.State.Equal(j.stateWanted())
}

// awaitedWithoutBroker: a job that was to have another kernel was given this node while the
// broker was away, and has left. Plain jobs cannot have the node before its
// slurmd, started anew, claims the boot that slurmctld waits for. On another
// kernel than stock there is nothing to hurry for: plain jobs may not have it.
func (j *decision) awaitedWithoutBroker() bool {
	if !j.o.Awaited || j.o.Fresh || !j.o.Slurmd.Running || j.o.State.Profile != kb.StockProfile {
		return false
	}
	return j.desired != nil && j.slurmdMayRun() || j.alone()
}

// slurmd starts and stops slurmd on a kernel that stays. One that died by
// itself is reported and not raised: that is the broker's to decide.
func (j *decision) slurmd() (Action, bool) {
	s := j.o.Slurmd
	if j.awaitedWithoutBroker() {
		return j.try(Action{Kind: StopSlurmd, Reason: "slurmctld waits for a boot and the broker is away"})
	}
	if j.desired == nil {
		if !j.alone() || s.Running || s.Mark == Started || !j.o.State.Equal(j.stateWanted()) {
			return Action{}, false
		}
		return j.try(Action{Kind: StartSlurmd, Start: s.Start, Claim: j.claims(true), Reason: "the broker is silent and the kernel is stock"})
	}
	if !j.slurmdMayRun() {
		if !s.Running || j.desired.SlurmdAllowed && !j.o.State.Equal(j.stateWanted()) {
			return Action{}, false
		}
		return j.try(Action{Kind: StopSlurmd, Reason: "the broker does not allow it here"})
	}
	if j.desired.SlurmdStart <= s.Start && (s.Running || s.Mark == Started) {
		return Action{}, false
	}
	if j.now.Before(j.desired.SlurmdNotBefore) {
		j.wakeAt(j.desired.SlurmdNotBefore)
		return Action{}, false
	}
	if s.Running {
		return j.try(Action{Kind: StopSlurmd, Reason: "to be started anew"})
	}
	return j.try(Action{Kind: StartSlurmd, Start: max(j.desired.SlurmdStart, s.Start), Claim: j.claims(!j.desired.NoBootAwaited)})
}

// claims: whether a slurmd that starts now says that the node has booted. The
// first one in a boot does so after a kexec, of which nobody else tells Slurm;
// a boot by firmware it sees by itself. Later ones do where Slurm awaits it.
func (j *decision) claims(awaited bool) bool {
	if j.o.Slurmd.Mark == Untouched {
		return j.o.Boot.Token != "" && (j.desired == nil || !j.desired.BootKnown)
	}
	// What slurmctld itself has said while the broker is away is newer than the
	// broker's last word.
	return awaited || j.o.Awaited
}
