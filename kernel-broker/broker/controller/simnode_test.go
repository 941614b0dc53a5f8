// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

// simNode is a machine with its agent. The agent judges by package decide, as
// the real one does; what it does takes simulated time.
type simNode struct {
	w    *simWorld
	name string
	// The machine.
	kernel  kb.Kernel
	boot    kb.Boot
	upAt    time.Time  // zero when it is up
	next    *kb.Kernel // what comes up at upAt
	token   string     // on its command line
	hung    bool       // nothing but a reset helps
	loaded  bool       // an image is loaded
	state   nodestate.State
	slurmd  decide.Slurmd
	regAt   time.Time // when slurmd registers
	claims  bool      // with -b
	boots   int
	ending  uint32 // the job whose epilog waits
	agent   *decide.Observed
	agentAt time.Time // when a dead agent is started again
	// The agent's own.
	wish     *kb.DesiredState
	busy     *decide.Action
	busyTill time.Time
	sentKey  string
	sentSlur string
	session  *simSession
	dialAt   time.Time
}

func newSimNode(w *simWorld, name string) *simNode {
	n := &simNode{w: w, name: name}
	n.comeUp(simKernel(kb.StockProfile), "")
	return n
}

func (n *simNode) up() bool { return n.upAt.IsZero() && !n.hung }

func (n *simNode) inventory() kb.Inventory {
	return kb.Inventory{Architecture: "x86_64", MemoryMiB: 1024}
}

// comeUp boots a kernel; everything volatile is gone.
func (n *simNode) comeUp(kernel kb.Kernel, token string) {
	n.boots++
	n.kernel, n.upAt, n.next, n.hung, n.loaded = kernel, time.Time{}, nil, false, false
	n.boot = kb.Boot{BootID: fmt.Sprintf("boot-%s-%d", n.name, n.boots), BuildID: kernel.BuildID, Release: kernel.Release,
		Token: token, BootedAt: n.w.now}
	n.state, n.slurmd, n.regAt, n.ending = nodestate.State{}, decide.Slurmd{}, time.Time{}, 0
	n.startAgent()
	n.w.tell("%s is up on %s", n.name, kernel.Ref())
}

func (n *simNode) startAgent() {
	n.agent = &decide.Observed{Boot: n.boot, Inventory: n.inventory(), State: n.state, Leftover: n.loaded,
		GraceEnds: n.w.now.Add(time.Minute)}
	n.agentAt, n.wish, n.busy, n.sentKey, n.sentSlur = time.Time{}, nil, nil, "", ""
	n.dialAt = n.w.now.Add(n.w.between(0, 400*time.Millisecond))
}

// goDown ends all that runs; kernel comes up after a while, nil for never.
func (n *simNode) goDown(kernel *kb.Kernel, token string, after time.Duration) {
	n.hangUp()
	n.agent, n.busy, n.wish = nil, nil, nil
	n.slurmd = decide.Slurmd{}
	n.next, n.token, n.upAt, n.hung = kernel, token, n.w.now.Add(after), kernel == nil
}

// powerLost is a reset button or a power cut: firmware boots stock. One that
// keeps memory boots what ran, with the same command line.
func (n *simNode) powerLost() {
	n.w.tell("%s loses its power", n.name)
	if n.up() && n.w.strikes(0.2) {
		kernel := n.kernel
		n.goDown(&kernel, n.boot.Token, n.w.between(time.Second, 4*time.Second))
		return
	}
	stock := simKernel(kb.StockProfile)
	n.goDown(&stock, "", n.w.between(4*time.Second, 9*time.Second))
}

func (n *simNode) reset() {
	if n.w.strikes(0.2) {
		n.w.tell("%s ignores its reset", n.name)
		return
	}
	n.powerLost()
}

func (n *simNode) killAgent() {
	n.w.tell("the agent of %s is killed", n.name)
	n.hangUp()
	n.agent, n.busy, n.wish = nil, nil, nil
	n.agentAt = n.w.now.Add(n.w.between(300*time.Millisecond, 4*time.Second))
}

func (n *simNode) hangUp() {
	if n.session != nil {
		n.w.broker.gone(n.session)
		n.session = nil
	}
}

func (n *simNode) step() {
	if n.hung {
		return
	}
	if !n.upAt.IsZero() {
		if n.w.now.Before(n.upAt) {
			return
		}
		n.comeUp(*n.next, n.token)
	}
	if n.slurmd.Running && !n.regAt.IsZero() && n.w.now.After(n.regAt) {
		n.regAt = time.Time{}
		n.w.slurm.register(n.name, n.claims)
	}
	switch {
	case n.w.strikes(0.0002):
		n.powerLost()
		return
	case n.agent != nil && n.w.strikes(0.0004):
		n.killAgent()
		return
	case n.session != nil && n.w.strikes(0.0005):
		n.w.tell("the stream of %s breaks", n.name)
		n.hangUp()
		n.dialAt = n.w.now.Add(n.w.between(100*time.Millisecond, 5*time.Second))
	}
	if n.agent == nil {
		if n.w.now.After(n.agentAt) {
			n.startAgent()
		}
		return
	}
	n.stepAgent()
}

