// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/turns"
)

// Controller is the broker's heart. Make one by New, then Run it.
type Controller struct {
	o       Options
	log     *slog.Logger
	actions *executor
	polls   *polls
	// comments are questions for the comment of a job that somebody looks at.
	comments *semaphore.Weighted
	clock    *Clock

	refreshing sync.Mutex // is taken before mu
	// writing is held by whoever writes records, from before it reads them; mu only while memory changes. It is taken before mu.
	writing sync.Mutex

	connected atomic.Int64 // agents

	mu       sync.Mutex
	records  records
	stale    bool      // the records must be read again
	passed   time.Time // when the last pass began
	resumed  time.Time // when passes began again after the broker had stood still
	marks    marks
	sessions map[string]*Session
	lost     map[string]time.Time
	// refusals are what each node's gate refused in the boot that its agent spoke of
	// last. The node forgets it with its next boot, which may come before slurmctld
	// shows the drain that followed.
	refusals    map[string][]kb.GateRefusal
	unread      map[string]unread
	view        kb.SlurmView
	viewErr     error
	seenSince   time.Time // when polls last began to succeed again
	kernels     *kernels
	counted     map[string]bool
	held        map[kb.JobID]plan.Hold // holds that are looked after
	heldInSlurm map[kb.JobID]bool      // those of them that slurmctld has been told of by this broker
	// slurmBoot names the slurmctld that answered, while there are holds.
	slurmBoot string
	receipts  []plan.Receipt // of actions, until they are on record
	// off is when Slurm's power saving last had a node switched off from which no agent has ever come.
	off       map[string]time.Time
	damaged   map[string]string // images of stock, by digest
	checked   time.Time         // when these were checked last
	oversized map[string]string // records that were too large, and what was done
	snapshot  string
	watchers  map[kb.JobID][]chan struct{}
	line      *turns.Line // jobs that wait for a free switch
	// runWatchers watch profiling runs.
	runWatchers []*runWatcher

	pruning sync.Mutex // one forgets runs at a time

	begin    time.Time
	kick     chan struct{} // wakes the passes
	wakePoll chan struct{} // wakes the poller
	// featuresSet is when kernels were last to be shown as features, under the lock.
	featuresSet time.Time
	// eager is when a slurmd last began to run, under the lock.
	eager time.Time
	pace  pace
}

