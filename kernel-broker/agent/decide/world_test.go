// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func kernel(profile, build string) kb.Kernel {
	return kb.Kernel{
		Profile: profile, Version: 1, ImageDigest: digest, ImageSize: 1, BuildID: build, Release: "6.1", Architecture: "x86_64",
		Drivers: []string{"virtio_net"},
	}
}

func token(n int) string { return fmt.Sprintf("%032x", n) }

var (
	start = time.Unix(1_790_000_000, 0)
	stock = kernel("stock", "00aa00aa00aa00aa")
	fast  = kernel("mitgcm", "5f0c5f0c5f0c5f0c")
)

// world is a node and its broker in the plainest form. What is true is kept
// apart from what the agent believes, and the rules are checked on the truth.
type world struct {
	t       *rapid.T
	now     time.Time
	desired *kb.DesiredState // the broker's newest, as the agent has it
	o       Observed
	// The truth: what was fetched last, what the kernel holds, and what the
	// broker was last told of over the stream that is up.
	fetched   *Target
	holds     *Target
	announced uint64
	trace     []string
}

func newWorld(t *rapid.T, bootToken string) *world {
	w := &world{t: t, now: start}
	w.boot(bootToken, stock.BuildID)
	return w
}

// boot is the state of an agent that just came up.
func (w *world) boot(bootToken, build string) {
	w.holds, w.announced, w.desired = nil, 0, nil
	w.o = Observed{
		Boot:      kb.Boot{BootID: "b" + token(len(w.trace)), BuildID: build, Release: "6.1", Token: bootToken},
		Inventory: kb.Inventory{Architecture: "x86_64", MemoryMiB: 512, Drivers: []string{"virtio_net"}},
		GraceEnds: w.now.Add(30 * time.Second),
	}
	w.trace = append(w.trace, "boot "+bootToken)
}

// restart is an agent killed and started again in the same boot.
func (w *world) restart() {
	o := w.o
	w.desired, w.announced = nil, 0
	w.o = Observed{
		Boot: o.Boot, Inventory: o.Inventory, Slurmd: o.Slurmd, State: o.State, Leftover: w.holds != nil,
		GraceEnds: w.now.Add(30 * time.Second),
	}
	w.trace = append(w.trace, "restart")
}

func (w *world) disconnect() {
	w.o.Fresh, w.announced = false, 0
	if w.o.Switch.Progress == kb.ProgressBooting {
		w.o.Switch.Progress = kb.ProgressLoaded
	}
	w.trace = append(w.trace, "disconnect")
}

func (w *world) receive(desired kb.DesiredState) {
	w.desired, w.o.Fresh = &desired, true
	w.trace = append(w.trace, fmt.Sprintf("desired %+v", desired))
}

// step asks once, checks the rules and does what was said, well or not.
func (w *world) step(works func(Kind) bool) Action {
	a := Next(w.desired, w.o, w.now)
	w.trace = append(w.trace, fmt.Sprintf("%v %v", a.Kind, a.Reason))
	w.rules(a)
	if a.Kind == Wait {
		return a
	}
	if a.Kind == Fail {
		w.giveUp(a, a.Fault, a.Reason)
		return a
	}
	if !works(a.Kind) {
		w.o.Hold[a.Kind] = w.now.Add(time.Second)
		if a.Kind == Load || a.Kind == Execute {
			w.giveUp(a, kb.FailureNode, "did not work")
		}
		return a
	}
	w.o.Hold[a.Kind] = time.Time{}
	w.do(a)
	return a
}

func (w *world) giveUp(a Action, fault kb.FailureKind, cause string) {
	w.o.Leftover = w.holds != nil
	w.o.Switch = Switch{Progress: kb.ProgressFailed, Target: a.Target, Generation: a.Generation, Fault: fault, Cause: cause}
}

