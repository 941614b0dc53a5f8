// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

func ref(profile string) kb.Ref { return kb.Ref{Profile: profile, Version: 1} }

// question is one; the functions below change one thing of a stock node
// that serves and whose file says so.
type question struct {
	desired *kb.DesiredState
	o       Observed
	now     time.Time
}

func serving() *question {
	q := &question{now: start, desired: &kb.DesiredState{Generation: 5, Attested: true, Running: ref("stock"), SlurmdAllowed: true, SlurmdStart: 1}}
	q.o = Observed{
		Boot:      kb.Boot{BootID: "b", BuildID: stock.BuildID, Release: "6.1"},
		Inventory: kb.Inventory{Architecture: "x86_64", MemoryMiB: 512, Drivers: []string{"virtio_net"}},
		Fresh:     true,
		Slurmd:    Slurmd{Running: true, Mark: Started, Start: 1},
		GraceEnds: start.Add(30 * time.Second),
	}
	q.written()
	return q
}

// written makes the file what the desired asks for.
func (q *question) written() {
	q.o.State = (&decision{desired: q.desired, o: q.o, now: q.now}).stateWanted()
}

func (q *question) wants(k kb.Kernel, token string) {
	q.desired.Kernel, q.desired.Token, q.desired.SlurmdAllowed = &k, token, false
}

