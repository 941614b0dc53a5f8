// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

// Next picks what to do. A nil wish means that the broker has not spoken since
// the agent started.
func Next(wish *Wish, o Observed, now time.Time) Action {
	j := judge{wish: wish, o: o, now: now}
	for _, ask := range []func() (Action, bool){j.unload, j.state, j.reboot, j.boot, j.slurmd} {
		if action, ok := ask(); ok {
			return action
		}
	}
	return Action{Kind: Wait, Wake: j.wake}
}

// Wanted returns the target that the wish asks for and that does not run.
func Wanted(wish *Wish, boot kb.Boot) (Target, bool) {
	if wish == nil || wish.Kernel == nil {
		return Target{}, false
	}
	t := Target{Kernel: *wish.Kernel, Token: wish.Token, Envelope: wish.Envelope}
	if wish.Token == boot.Token {
		// Booted with this token already. That it is the wrong kernel then
		// is a failure, see judge.refusal; with no token at all it is a
		// wish that cannot be met.
		return t, wish.Kernel.BuildID != boot.BuildID
	}
	return t, true
}

// Ready reports whether slurmd may be started by whoever starts it.
func Ready(wish *Wish, o Observed, now time.Time) bool {
	j := judge{wish: wish, o: o, now: now}
	if wish == nil {
		return j.alone() && o.State.Equal(j.stateWanted())
	}
	_, switching := j.switching()
	return !switching && j.slurmdMayRun() && !now.Before(wish.SlurmdNotBefore)
}

// judge holds one question; wake collects the earliest time to ask again.
type judge struct {
	wish *Wish
	o    Observed
	now  time.Time
	wake time.Time
}

func (j *judge) wakeAt(t time.Time) {
	if j.wake.IsZero() || t.Before(j.wake) {
		j.wake = t
	}
}

// try returns the action unless it has to wait after a failure.
func (j *judge) try(a Action) (Action, bool) {
	if hold := j.o.Hold[a.Kind]; j.now.Before(hold) {
		j.wakeAt(hold)
		return Action{}, false
	}
	return a, true
}

// unload takes out what no wish stands behind any more. When that cannot be
// done the rest goes on: an image that nobody executes does no harm.
func (j *judge) unload() (Action, bool) {
	s := j.o.Switch
	if j.o.Leftover {
		return j.try(Action{Kind: Unload, Reason: "nobody knows what is loaded"})
	}
	if s.Stage != Loaded && s.Stage != Announced {
		return Action{}, false
	}
	if target, wanted := Wanted(j.wish, j.o.Boot); !wanted || !target.Same(s.Target) {
		return j.try(Action{Kind: Unload, Reason: "no longer wanted", Target: s.Target})
	}
	return Action{}, false
}

// state keeps the gate's file in step with the broker's word.
func (j *judge) state() (Action, bool) {
	want := j.stateWanted()
	if j.o.State.Equal(want) {
		return Action{}, false
	}
	return j.try(Action{Kind: WriteState, State: want})
}

