// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var (
	noon  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	stock = kb.Ref{Profile: kb.StockProfile, Version: 1}
	mit   = kb.Ref{Profile: "mitgcm", Version: 3}
)

func kernel(profile string, version uint32) kb.Kernel {
	build := fmt.Sprintf("%s-%d", profile, version)
	return kb.Kernel{Profile: profile, Version: version, BuildID: build, Release: "6.1-" + build}
}

// fakeCatalog has stock@1, mitgcm@3 and lammps@1.
type fakeCatalog struct {
	restricted  map[string]bool
	failedOn    map[string]bool // by node
	noStock     bool
	stockInitrd string // digest
	quarantined map[kb.Ref]bool
	counted     map[string]bool
}

var kernels = []kb.Kernel{kernel("stock", 1), kernel("mitgcm", 3), kernel("lammps", 1)}

func (c *fakeCatalog) Stock() (kb.Kernel, bool) {
	stock := kernels[0]
	stock.InitrdDigest = c.stockInitrd
	return stock, !c.noStock
}

func (c *fakeCatalog) ByBuildID(id string) []kb.Ref {
	var refs []kb.Ref
	for _, k := range kernels {
		if k.BuildID == id {
			refs = append(refs, k.Ref())
		}
	}
	return refs
}

func (c *fakeCatalog) Resolve(ref kb.Ref) (kb.Ref, error) {
	for _, k := range kernels {
		if k.Profile != ref.Profile || ref.Version != 0 && k.Version != ref.Version {
			continue
		}
		if c.quarantined[k.Ref()] {
			return kb.Ref{}, fmt.Errorf("kernel %s is quarantined: %w", k.Ref(), kb.ErrQuarantined)
		}
		return k.Ref(), nil
	}
	return kb.Ref{}, fmt.Errorf("profile %s: %w", ref, kb.ErrNotFound)
}

func (c *fakeCatalog) Restricted(profile string) bool { return c.restricted[profile] }

func (c *fakeCatalog) FailedOn(_ kb.Ref, node string) bool { return c.failedOn[node] }

func (c *fakeCatalog) Counted(f kb.Fault) bool { return c.counted[f.Token] }

// world is what a broker holds and sees. Records pass through JSON with every
// round, as they do in the store.
type world struct {
	t        *testing.T
	now      time.Time
	config   Config
	catalog  *fakeCatalog
	nodes    map[string]*kb.Node
	allocs   map[kb.JobID]*kb.Allocation
	closed   []*kb.Allocation
	agents   map[string]Agent
	runs     map[uint64]*kb.Run
	slurm    kb.SlurmView
	receipts []Receipt
	held     map[kb.JobID]Hold
	damaged  map[string]string
	boots    map[string]int
	rules    []kb.HardwareRule
	tries    []kb.Try
	tokens   int
	inLine   map[kb.JobID]bool
	// begun are boots that slurmctld has begun by itself.
	begun map[string]kb.BegunBoot
	// unanswered: slurmctld does not answer, and its last answer gets old.
	unanswered bool
	// unheard are nodes whose agents say nothing of what they are told.
	unheard map[string]bool
	// featuresSet is when slurmctld was last told of features.
	featuresSet time.Time
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, now: noon, config: Defaults(), catalog: &fakeCatalog{quarantined: map[kb.Ref]bool{}, counted: map[string]bool{}},
		nodes: map[string]*kb.Node{}, allocs: map[kb.JobID]*kb.Allocation{}, agents: map[string]Agent{}, runs: map[uint64]*kb.Run{},
		slurm: kb.SlurmView{Jobs: map[uint32]kb.SlurmJob{}, Nodes: map[string]kb.SlurmNode{}},
		boots: map[string]int{},
	}
}

func (w *world) input() Input {
	if !w.unanswered {
		w.slurm.At = w.now
	}
	return Input{Now: w.now, Config: w.config, Slurm: w.slurm, Nodes: w.nodes, Allocations: w.allocs, Agents: w.agents,
		Runs: w.runs, NextRun: uint64(len(w.runs) + 1),
		Catalog: w.catalog, Receipts: w.receipts, Held: w.held, Queued: w.inLine, Damaged: w.damaged, Begun: w.begun, FeaturesSet: w.featuresSet, Rules: w.rules, NewToken: func() string { w.tokens++; return fmt.Sprintf("token%d", w.tokens) }}
}

func slurmdHeld(n *kb.Node) bool { return n.Told.Slurmd == kb.SlurmdHeld }

func drained(n *kb.Node) bool { return n.Failure != nil && n.Failure.Drained }

// done has the next decision hear that an action was done.
func (w *world) done(a Action) { w.receipts = append(w.receipts, Receipt{Action: a, At: w.now}) }

// reset has the next decision hear that a node was reset for its boot.
func (w *world) reset(node string) {
	w.done(Action{Kind: ResetNode, Node: node, Token: w.nodes[node].Pending.Token})
}

// decide runs one round and keeps what came out.
func (w *world) decide() Output {
	w.t.Helper()
	out := Decide(w.input())
	for _, n := range out.Nodes {
		w.nodes[n.Name] = again(w.t, n)
	}
	for _, a := range out.Allocations {
		w.allocs[a.ID] = again(w.t, a)
		if a.Closed {
			w.closed = append(w.closed, w.allocs[a.ID])
			delete(w.allocs, a.ID)
		}
	}
	w.held, w.receipts = out.Held, nil
	w.tries = append(w.tries, out.Tries...)
	w.rules = slices.DeleteFunc(w.rules, func(r kb.HardwareRule) bool { return slices.Contains(out.UsedRules, r.Name) })
	for _, r := range out.Runs {
		w.runs[r.ID] = again(w.t, r)
	}
	for name, a := range w.agents {
		a.Reports = nil
		if _, answered := out.Kept[name]; answered {
			a.Ending = 0
		}
		if n := w.nodes[name]; a.Connected && n != nil && !w.unheard[name] {
			a.Acknowledged = n.Generation
		}
		w.agents[name] = a
	}
	return out
}