func (n *simNode) stepAgent() {
	if n.session == nil && n.w.now.After(n.dialAt) {
		n.session = n.w.broker.attach(n)
		if n.session == nil {
			n.dialAt = n.w.now.Add(n.w.between(100*time.Millisecond, 2*time.Second))
		} else {
			n.sentKey, n.sentSlur = "", ""
		}
	}
	o := n.agent
	if n.session == nil || !n.session.fresh {
		o.Fresh = false
		if o.Switch.Progress == kb.ProgressBooting && (n.busy == nil || n.busy.Kind != decide.Execute) {
			o.Switch.Progress = kb.ProgressLoaded
		}
	}
	n.hear()
	o.Slurmd = n.slurmd
	if n.busy != nil {
		if n.w.now.Before(n.busyTill) {
			return
		}
		n.finish()
	}
	if n.agent == nil {
		return
	}
	n.next1()
	n.report()
}

// hear takes in what the broker sent.
func (n *simNode) hear() {
	if n.session == nil {
		return
	}
	for len(n.session.out) > 0 && !n.w.now.Before(n.session.out[0].at) {
		m := n.session.out[0].message
		n.session.out = n.session.out[1:]
		if m.Desired != nil {
			d := m.Desired
			n.wish = &kb.DesiredState{Generation: d.Generation, Kernel: d.Kernel, Token: d.Token, Attested: d.Attested, Running: d.Running,
				Jobs: d.Jobs, SlurmdAllowed: d.SlurmdAllowed, SlurmdStart: d.SlurmdStart, SlurmdNotBefore: d.SlurmdNotBefore,
				NoBootAwaited: d.NoBootAwaited, Reboot: d.Reboot}
			n.session.fresh, n.agent.Fresh = true, true
		}
		if m.Answer != nil {
			n.ending = 0
		}
	}
}

// next1 begins the next action.
func (n *simNode) next1() {
	o := n.agent
	a := decide.Next(n.wish, *o, n.w.now)
	if a.Kind == decide.Fail {
		o.Switch = decide.Switch{Progress: kb.ProgressFailed, Target: a.Target, Generation: a.Generation, Fault: a.Fault, Cause: a.Reason}
		o.Leftover = n.loaded
		n.report()
		a = decide.Next(n.wish, *o, n.w.now)
	}
	if a.Kind == decide.Wait || a.Kind == decide.Fail {
		return
	}
	n.busy = &a
	last := map[decide.Kind]time.Duration{decide.Fetch: 1500 * time.Millisecond, decide.Load: 500 * time.Millisecond,
		decide.Announce: 300 * time.Millisecond, decide.StopSlurmd: 300 * time.Millisecond}[a.Kind]
	if n.w.strikes(0.01) && a.Kind == decide.Fetch {
		last = 40 * time.Second // a slow network
	}
	n.busyTill = n.w.now.Add(n.w.between(0, last))
}

// finish does the action whose time has come.
func (n *simNode) finish() {
	a, o := *n.busy, n.agent
	n.busy = nil
	switch a.Kind {
	case decide.Unload:
		n.loaded, o.Leftover = false, false
		if o.Switch.Progress == kb.ProgressLoaded || o.Switch.Progress == kb.ProgressBooting {
			o.Switch = decide.Switch{}
		}
	case decide.WriteState:
		n.state, o.State = a.State, a.State
	case decide.Fetch, decide.Load:
		if target, wanted := decide.Wanted(n.wish, n.boot); !wanted || !target.Same(a.Target) {
			return
		}
		n.prepare(a)
	case decide.StopSlurmd:
		n.slurmd = decide.Slurmd{Mark: decide.Stopped, Start: n.slurmd.Start}
		n.regAt = time.Time{}
	case decide.StartSlurmd:
		n.startSlurmd(a)
	case decide.Announce:
		if n.session != nil && n.session.fresh && n.w.broker.hear(n.session, kb.SwitchReport{Generation: a.Generation, Progress: kb.ProgressBooting}) {
			o.Switch.Progress, o.Switch.Generation = kb.ProgressBooting, a.Generation
		}
	case decide.Reboot:
		if o.Fresh && n.wish.Reboot && n.wish.Generation == a.Generation {
			n.reboot()
			if n.agent == nil {
				return
			}
		}
	case decide.Execute:
		target, wanted := decide.Wanted(n.wish, n.boot)
		if o.Fresh && n.wish.Generation == a.Generation && wanted && target.Same(a.Target) {
			n.kexec(a.Target)
		}
	}
	o.Slurmd = n.slurmd
}

func (n *simNode) prepare(a decide.Action) {
	o := n.agent
	if n.w.strikes(0.01) || n.w.noStock && a.Target.Kernel.Ref().IsStock() {
		fault := kb.FailureNode
		if n.w.chance(0.3) {
			fault = kb.FailureKernel
		}
		o.Switch = decide.Switch{Progress: kb.ProgressFailed, Target: a.Target, Generation: n.wish.Generation, Fault: fault, Cause: "it does not load"}
		n.w.tell("%s cannot load %s", n.name, a.Target.Kernel.Ref())
		return
	}
	if a.Kind == decide.Fetch {
		o.Switch = decide.Switch{Target: a.Target, Progress: kb.ProgressLoading}
		return
	}
	n.loaded, o.Leftover = true, false
	o.Switch.Progress = kb.ProgressLoaded
}