// New returns a controller that has read its records.
func New(ctx context.Context, o Options) (*Controller, error) {
	if o.Runs == (RunLimits{}) {
		o.Runs = DefaultRunLimits()
	}
	if o.Clock == nil {
		o.Clock = NewClock()
	}
	uncounted := func(time.Duration, error) {}
	if o.Passed == nil {
		o.Passed = uncounted
	}
	if o.Polled == nil {
		o.Polled = uncounted
	}
	c := &Controller{
		o: o, log: o.Log, clock: o.Clock, begin: o.Clock.Now(), pace: newPace(), polls: newPolls(o.Slurm.View),
		records: records{store: o.Store, history: o.History, now: o.Clock.Now, jobIndex: record.Index{Most: o.KeepJobBytes}}, kernels: newKernels(nil, nil),
		marks:       newMarks(),
		comments:    semaphore.NewWeighted(commentsAtOnce),
		kick:        make(chan struct{}, 1),
		wakePoll:    make(chan struct{}, 1),
		sessions:    map[string]*Session{},
		lost:        map[string]time.Time{},
		refusals:    map[string][]kb.GateRefusal{},
		unread:      map[string]unread{},
		counted:     map[string]bool{},
		held:        map[kb.JobID]plan.Hold{},
		heldInSlurm: map[kb.JobID]bool{},
		off:         map[string]time.Time{},
		damaged:     map[string]string{},
		oversized:   map[string]string{},
		watchers:    map[kb.JobID][]chan struct{}{},
		line:        turns.New(o.Switches),
	}
	if c.o.MayAct == nil {
		c.o.MayAct = func() error { return nil }
	}
	c.actions = newExecutor(c)
	c.records.away = func(store func()) {
		c.mu.Unlock()
		defer c.mu.Lock()
		store()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(ctx); err != nil {
		return nil, err
	}
	if err := c.loadHolds(ctx, c.clock.Now()); err != nil {
		return nil, err
	}
	// Whatever an agent did while nobody listened, its time begins now.
	for name := range c.records.nodes {
		c.lost[name] = c.clock.Now()
	}
	c.countLocked()
	profiles, err := o.Catalog.List(ctx)
	if err != nil {
		return nil, err
	}
	c.kernels = newKernels(profiles, c.counted)
	c.kernels.restricted = o.Catalog.Restricted
	return c, nil
}

// passRest is the least pause between passes, as long as the last one at least: what a job's nodes say at nearly the same time is
// decided on together, and written by one commit.
const passRest = 20 * time.Millisecond

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.poll(ctx) })
	group.Go(func() { c.actions.run(ctx) })
	group.Go(func() { c.janitor(ctx) })
	for {
		if c.o.Alive != nil {
			c.o.Alive()
		}
		wait, begun := time.Second, time.Now()
		err := c.pass(ctx)
		took := time.Since(begun)
		c.o.Passed(took, err)
		if err != nil && ctx.Err() == nil {
			c.log.Error("pass not committed", "error", err)
			wait = 500 * time.Millisecond
		}
		took = max(took, passRest)
		rest(ctx, took, nil)
		rest(ctx, wait-took, c.kick)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// loadLocked reads the records from the store.
func (c *Controller) loadLocked(ctx context.Context) error {
	before := c.records.ledger.damaged
	if err := c.records.load(ctx); err != nil {
		return err
	}
	for key, err := range c.records.ledger.damaged {
		if before[key] == nil {
			c.log.Error("a row of the hardware ledger is damaged and left out", "record", key, "error", err)
		}
	}
	c.records.rebase(c.clock.Now(), c.o.Plan)
	c.marks.all = true
	return nil
}

// toWrite takes the locks of somebody who writes records, and returns what gives them back. While the store is written others
// have the controller's lock: health, listings and agents do not wait for a disk.
func (c *Controller) toWrite() (done func()) {
	c.writing.Lock()
	c.mu.Lock()
	return func() {
		c.mu.Unlock()
		c.writing.Unlock()
	}
}

func (c *Controller) kickLocked() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *Controller) pollNow() {
	select {
	case c.wakePoll <- struct{}{}:
	default:
	}
}

// poll looks at slurmctld, often while something is under way, and at once when
// it is asked to: what a node can cause is bounded by its own budget.
func (c *Controller) poll(ctx context.Context) {
	var cost pollCost
	for ctx.Err() == nil {
		c.mu.Lock()
		comments := c.endingLocked()
		c.mu.Unlock()
		begun := time.Now()
		view, err := c.polls.take(ctx, comments)
		if err == nil {
			c.askBoot(ctx)
		}
		took := time.Since(begun)
		c.o.Polled(took, err)
		if err == nil {
			took = cost.of(took)
		}
		c.mu.Lock()
		if err != nil && ctx.Err() == nil && c.viewErr == nil {
			c.log.Warn("slurmctld unreachable", "error", err)
		}
		if err == nil && c.viewErr != nil {
			c.log.Info("slurmctld can be seen again")
			c.seenSince = c.clock.Now()
		}
		c.viewErr = err
		if err == nil {
			c.markViewLocked(view)
			c.view = view
			c.noteOffLocked(view)
			c.kickLocked()
		}
		pause := c.pauseLocked(took, err)
		c.mu.Unlock()
		rest(ctx, min(took, pause), nil) // also where all nodes of a large job report at once
		rest(ctx, pause-took, c.wakePoll)
	}
}

// rest waits until the time is over, or something else is to be done.
func rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// eagerTime is how long slurmctld is polled more often than usual after a
// node's slurmd has started: its registration follows at once, and a job waits.
const (
	eagerTime  = time.Second
	eagerTimes = 4
)

// pollPauses is how many times as long as a poll the pause after it is at least, so that the polls of a large or busy
// slurmctld do not slow it down.
const pollPauses = 3

// pollCost is what the last polls took, the newest last.
type pollCost []time.Duration