func again[T any](t *testing.T, record *T) *T {
	t.Helper()
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	back := new(T)
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	return back
}

// resolvePending decides until nothing changes; that must not take long.
func (w *world) settle() []Action {
	w.t.Helper()
	var actions []Action
	for range 8 {
		out := w.decide()
		for _, a := range out.Actions {
			if !slices.ContainsFunc(actions, func(b Action) bool { return a.Key() == b.Key() }) {
				actions = append(actions, a)
			}
		}
		if len(out.Nodes)+len(out.Allocations)+len(out.Runs) == 0 {
			return out.Actions
		}
	}
	w.t.Fatal("the records do not come to rest")
	return actions
}

// pass lets time go by and settles.
func (w *world) pass(d time.Duration) []Action {
	w.t.Helper()
	w.now = w.now.Add(d)
	return w.settle()
}

// boot has a node come up and its agent say hello.
func (w *world) boot(name string, k kb.Kernel, token string) {
	w.boots[name]++
	if w.nodes[name] == nil {
		w.nodes[name] = &kb.Node{Name: name}
	}
	w.agents[name] = Agent{Connected: true, Since: w.now, Boot: kb.Boot{
		BootID: fmt.Sprintf("%s-boot%d", name, w.boots[name]), BuildID: k.BuildID, Release: k.Release, Token: token}}
}

// silence is an agent that is gone.
func (w *world) silence(name string) { w.agents[name] = Agent{Since: w.now} }

func (w *world) report(name string, state kb.Progress, kind kb.FailureKind, detail string) {
	a := w.agents[name]
	a.Reports = append(a.Reports, kb.SwitchReport{Generation: w.nodes[name].Generation, Progress: state, Kind: kind, Detail: detail, At: w.now})
	w.agents[name] = a
}

// slurmd is an agent that has started it as it was told.
func (w *world) slurmd(name string) {
	a := w.agents[name]
	a.Slurmd = Slurmd{}.Said(w.nodes[name].SlurmdStart, true, w.now)
	w.agents[name] = a
}

// node sets what slurmctld says: IDLE+POWERING_UP and a reason.
func (w *world) node(name, state, reason string) {
	words := strings.Split(state, "+")
	w.slurm.Nodes[name] = kb.SlurmNode{Name: name, State: words[0], Flags: words[1:], Reason: reason,
		Partitions: []string{"main"}, CPUs: 4, MemoryMiB: 1000}
}

// nodeBy is node with who gave the reason, and when.
func (w *world) nodeBy(name, state, reason, by string) {
	w.node(name, state, reason)
	n := w.slurm.Nodes[name]
	n.By = by
	w.slurm.Nodes[name] = n
}

// job sets what slurmctld says of a job with nodes.
func (w *world) job(id uint32, state string, reboot bool, nodes ...string) {
	w.slurm.Jobs[id] = kb.SlurmJob{ID: id, Reference: fmt.Sprint(id), State: state, Reboot: reboot, Nodes: nodes,
		NodeCount: uint32(len(nodes)), User: "alice", Restart: w.slurm.Jobs[id].Restart}
}

func (w *world) ensure(id uint32, ref kb.Ref, nodes ...string) *kb.Allocation {
	var k kb.Kernel
	for _, have := range kernels {
		if have.Ref() == ref {
			k = have
		}
	}
	a := &kb.Allocation{ID: kb.JobID{Job: id, Restart: w.slurm.Jobs[id].Restart}, Reference: fmt.Sprint(id), User: "alice", Requested: ref, Kernel: k,
		BootAttempts: 2, BootTimeout: time.Minute, Reuse: kb.ReuseSameProfile, Fallback: kb.FallbackHold,
		Nodes: nodes, Submitted: true, Phase: kb.PhaseAccepted, Since: w.now, Created: w.now}
	w.allocs[a.ID] = a
	w.now = w.now.Add(time.Millisecond)
	return a
}

// steadyOnStock is a world with idle nodes.
func steadyOnStock(t *testing.T, names ...string) *world {
	w := newWorld(t)
	for _, name := range names {
		w.node(name, "IDLE", "")
		w.boot(name, kernels[0], "")
	}
	w.settle()
	for _, name := range names {
		w.slurmd(name)
	}
	w.settle()
	return w
}

// switching is a job on n1 whose node is being loaded.
func switching(t *testing.T) *world {
	w := steadyOnStock(t, "n1")
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.ensure(7, mit, "n1")
	w.settle()
	if w.nodes["n1"].Progress() != "loading" {
		t.Fatalf("n1 is %s", w.nodes["n1"].Progress())
	}
	return w
}

// booting is switching after the agent's last word.
func booting(t *testing.T) *world {
	w := switching(t)
	w.report("n1", kb.ProgressBooting, "", "")
	w.settle()
	w.silence("n1")
	w.settle()
	if w.nodes["n1"].Progress() != "booting" {
		t.Fatalf("n1 is %s", w.nodes["n1"].Progress())
	}
	return w
}

// running is a job that runs on n1 with its kernel.
func running(t *testing.T) *world {
	w := booting(t)
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.settle()
	w.slurmd("n1")
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.settle()
	w.job(7, "RUNNING", true, "n1")
	w.settle()
	if a := w.allocs[kb.JobID{Job: 7}]; a == nil || a.Phase != kb.PhaseReady {
		t.Fatalf("allocation is %+v", a)
	}
	return w
}

func has(actions []Action, kind Kind) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return a.Kind == kind })
}
