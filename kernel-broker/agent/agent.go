// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// pollEvery is how often the agent checks whether slurmd runs.
const pollEvery = 2 * time.Second

// Link is the stream to the broker.
type Link interface {
	Status() link.Status
	Changed() <-chan struct{}
	Send(ctx context.Context, message *api.ConnectRequest) error
	Flush(ctx context.Context) error
	JobEnding(ctx context.Context, job uint32) (bool, error)
}

// Booter performs the steps of a switch.
type Booter interface {
	Fetch(ctx context.Context, t decide.Target) error
	Load(ctx context.Context, t decide.Target) error
	// Admit checks whether the node still trusts what is loaded.
	Admit(ctx context.Context, t decide.Target) error
	Unload(ctx context.Context) error
	// Prepare does what the site wants done before a boot.
	Prepare(ctx context.Context) error
	Execute(ctx context.Context) error
}

// Slurmd is the node's Slurm daemon.
type Slurmd interface {
	// Observe knows whether it runs also with an error, and then nothing else.
	Observe() (decide.Slurmd, error)
	Start(ctx context.Context, start uint64, claim bool) error
	Stop(ctx context.Context) error
}

// Parts is what an agent is made of.
type Parts struct {
	Node string
	// Configuration is the digest of agent.yaml, for the local status.
	Configuration string
	Boot          kb.Boot
	// Inventory reads the hardware of the node.
	Inventory func() (kb.Inventory, error)
	// Loaded reports whether the running kernel holds an image.
	Loaded func() (bool, error)
	Link   Link
	Booter Booter
	// Settle uploads profiling results before a load or a reboot: the boot may clear their disk.
	Settle func(ctx context.Context)
	Slurmd Slurmd
	// NodeState is the path of the gate's file.
	NodeState string
	// Grace is how long the node waits for the first desired state.
	Grace time.Duration
	// Awaited asks slurmctld whether it waits for a boot of this node while no
	// job has it; nil never asks.
	Awaited func(ctx context.Context) (bool, error)
	// Reboot reboots the machine by its firmware.
	Reboot func(ctx context.Context) error
	// Sync writes the disks' caches before a boot.
	Sync func()
	// Alive is called in each turn of the loop, with whether the stream is up; nil: nobody asks.
	Alive func(connected bool)
	Log   *slog.Logger
}

// Agent runs one node. Run has it; the other methods may be called meanwhile.
type Agent struct {
	parts    Parts
	observed decide.Observed
	desired  *kb.DesiredState
	session  uint64
	// announced is the session in which the broker acknowledged a boot.
	announced uint64
	fails     [decide.Kinds]uint
	sent      sent
	// damaged counts how often the cache had to be filled again.
	damaged int
	// slurmdCause is why slurmd could not be started or stopped.
	slurmdCause string
	// unrebooted is the report on a reboot that could not begin.
	unrebooted kb.SwitchReport
	busy       *task
	wake       time.Time
	done       chan result
	noBroker   noBroker

	mu        sync.Mutex
	inventory kb.Inventory
	status    local.NodeStatus
	news      chan struct{}
}

// task is the action that is being done.
type task struct {
	action decide.Action
	cancel context.CancelFunc
	begun  time.Time
}

type result struct {
	action decide.Action
	// session in which it was begun.
	session uint64
	err     error
	// cut: it was cancelled.
	cut  bool
	took time.Duration
}

// New reads the state that an earlier agent of this boot left.
func New(parts Parts) (*Agent, error) {
	a := &Agent{parts: parts, done: make(chan result, 1), news: make(chan struct{}), noBroker: newNoBroker()}
	a.observed.Boot = parts.Boot
	a.observed.Leftover = a.loaded()
	a.observed.GraceEnds = time.Now().Add(parts.Grace)
	state, _, err := nodestate.Read(parts.NodeState)
	if err != nil {
		// The file is written again in any case.
		parts.Log.Warn("node state not readable", "error", err)
	}
	a.observed.State = state
	if _, err := a.refreshInventory(); err != nil {
		return nil, err
	}
	if a.observed.Slurmd, err = parts.Slurmd.Observe(); err != nil {
		parts.Log.Error("slurmd's mark not readable", "error", err)
	}
	a.status = a.describe(time.Now())
	return a, nil
}

// loaded asks the running kernel. One without the answer cannot load either.
func (a *Agent) loaded() bool {
	loaded, err := a.parts.Loaded()
	if err != nil {
		a.parts.Log.Warn("kernels cannot be loaded on this node", "node", a.parts.Node, "error", err)
	}
	return loaded
}