// of returns what a poll costs slurmctld, after one more: the least that one of the last three took. One that waited until
// slurmctld was there again, or its host had time, says nothing of its size.
func (p *pollCost) of(took time.Duration) time.Duration {
	*p = append(*p, took)
	*p = (*p)[max(0, len(*p)-3):]
	return slices.Min(*p)
}

// pauseLocked is the time to the next poll, after one that took so long. slurmctld that is away is not slowed down, and its
// return is to be noticed soon.
func (c *Controller) pauseLocked(took time.Duration, err error) time.Duration {
	pauses := time.Duration(pollPauses)
	if err != nil {
		pauses = 1
	}
	switch {
	case time.Since(c.eager) < eagerTime:
		return max(c.o.PollBusy/eagerTimes, took)
	case c.busyLocked():
		return max(c.o.PollBusy, pauses*took)
	}
	return max(c.o.PollIdle, pauses*took)
}

// endingLocked reports whether an epilog waits for an answer.
func (c *Controller) endingLocked() bool {
	for _, s := range c.sessions {
		if c.endsLocked(s) {
			return true
		}
	}
	return false
}

// busyTime is how long a change in slurmctld is expected soon. What takes longer, such as the return of a dead node, may take
// days, and is seen soon enough by a poll of an idle broker.
const busyTime = 15 * time.Minute

// busyLocked reports whether a change in slurmctld is expected soon.
func (c *Controller) busyLocked() bool {
	recent := func(t time.Time) bool { return c.clock.Now().Sub(t) < busyTime }
	for id := range c.marks.awake.Jobs {
		a := c.records.allocs[id]
		if a == nil {
			continue
		}
		if (a.Phase != kb.PhaseReady || !a.Seen) && recent(a.Since) {
			return true
		}
	}
	for name := range c.marks.awake.Nodes {
		n := c.records.nodes[name]
		if n == nil {
			continue
		}
		if n.Slurm.Awaited.Awaits() && recent(n.Slurm.Awaited.Since) || n.Pending != nil || n.KeptFor != "" {
			return true
		}
		if s := c.sessions[name]; s != nil && nodeBusy(n, s.agent, recent) {
			return true
		}
	}
	return len(c.held) > 0 || c.actions.underWay() || c.endingLocked()
}

// nodeBusy reports whether Slurm is to be told soon what an administrator said of a node, or boots it. A job on the node
// comes first.
func nodeBusy(n *kb.Node, agent plan.Agent, recent func(time.Time) bool) bool {
	switch {
	case n.Told.Slurmd == kb.SlurmdHeld:
		return recent(agent.Since)
	case !n.Owner.IsZero():
		return false
	}
	return n.Slurm.Restore != nil && recent(agent.Since) || n.Reboot != nil && recent(n.Reboot.At)
}

// Publish keeps the snapshot of the catalog with every agent and in use, and
// the controller's own picture of the kernels new, and has each text written. It
// runs until ctx ends.
func (c *Controller) Publish(ctx context.Context, write func(ctx context.Context, text string) error) error {
	return c.o.Catalog.Publish(ctx, func(text string) error {
		if err := c.refresh(ctx, text); err != nil {
			return err
		}
		return write(ctx, text)
	})
}

func (c *Controller) refresh(ctx context.Context, snapshot string) error {
	c.refreshing.Lock() // else an older list could be the last
	defer c.refreshing.Unlock()
	profiles, err := c.o.Catalog.List(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kernels = newKernels(profiles, c.counted)
	c.kernels.restricted = c.o.Catalog.Restricted
	if snapshot != "" {
		c.snapshot = snapshot
		for _, s := range c.sessions {
			s.send(Message{Snapshot: snapshot})
		}
	}
	c.markAllLocked()
	return nil
}

// janitor forgets old jobs.
func (c *Controller) janitor(ctx context.Context) {
	for {
		if err := jobKind.Prune(ctx, c.records.store, &c.records.jobIndex, c.o.KeepJobs); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			c.log.Warn("old jobs not forgotten", "error", err)
		}
		if err := c.pruneRuns(ctx, c.o.KeepRunBytes); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			c.log.Warn("old runs not forgotten", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Minute):
		}
	}
}