func (w *world) do(a Action) {
	s := &w.o.Switch
	switch a.Kind {
	case Unload:
		w.holds, w.o.Leftover = nil, false
		if s.Progress == kb.ProgressLoaded || s.Progress == kb.ProgressBooting {
			*s = Switch{}
		}
	case WriteState:
		w.o.State = a.State
	case Fetch:
		target := a.Target
		w.fetched = &target
		w.o.Leftover = w.o.Leftover || s.Progress == kb.ProgressLoaded || s.Progress == kb.ProgressBooting
		*s = Switch{Progress: kb.ProgressLoading, Target: a.Target}
	case Load:
		target := a.Target
		w.holds, w.o.Leftover, s.Progress = &target, false, kb.ProgressLoaded
	case StopSlurmd:
		w.o.Slurmd.Running, w.o.Slurmd.Mark, w.o.Slurmd.Died = false, Stopped, false
	case StartSlurmd:
		w.o.Slurmd = Slurmd{Running: true, Mark: Started, Start: a.Start}
	case Announce:
		w.announced, s.Generation, s.Progress = a.Generation, a.Generation, kb.ProgressBooting
	case Execute:
		w.boot(a.Target.Token, a.Target.Kernel.BuildID)
	}
}

// rules are those of the package comment, on the truth.
func (w *world) rules(a Action) {
	fail := func(format string, args ...any) {
		w.t.Fatalf("%s\nstate: %+v\nwish: %+v\ntrace:\n%s", fmt.Sprintf(format, args...), w.o, w.desired, lines(w.trace))
	}
	switch a.Kind {
	case Load:
		if w.fetched == nil || !w.fetched.Same(a.Target) {
			fail("loads what was not fetched")
		}
	case Execute:
		switch {
		case w.desired == nil || w.desired.Kernel == nil || !w.o.Fresh:
			fail("boots without a desired state that stands")
		case w.desired.LoadOnly:
			fail("boots what it is only to load")
		case w.holds == nil || !w.holds.Same(Target{Kernel: *w.desired.Kernel, Token: w.desired.Token}):
			fail("boots what is not loaded: %+v", w.holds)
		case w.o.Slurmd.Running:
			fail("boots under a running slurmd")
		case w.announced != w.desired.Generation:
			fail("boots unannounced")
		case w.desired.Token == w.o.Boot.Token:
			fail("boots the same boot again")
		case !slices.Contains(w.desired.Kernel.Drivers, "virtio_net"):
			fail("boots a kernel that does not fit")
		}
	case StartSlurmd:
		switch {
		case w.o.Slurmd.Running:
			fail("starts a slurmd that runs")
		case w.desired == nil && (w.o.Boot.Token != "" || w.now.Before(w.o.GraceEnds)):
			fail("starts slurmd without the broker's word")
		case w.desired != nil && !w.desired.SlurmdAllowed:
			fail("starts slurmd against the broker's word")
		case w.desired != nil && w.o.Boot.Token != "" && !w.desired.Attested:
			fail("starts slurmd on an unproven kernel")
		case w.desired != nil && w.now.Before(w.desired.SlurmdNotBefore):
			fail("starts slurmd too early")
		case w.o.Slurmd.Mark == Started && !w.o.Slurmd.Died && (w.desired == nil || w.desired.SlurmdStart <= w.o.Slurmd.Start):
			fail("starts a slurmd that an administrator stopped")
		case w.o.Slurmd.Died && a.Claim && !w.o.Awaited && (!w.o.Fresh || w.desired.NoBootAwaited):
			fail("claims a boot that Slurm does not wait for")
		case w.o.State.BootID != w.o.Boot.BootID:
			fail("starts slurmd without a node state")
		case w.desired != nil && (w.o.State.Attested != w.desired.Attested || !slices.Equal(w.o.State.Jobs, w.desired.Jobs)):
			fail("starts slurmd with an old node state")
		}
	case WriteState:
		w.stateRules(a.State, fail)
	case StopSlurmd:
		if w.desired == nil {
			fail("stops slurmd while the broker is silent")
		}
	}
}

func (w *world) stateRules(s nodestate.State, fail func(string, ...any)) {
	switch {
	case s.BootID != w.o.Boot.BootID || s.BuildID != w.o.Boot.BuildID:
		fail("writes a node state of another boot")
	case s.Attested && (w.desired == nil || !w.desired.Attested):
		fail("vouches for itself")
	case s.Profile != "" && !s.Attested && w.o.Boot.Token != "":
		fail("names an unproven kernel")
	}
}

func lines(trace []string) string {
	text := ""
	for _, t := range trace[max(0, len(trace)-40):] {
		text += t + "\n"
	}
	return text
}