func (q *question) at(stage kb.Progress, generation uint64) {
	q.o.Switch = Switch{Progress: stage, Target: Target{Kernel: *q.desired.Kernel, Token: q.desired.Token}, Generation: generation}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*question)
		want Kind
		why  string
	}{
		{"at rest", func(*question) {}, Wait, ""},
		{"another job on the same kernel", func(q *question) { q.desired.Jobs = []uint32{9} }, WriteState, ""},
		{"a new start is asked for", func(q *question) { q.desired.SlurmdStart = 2 }, StopSlurmd, "restart"},
		{"a new start, already down", func(q *question) { q.desired.SlurmdStart, q.o.Slurmd.Running = 2, false }, StartSlurmd, ""},
		{"a new start, too early", func(q *question) {
			q.desired.SlurmdStart, q.desired.SlurmdNotBefore = 2, start.Add(time.Second)
		}, Wait, ""},
		{"an administrator stopped slurmd", func(q *question) { q.o.Slurmd.Running = false }, Wait, ""},
		{"slurmd was stopped for a switch that was called off", func(q *question) {
			q.o.Slurmd = Slurmd{Mark: Stopped, Start: 1}
		}, StartSlurmd, ""},
		{"slurmd ran before the first agent", func(q *question) {
			q.desired.SlurmdStart, q.o.Slurmd = 0, Slurmd{Running: true}
		}, Wait, ""},
		{"slurmd is not allowed", func(q *question) { q.desired.SlurmdAllowed = false }, StopSlurmd, "allow"},
		{"not allowed and down", func(q *question) { q.desired.SlurmdAllowed, q.o.Slurmd.Running = false, false }, Wait, ""},

		{"a kernel is wanted", func(q *question) { q.wants(fast, token(1)) }, Fetch, ""},
		{"fetched", func(q *question) { q.wants(fast, token(1)); q.at(kb.ProgressLoading, 0) }, Load, ""},
		{"loaded under slurmd", func(q *question) { q.wants(fast, token(1)); q.at(kb.ProgressLoaded, 0) }, StopSlurmd, "another kernel"},
		{"loaded, slurmd down", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressLoaded, 0)
			q.o.Slurmd.Running = false
		}, Announce, ""},
		{"loaded, and not yet to be booted", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressLoaded, 0)
			q.desired.LoadOnly = true
		}, Wait, ""},
		{"announced", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressBooting, 5)
			q.o.Slurmd.Running = false
		}, Execute, ""},
		{"announced for an older generation", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressBooting, 4)
			q.o.Slurmd.Running = false
		}, Announce, ""},
		{"announced, and slurmd came up by other hands", func(q *question) { q.wants(fast, token(1)); q.at(kb.ProgressBooting, 5) }, StopSlurmd, ""},
		{"announced, stream lost", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressLoaded, 5)
			q.o.Fresh, q.o.Slurmd.Running = false, false
		}, Wait, ""},
		{"loaded, called off", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressLoaded, 0)
			q.desired.Kernel = nil
		}, Unload, "no longer"},
		{"loaded, another token", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressLoaded, 0)
			q.desired.Token = token(2)
		}, Unload, "no longer"},
		{"left by an agent before", func(q *question) { q.o.Leftover = true }, Unload, "unknown image"},
		{"unloading failed a moment ago", func(q *question) {
			q.o.Leftover, q.o.Hold[Unload] = true, start.Add(time.Second)
		}, Wait, ""},
		{"the same kernel with another token", func(q *question) { q.wants(stock, token(1)) }, Fetch, ""},
		{"booted as asked", func(q *question) {
			q.o.Boot.Token = token(1)
			q.wants(stock, token(1))
			q.written()
			q.o.Slurmd.Running = false
		}, Wait, ""},
		{"another kernel came up", func(q *question) {
			q.o.Boot.Token = token(1)
			q.wants(fast, token(1))
			q.written()
		}, Fail, "came up"},
		{"a driver is missing", func(q *question) {
			k := fast
			k.Drivers = []string{"e1000"}
			q.wants(k, token(1))
		}, Fail, "virtio_net"},
		{"root set by a profile", func(q *question) {
			k := fast
			k.Arguments = []string{"root=/dev/sdb"}
			q.wants(k, token(1))
		}, Fail, "root"},
		{"no token to boot with", func(q *question) { q.wants(fast, "") }, Fail, "token"},
		{"given up for this generation", func(q *question) {
			q.wants(fast, token(1))
			q.at(kb.ProgressFailed, 5)
			q.desired.SlurmdAllowed = true
		}, Wait, ""},
		{"given up for an older generation", func(q *question) { q.wants(fast, token(1)); q.at(kb.ProgressFailed, 4) }, Fetch, ""},
		{"slurmd may not run on an unproven kernel, switch or not", func(q *question) {
			q.desired.Attested = false
			q.wants(fast, token(1))
			q.written()
		}, StopSlurmd, "allow"},

		{"unproven with a token", func(q *question) {
			q.o.Boot.Token, q.desired.Attested, q.o.Slurmd.Running = token(1), false, false
			q.written()
		}, Wait, ""},
		{"firmware boot that the broker lets serve", func(q *question) {
			q.desired.Attested, q.o.Slurmd = false, Slurmd{}
			q.written()
		}, StartSlurmd, ""},

		{"silence, first", func(q *question) { q.desired, q.o.State, q.o.Slurmd = nil, nodestate.State{}, Slurmd{} }, WriteState, ""},
		{"silence, in the time of grace", func(q *question) {
			q.desired, q.o.Slurmd = nil, Slurmd{}
			q.written()
		}, Wait, ""},
		{"silence for too long", func(q *question) {
			q.desired, q.o.State, q.now, q.o.Slurmd = nil, nodestate.State{}, start.Add(time.Minute), Slurmd{}
			q.written()
		}, StartSlurmd, "silent"},
		{"silence for too long, with a token", func(q *question) {
			q.o.Boot.Token = token(1)
			q.desired, q.o.State, q.now, q.o.Slurmd = nil, nodestate.State{}, start.Add(time.Hour), Slurmd{}
			q.written()
		}, Wait, ""},
		{"slurmctld waits for a boot, the broker is away", func(q *question) {
			q.o.Awaited, q.o.Fresh = true, false
		}, StopSlurmd, "broker is away"},
		{"slurmctld waits for a boot, slurmd was stopped for it", func(q *question) {
			q.o.Awaited, q.o.Fresh, q.o.Slurmd = true, false, Slurmd{Mark: Stopped, Start: 1}
		}, StartSlurmd, ""},
		{"slurmctld waits for a boot, the broker sees to it", func(q *question) { q.o.Awaited = true }, Wait, ""},
		{"slurmctld waits for a boot, another kernel runs", func(q *question) {
			q.o.Awaited, q.o.Fresh, q.o.Boot.Token, q.desired.Running = true, false, token(1), ref("fast")
			q.written()
		}, Wait, ""},
		{"slurmctld waits for a boot, a switch has begun", func(q *question) {
			q.o.Awaited, q.o.Fresh = true, false
			q.wants(fast, token(1))
		}, Wait, ""},
		{"slurmctld waits for a boot, the broker never spoke", func(q *question) {
			q.desired, q.now, q.o.Awaited, q.o.Fresh = nil, start.Add(time.Hour), true, false
		}, StopSlurmd, "broker is away"},
		{"silence after an agent's restart: the last word stands", func(q *question) {
			q.desired, q.now = nil, start.Add(time.Hour)
		}, Wait, ""},
	} {
		q := serving()
		c.set(q)
		if got := Next(q.desired, q.o, q.now); got.Kind != c.want || !strings.Contains(got.Reason, c.why) {
			t.Errorf("%s: got %v (%s), want %v (%s)", c.name, got.Kind, got.Reason, c.want, c.why)
		}
	}
}

func TestFaults(t *testing.T) {
	wrongDriver, wrongToken := serving(), serving()
	k := fast
	k.Drivers = nil
	wrongDriver.wants(k, token(1))
	wrongToken.wants(fast, "zz")
	if got := Next(wrongDriver.desired, wrongDriver.o, start); got.Fault != kb.FailureKernel {
		t.Errorf("a kernel that does not fit: %v", got.Fault)
	}
	if got := Next(wrongToken.desired, wrongToken.o, start); got.Fault != kb.FailureNode {
		t.Errorf("a token that is none: %v", got.Fault)
	}
}