func (j *judge) stateWanted() nodestate.State {
	b := j.o.Boot
	want := nodestate.State{BootID: b.BootID, BuildID: b.BuildID, Release: b.Release}
	if j.wish != nil {
		want.Jobs, want.Lost = slices.Clone(j.wish.Jobs), slices.Clone(j.wish.Lost)
		want.Attested = j.wish.Attested
		// Nobody's word is worth anything on an unproven kernel that came
		// with a token.
		if j.wish.Attested || b.Token == "" {
			want.Profile, want.Version = j.wish.Running.Profile, j.wish.Running.Version
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
func (j *judge) alone() bool {
	if j.wish != nil || j.o.Boot.Token != "" {
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
func (j *judge) reboot() (Action, bool) {
	if j.wish == nil || !j.wish.Reboot || !j.o.Fresh {
		return Action{}, false
	}
	return j.try(Action{Kind: Reboot, Generation: j.wish.Generation, Reason: "an administrator asked Slurm for it"})
}

// switching returns the target to work towards; none when it was given up.
func (j *judge) switching() (Target, bool) {
	target, wanted := Wanted(j.wish, j.o.Boot)
	s := j.o.Switch
	if wanted && s.Stage == Failed && s.Generation == j.wish.Generation {
		return Target{}, false
	}
	return target, wanted
}

// boot takes the switch one step further. While a step has to wait, nothing
// else is done either: slurmd is about to be stopped anyway.
func (j *judge) boot() (Action, bool) {
	target, ok := j.switching()
	if !ok {
		return Action{}, false
	}
	if fault, err := j.refusal(target); err != nil {
		return j.giveUp(fault, err)
	}
	stage := j.o.Switch.Stage
	if stage == Failed || !target.Same(j.o.Switch.Target) {
		stage = Idle
	}
	action := Action{Target: target, Generation: j.wish.Generation}
	switch {
	case j.mustStopNow():
		action.Kind, action.Reason = StopSlurmd, "the broker does not allow it here"
	case !j.o.Fresh:
		return j.pause()
	case stage == Idle:
		action.Kind = Fetch
	case stage == Fetched:
		action.Kind = Load
	case j.o.Slurmd.Running:
		action.Kind, action.Reason = StopSlurmd, "the node boots another kernel"
	case stage == Loaded || j.o.Switch.Generation != j.wish.Generation:
		action.Kind = Announce
	default:
		action.Kind = Execute
	}
	if action, ok := j.try(action); ok {
		return action, true
	}
	return j.pause()
}

func (j *judge) pause() (Action, bool) { return Action{Kind: Wait, Wake: j.wake}, true }

// refusal says why the target cannot be booted here at all.
func (j *judge) refusal(target Target) (Fault, error) {
	if err := target.Kernel.Validate(); err != nil {
		return KernelFault, err
	}
	if target.Token == j.o.Boot.Token && target.Token != "" {
		return KernelFault, fmt.Errorf("kernel %q: build id %s came up, %s was expected",
			target.Kernel.Ref(), j.o.Boot.BuildID, target.Kernel.BuildID)
	}
	if err := kb.ValidateToken(target.Token); err != nil {
		return NodeFault, err
	}
	if err := target.Kernel.CheckFits(j.o.Inventory); err != nil {
		return KernelFault, err
	}
	return NoFault, nil
}

func (j *judge) giveUp(fault Fault, err error) (Action, bool) {
	target, _ := j.switching()
	return Action{Kind: Fail, Target: target, Generation: j.wish.Generation, Fault: fault, Reason: err.Error()}, true
}

// mustStopNow: slurmd runs on a kernel that it may not run on. A slurmd that
// only makes way for the next kernel may stay until that kernel is loaded.
func (j *judge) mustStopNow() bool {
	return j.o.Slurmd.Running && !j.wish.SlurmdAllowed && !j.wish.Attested
}

func (j *judge) slurmdMayRun() bool {
	proven := j.wish.Attested || j.o.Boot.Token == ""
	return j.wish.SlurmdAllowed && proven && j.o.State.Equal(j.stateWanted())
}

// stranded: a job that was to have another kernel was given this node while the
// broker was away, and has left. Plain jobs cannot have the node before its
// slurmd, started anew, claims the boot that slurmctld waits for. On another
// kernel than stock there is nothing to hurry for: plain jobs may not have it.
func (j *judge) stranded() bool {
	if !j.o.Awaited || j.o.Fresh || !j.o.Slurmd.Running || j.o.State.Profile != kb.StockProfile {
		return false
	}
	return j.wish != nil && j.slurmdMayRun() || j.alone()
}

// slurmd starts and stops slurmd on a kernel that stays. One that died by
// itself is reported and not raised: that is the broker's to decide.
func (j *judge) slurmd() (Action, bool) {
	s := j.o.Slurmd
	if j.stranded() {
		return j.try(Action{Kind: StopSlurmd, Reason: "slurmctld waits for a boot and the broker is away"})
	}
	if j.wish == nil {
		if !j.alone() || s.Running || s.Mark == Started || !j.o.State.Equal(j.stateWanted()) {
			return Action{}, false
		}
		return j.try(Action{Kind: StartSlurmd, Start: s.Start, Claim: j.claims(true), Reason: "the broker is silent and the kernel is stock"})
	}
	if !j.slurmdMayRun() {
		if !s.Running || j.wish.SlurmdAllowed && !j.o.State.Equal(j.stateWanted()) {
			return Action{}, false
		}
		return j.try(Action{Kind: StopSlurmd, Reason: "the broker does not allow it here"})
	}
	if j.wish.SlurmdStart <= s.Start && (s.Running || s.Mark == Started) {
		return Action{}, false
	}
	if j.now.Before(j.wish.SlurmdNotBefore) {
		j.wakeAt(j.wish.SlurmdNotBefore)
		return Action{}, false
	}
	if s.Running {
		return j.try(Action{Kind: StopSlurmd, Reason: "to be started anew"})
	}
	return j.try(Action{Kind: StartSlurmd, Start: max(j.wish.SlurmdStart, s.Start), Claim: j.claims(!j.wish.NoBootAwaited)})
}

// claims: whether a slurmd that starts now says that the node has booted. The
// first one in a boot does so after a kexec, of which nobody else tells Slurm;
// a boot by firmware it sees by itself. Later ones do where Slurm awaits it.
func (j *judge) claims(awaited bool) bool {
	if j.o.Slurmd.Mark == Untouched {
		return j.o.Boot.Token != "" && (j.wish == nil || !j.wish.BootKnown)
	}
	// What slurmctld itself has said while the broker is away is newer than the
	// broker's last word.
	return awaited || j.o.Awaited
}