func (n *simNode) startSlurmd(a decide.Action) {
	if n.wish != nil && !n.wish.SlurmdAllowed {
		return // overtaken by a newer wish while it began
	}
	n.claims = a.Claim
	n.slurmd = decide.Slurmd{Running: true, Mark: decide.Started, Start: a.Start}
	n.regAt = n.w.now.Add(n.w.between(100*time.Millisecond, 600*time.Millisecond))
}

// reboot is the machine's own, as the broker asked for it.
func (n *simNode) reboot() {
	o := n.agent
	switch {
	case n.w.noReboot:
		o.Hold[decide.Reboot] = n.w.now.Add(10 * time.Second)
		n.w.broker.hear(n.session, kb.SwitchReport{Generation: n.wish.Generation, Progress: kb.ProgressFailed, Kind: kb.FailureNode, Detail: "no reboot"})
		n.w.tell("%s cannot reboot", n.name)
	case n.w.strikes(0.1):
		n.w.tell("%s hangs in its reboot", n.name)
		n.goDown(nil, "", 0)
	default:
		n.w.tell("%s reboots", n.name)
		stock := simKernel(kb.StockProfile)
		n.goDown(&stock, "", n.w.between(4*time.Second, 12*time.Second))
	}
}

// kexec boots what is loaded.
func (n *simNode) kexec(t decide.Target) {
	s := n.w.slurm.nodes[n.name]
	if s.job != nil && (s.job.state == "RUNNING" || s.job.state == "COMPLETING") && s.job.boots[n.name] == n.boots {
		n.w.fail("%s kexecs to %s under job %d", n.name, t.Kernel.Ref(), s.job.id)
	}
	if n.slurmd.Running {
		n.w.fail("%s kexecs with slurmd running", n.name)
	}
	n.w.kexecs++
	n.w.tell("%s kexecs to %s", n.name, t.Kernel.Ref())
	stock := simKernel(kb.StockProfile)
	switch {
	case n.w.strikes(0.03):
		n.w.tell("%s hangs in its boot", n.name)
		n.goDown(nil, "", 0)
	case t.Kernel.Profile == "broken" || n.w.strikes(0.05):
		n.w.tell("%s panics in its boot", n.name)
		n.goDown(&stock, "", n.w.between(4*time.Second, 12*time.Second))
	default:
		kernel := t.Kernel
		n.goDown(&kernel, t.Token, n.w.between(900*time.Millisecond, 2*time.Second))
	}
}

// report says what the broker does not know yet, as the real agent's does.
func (n *simNode) report() {
	if n.session == nil || !n.agent.Fresh {
		return
	}
	s := n.agent.Switch
	if target, wanted := decide.Wanted(n.wish, n.boot); wanted {
		r := kb.SwitchReport{Generation: n.wish.Generation, Progress: kb.ProgressLoading}
		switch {
		case s.Progress == kb.ProgressFailed && s.Generation == n.wish.Generation:
			r.Progress, r.Kind, r.Detail = kb.ProgressFailed, kb.FailureNode, s.Cause
			if s.Fault == kb.FailureKernel {
				r.Kind = kb.FailureKernel
			}
		case s.Progress == kb.ProgressLoaded && s.Target.Same(target):
			r.Progress = kb.ProgressLoaded
		case s.Progress == kb.ProgressBooting:
			return
		}
		if key := fmt.Sprint(r.Generation, r.Progress); key != n.sentKey && n.w.broker.hear(n.session, r) {
			n.sentKey = key
		}
	}
	if key := fmt.Sprint(n.wish.Generation, n.slurmd); key != n.sentSlur {
		n.sentSlur = key
		n.session.agent.Slurmd = n.session.agent.Slurmd.Said(n.slurmd.Start, n.slurmd.Running, n.w.now)
	}
	if decide.GateKnows(n.wish, *n.agent) {
		n.session.agent.Acknowledged = n.wish.Generation
	}
}

// jobEnding is the epilog asking the agent.
func (n *simNode) jobEnding(job uint32) {
	if n.session != nil && n.agent != nil {
		n.ending = job
		n.session.agent.Ending, n.session.agent.EndingSince = job, n.w.now
	}
}

// gate is the plugin's judgement in the job's prolog on the node.
func (n *simNode) gate(j *simJob) bool {
	s := n.state
	current := s.BootID == n.boot.BootID
	if j.want == "" {
		if !current {
			return n.boot.Token == ""
		}
		return s.BuildID == n.boot.BuildID && s.Profile == kb.StockProfile && (s.Attested || n.boot.Token == "")
	}
	return current && s.BuildID == n.boot.BuildID && s.Profile == j.want && s.Attested && slices.Contains(s.Jobs, j.id)
}
