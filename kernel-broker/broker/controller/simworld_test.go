// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// simTail is how much of the story a failure shows.
const simTail = 150

// simTick is the grain of simulated time.
const simTick = 100 * time.Millisecond

// simWorld is a cluster in a box: a dumb model of slurmctld, nodes with the
// real agent's judgement, and a broker that decides by package plan and may
// die at any step. Everything random comes from one seed.
type simWorld struct {
	t      testing.TB
	seed   uint64
	rng    *rand.Rand
	now    time.Time
	faulty bool // faults may strike
	calm   bool // they never did: nothing may look like one
	// noStock: the distribution's kernel does not load.
	noStock bool
	// noReboot: a node cannot reboot by itself.
	noReboot bool
	// repaired: they do no more, and the administrator resumes the nodes.
	repaired bool
	slurm    *simSlurm
	nodes    map[string]*simNode
	names    []string
	broker   *simBroker
	story    []string
	// What was seen to happen, for the invariants and for the report.
	tokens       map[string]string // token to the boot that was attested with it
	resets       map[string]int    // by token
	kexecs       int
	gateFailures int
	unexpected   int // nodes that slurmctld saw reboot unexpectedly
	crashes      int
}

func newSimWorld(t testing.TB, seed uint64, nodes int) *simWorld {
	w := &simWorld{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6b62)), now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		nodes: map[string]*simNode{}, tokens: map[string]string{}, resets: map[string]int{},
	}
	w.slurm = newSimSlurm(w)
	w.broker = newSimBroker(w)
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		w.names = append(w.names, name)
		w.nodes[name] = newSimNode(w, name)
		w.slurm.nodes[name] = &simSlurmNode{name: name, lastSeen: w.now, available: simFeature, active: simFeature}
	}
	return w
}

// chance strikes with probability p.
func (w *simWorld) chance(p float64) bool { return w.rng.Float64() < p }

// strikes is chance for faults.
func (w *simWorld) strikes(p float64) bool { return w.faulty && w.chance(p) }

func (w *simWorld) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

func (w *simWorld) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%8.1f ", w.now.Sub(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)).Seconds())+fmt.Sprintf(format, args...))
}

// fail ends the test with the seed and the end of the story.
func (w *simWorld) fail(format string, args ...any) {
	w.t.Helper()
	tail := w.story[max(0, len(w.story)-simTail):]
	w.t.Fatalf("seed %d: %s\n%s\n%s", w.seed, fmt.Sprintf(format, args...), strings.Join(tail, "\n"), w.picture())
}

// picture is everything as it is now.
func (w *simWorld) picture() string {
	var b strings.Builder
	for _, name := range w.names {
		s, n := w.slurm.nodes[name], w.nodes[name]
		fmt.Fprintf(&b, "slurm %s %+v reason %q\n", name, s.view().Flags, s.reason)
		fmt.Fprintf(&b, "node  %s runs %s up %v slurmd %v wish %+v\n", name, n.kernel.Ref(), n.up(), n.slurmd.Running, n.wish)
		if r := w.broker.records.nodes[name]; r != nil {
			fmt.Fprintf(&b, "record %s gen %d want %s phase %s owner %s waiting %v kept %q failure %+v pending %+v\n", name, r.Generation,
				r.Desired, r.Progress(), r.Owner, r.Slurm.Awaited.Awaits(), r.KeptFor, r.Failure, r.Pending)
		}
	}
	for _, a := range w.broker.records.allocs {
		fmt.Fprintf(&b, "allocation %s %s on %v reason %q\n", a.ID, a.Phase, a.Nodes, a.Reason)
	}
	for _, j := range w.slurm.jobs {
		fmt.Fprintf(&b, "job %d.%d %s want %q held %v on %d nodes comment %q\n", j.id, j.restart, j.state, j.want, j.held, len(j.nodes), j.comment)
	}
	return b.String()
}

// run lets time pass until done says so, or for the limit.
func (w *simWorld) run(limit time.Duration, done func() bool) bool {
	for end := w.now.Add(limit); w.now.Before(end); {
		w.now = w.now.Add(simTick)
		w.slurm.step()
		for _, name := range w.names {
			w.nodes[name].step()
		}
		w.broker.step()
		if done != nil && done() {
			return true
		}
	}
	return done == nil
}

// simProfiles are what the simulated users may choose.
func simProfiles() []kb.Profile {
	profile := func(name, build string, attempts uint32, reuse kb.ReusePolicy) kb.Profile {
		kernel := kb.Kernel{Profile: name, Version: 1, ImageDigest: "sha256:" + strings.Repeat(build, 32), ImageSize: 1,
			BuildID: strings.Repeat(build, 20), Release: "6.1-" + name, Architecture: "x86_64"}
		return kb.Profile{Name: name, DefaultVersion: 1, BootAttempts: attempts, BootTimeout: 20 * time.Second,
			Reuse: reuse, Fallback: kb.FallbackHold, Versions: []kb.ProfileVersion{{Kernel: kernel}}}
	}
	return []kb.Profile{
		profile(kb.StockProfile, "aa", 1, kb.ReuseNever),
		profile("mitgcm", "bb", 2, kb.ReuseSameProfile),
		profile("lammps", "cc", 1, kb.ReuseNever),
		profile("broken", "dd", 1, kb.ReuseSameProfile),
	}
}

func simPlanConfig(canReset bool) plan.Config {
	c := plan.Defaults()
	c.SwitchLimit, c.LoadLimit = 70*time.Second, 15*time.Second
	c.ResetGrace, c.RebootTimeout = 30*time.Second, 30*time.Second
	c.AgentLimit, c.KeepLimit, c.StockTimeout = 15*time.Second, 10*time.Second, 20*time.Second
	c.CanReset, c.ActiveFeatures = canReset, true
	return c
}

func simKernel(profile string) kb.Kernel {
	for _, p := range simProfiles() {
		if p.Name == profile {
			return p.Versions[0].Kernel
		}
	}
	panic("no profile " + profile)
}