// refreshInventory refreshes the inventory.
func (a *Agent) refreshInventory() (kb.Inventory, error) {
	inventory, err := a.parts.Inventory()
	if err != nil {
		return inventory, fmt.Errorf("node %q: %w", a.parts.Node, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inventory = inventory
	return inventory, nil
}

// Hello is what a new stream begins with. The inventory is read again: with a
// stream there is a network, and its driver counts.
func (a *Agent) Hello(version string) kb.Hello {
	inventory, err := a.refreshInventory()
	if err != nil {
		a.parts.Log.Error("inventory not readable", "error", err)
	}
	slurmd, err := a.parts.Slurmd.Observe()
	if err != nil {
		a.parts.Log.Error("slurmd's mark not readable", "error", err)
	}
	boot := a.parts.Boot
	if boot.Up, err = proof.Up(); err != nil {
		a.parts.Log.Error("time since boot not readable", "error", err)
	}
	return kb.Hello{
		Node: a.parts.Node, Boot: boot, Inventory: inventory, AgentVersion: version,
		SlurmdRunning: slurmd.Running && slurmd.Mark == decide.Started,
	}
}

// Run is the loop; it ends with the context, after what is being done.
func (a *Agent) Run(ctx context.Context) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		a.observe()
		a.askSlurm(ctx, time.Now())
		a.act(ctx)
		a.report(ctx)
		a.publish()
		if a.parts.Alive != nil {
			a.parts.Alive(a.parts.Link.Status().Connected)
		}
		if !a.wake.IsZero() {
			wake.Reset(max(time.Until(a.wake), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			if a.busy != nil {
				a.busy.cancel()
				a.finish(<-a.done)
			}
			a.noBroker.end()
			return
		case <-a.parts.Link.Changed():
		case r := <-a.done:
			a.finish(r)
		case awaited := <-a.noBroker.answer:
			a.slurmSaid(awaited, time.Now())
		case <-wake.C:
		case <-poll.C:
		}
	}
}

// observe reads what may have changed by itself.
func (a *Agent) observe() {
	status := a.parts.Link.Status()
	if status.Session != a.announced || !status.Connected {
		// The broker may have lost what the node announced.
		if a.observed.Switch.Progress == kb.ProgressBooting && !a.doing(decide.Execute) {
			a.setProgress(kb.ProgressLoaded, "the stream to the broker broke")
		}
	}
	if status.Session != a.session {
		a.session, a.sent = status.Session, sent{}
		for _, kind := range []decide.Kind{decide.Fetch, decide.Announce} { // by which an agent asks its broker
			a.fails[kind], a.observed.Hold[kind] = 0, time.Time{}
		}
	}
	if status.Desired != nil && (a.desired == nil || a.desired.Generation != status.Desired.Generation) {
		a.parts.Log.Info("new desired state", "node", a.parts.Node, "generation", status.Desired.Generation,
			"kernel", kernelOf(status.Desired), "attested", status.Desired.Attested,
			"slurmd_allowed", status.Desired.SlurmdAllowed, "slurmd_start", status.Desired.SlurmdStart, "jobs", status.Desired.Jobs)
	}
	a.desired, a.observed.Fresh = status.Desired, status.Fresh
	slurmd, err := a.parts.Slurmd.Observe()
	if err != nil {
		a.parts.Log.Error("slurmd's mark not readable", "error", err)
		slurmd.Mark, slurmd.Start = a.observed.Slurmd.Mark, a.observed.Slurmd.Start
	}
	a.slurmdChanged(a.observed.Slurmd, slurmd)
	a.observed.Slurmd = slurmd
	a.mu.Lock()
	a.observed.Inventory = a.inventory
	a.mu.Unlock()
}

func (a *Agent) slurmdChanged(from, to decide.Slurmd) {
	if to.Died && !from.Died {
		a.slurmdDied(time.Now())
	}
	if from.Running == to.Running {
		return
	}
	if to.Running && a.busy == nil {
		a.slurmdCause = "" // others have started it
	}
	words := map[bool]string{true: "running", false: "down"}
	reason := "the agent " + to.Mark.String() + " it"
	if from.Mark == to.Mark {
		reason = "not by the agent"
	}
	a.parts.Log.Info("slurmd", "node", a.parts.Node, "from", words[from.Running], "to", words[to.Running],
		"start", to.Start, "reason", reason)
}

func (a *Agent) doing(kind decide.Kind) bool { return a.busy != nil && a.busy.action.Kind == kind }

func kernelOf(w *kb.DesiredState) string {
	if w.Kernel == nil {
		return ""
	}
	return w.Kernel.Ref().String()
}

func (a *Agent) setProgress(stage kb.Progress, reason string) {
	s := &a.observed.Switch
	if s.Progress != stage {
		a.parts.Log.Info("switch", "node", a.parts.Node, "kernel", s.Target.Kernel.Ref().String(),
			"from", s.Progress.String(), "to", stage.String(), "reason", reason)
	}
	s.Progress = stage
}