// Slurm is told of a boot by the first slurmd after a kexec. One that was stopped
// for a boot that was called off claims a boot only where Slurm still waits for one.
func TestWhoClaimsABoot(t *testing.T) {
	for _, c := range []struct {
		token         string
		mark          Mark
		awaited, want bool
	}{
		{"", Untouched, true, false},
		{"", Untouched, false, false},
		{token(1), Untouched, true, true},
		{token(1), Untouched, false, true},
		{"", Stopped, true, true},
		{"", Stopped, false, false},
		{token(1), Stopped, true, true},
		{token(1), Stopped, false, false},
	} {
		q := serving()
		q.o.Boot.Token, q.o.Slurmd, q.desired.NoBootAwaited = c.token, Slurmd{Mark: c.mark}, !c.awaited
		q.desired.Attested, q.desired.SlurmdStart = true, 1
		q.written()
		if got := Next(q.desired, q.o, start); got.Kind != StartSlurmd || got.Claim != c.want {
			t.Errorf("%+v: %v, claim %t", c, got.Kind, got.Claim)
		}
		// What slurmctld itself says is newer than the word of a broker that is away.
		q.o.Fresh, q.o.Awaited = false, true
		if got := Next(q.desired, q.o, start); got.Kind != StartSlurmd || got.Claim != (c.want || c.mark == Stopped) {
			t.Errorf("%+v, the broker is away and slurmctld waits: %v, claim %t", c, got.Kind, got.Claim)
		}
	}
	// Alone, on the stock kernel that firmware booted.
	for mark, want := range map[Mark]bool{Untouched: false, Stopped: true} {
		q := serving()
		q.desired, q.o.State, q.o.Slurmd, q.o.Boot.Token = nil, nodestate.State{}, Slurmd{Mark: mark}, ""
		q.o.GraceEnds = start
		q.written()
		if got := Next(nil, q.o, start); got.Kind != StartSlurmd || got.Claim != want {
			t.Errorf("alone, %v: %v, claim %t", mark, got.Kind, got.Claim)
		}
	}
}

func TestWakes(t *testing.T) {
	q := serving()
	q.desired.SlurmdStart, q.desired.SlurmdNotBefore = 2, start.Add(time.Second)
	if got := Next(q.desired, q.o, start); !got.Wake.Equal(start.Add(time.Second)) {
		t.Errorf("not-before: wakes at %v", got.Wake)
	}
	q = serving()
	q.wants(fast, token(1))
	q.o.Hold[Fetch] = start.Add(3 * time.Second)
	if got := Next(q.desired, q.o, start); got.Kind != Wait || !got.Wake.Equal(q.o.Hold[Fetch]) {
		t.Errorf("held: %v wakes at %v", got.Kind, got.Wake)
	}
	q = serving()
	q.desired, q.o.State, q.o.Slurmd = nil, nodestate.State{}, Slurmd{}
	q.written()
	if got := Next(nil, q.o, start); !got.Wake.Equal(q.o.GraceEnds) {
		t.Errorf("grace: wakes at %v", got.Wake)
	}
}

func TestReady(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*question)
		want bool
	}{
		{"serving", func(*question) {}, true},
		{"not allowed", func(q *question) { q.desired.SlurmdAllowed = false }, false},
		{"file not written", func(q *question) { q.o.State = nodestate.State{} }, false},
		{"too early", func(q *question) { q.desired.SlurmdNotBefore = start.Add(time.Second) }, false},
		{"switching", func(q *question) { q.wants(fast, token(1)); q.desired.SlurmdAllowed = true }, false},
		{"silence", func(q *question) { q.desired = nil }, false},
		{"silence for long", func(q *question) { q.desired, q.now = nil, start.Add(time.Hour) }, true},
	} {
		q := serving()
		c.set(q)
		if got := Ready(q.desired, q.o, q.now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestGateKnows(t *testing.T) {
	boot := kb.Boot{BootID: "b", BuildID: "id", Release: "6.1"}
	desired := &kb.DesiredState{Generation: 4, Attested: true, Running: kb.Ref{Profile: "mitgcm", Version: 1}, Jobs: []uint32{7}}
	written := nodestate.State{BootID: "b", BuildID: "id", Release: "6.1", Profile: "mitgcm", Version: 1, Attested: true, Jobs: []uint32{7}}
	before := written
	before.Jobs = nil
	for name, c := range map[string]struct {
		desired *kb.DesiredState
		state   nodestate.State
		want    bool
	}{
		"written":              {desired, written, true},
		"the job is not in it": {desired, before, false},
		"nothing written":      {desired, nodestate.State{}, false},
		"no broker":            {nil, written, false},
	} {
		if got := GateKnows(c.desired, Observed{Boot: boot, State: c.state}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
