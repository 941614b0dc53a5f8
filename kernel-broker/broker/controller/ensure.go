// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/turns"
)

// Request asks for a job's kernel.
type Request struct {
	ID    kb.JobID
	Ref   kb.Ref
	Nodes []string
}

// JobProgress of an allocation.
type JobProgress struct {
	Phase        kb.Phase
	Message      string
	Ready, Total int
}

// Ensure records the allocation, or joins the one there is, and returns a
// channel that tells progress. The channel is closed when ctx ends; the switch
// goes on all the same.
func (c *Controller) Ensure(ctx context.Context, r Request) (<-chan JobProgress, error) {
	if err := c.accept(ctx, r); err != nil {
		return nil, err
	}
	out := make(chan JobProgress)
	wake := make(chan struct{}, 1)
	c.mu.Lock()
	c.watchers[r.ID] = append(c.watchers[r.ID], wake)
	c.marks.job(r.ID)
	c.kickLocked()
	c.mu.Unlock()
	c.pollNow()
	go c.follow(ctx, r.ID, wake, out)
	return out, nil
}

func (c *Controller) follow(ctx context.Context, id kb.JobID, wake chan struct{}, out chan<- JobProgress) {
	defer close(out)
	defer c.unwatch(id, wake)
	var last JobProgress
	for {
		p, err := c.progress(ctx, id)
		if err == nil && p != last {
			select {
			case out <- p:
				last = p
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-wake:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

func (c *Controller) unwatch(id kb.JobID, wake chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.watchers[id], func(ch chan struct{}) bool { return ch == wake })
	if c.watchers[id] = left; len(left) == 0 {
		delete(c.watchers, id)
	}
}

// holdLimit bounds how long a prolog waits until this broker has held its job.
const holdLimit = 10 * time.Second

func (c *Controller) progress(ctx context.Context, id kb.JobID) (JobProgress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.records.allocs[id]
	if a == nil {
		var err error
		if a, err = c.records.job(ctx, id.Job, &id.Restart); err != nil {
			return JobProgress{}, err
		}
	}
	p := JobProgress{Phase: a.Phase, Message: a.Reason, Total: len(a.Nodes)}
	for _, name := range a.Nodes {
		if n := c.records.nodes[name]; n != nil && n.Owner == a.ID && n.Steady() && !n.Slurm.Awaited.Awaits() {
			p.Ready++
		}
	}
	if a.Switching() && p.Message == "" {
		p.Message = c.stepLocked(a, p.Ready)
	}
	// A job to be held is held before its hook may end the prolog: slurmctld
	// would requeue it first. Then the sooner the better: see plan.HoldForUser.
	// Slurm holds no srun and no salloc, whose users wait for the answer.
	if a.Phase == kb.PhaseFailed && a.Hold && !a.Closed && a.Ended.IsZero() && !c.heldInSlurm[id] &&
		min(c.clock.Now().Sub(a.Since), c.clock.since()) <= holdLimit {
		p.Phase = kb.PhaseSwitching
	}
	if c.restoresLocked(a) {
		p.Phase, p.Message = kb.PhaseSwitching, "the broker sets --no-requeue again"
	}
	// And one that is to be profiled begins when its collectors stand by.
	if a.Phase == kb.PhaseReady && c.standsByLocked(a) {
		p.Phase, p.Message = kb.PhaseSwitching, fmt.Sprintf("the nodes make ready for profiling run %d", a.Run)
	}
	return p, nil
}

// accept records the allocation once.
func (c *Controller) accept(ctx context.Context, r Request) error {
	have, revision, err := c.known(ctx, r.ID)
	if err != nil {
		return err
	}
	if have != nil && !isReleasing(have) {
		return c.checkSameRequest(have, r)
	}
	if have == nil {
		// Before slurmctld is asked: jobs that wait ask again and again.
		if err := c.requireSlot(ctx, r.ID); err != nil {
			return err
		}
	}
	job, view, err := c.job(ctx, r.ID)
	if have != nil && (err != nil || job.State != "CONFIGURING") {
		return c.checkSameRequest(have, r)
	}
	if err != nil {
		return err
	}
	a, err := c.newAllocation(ctx, r, job, view)
	if err == nil {
		err = c.records.hasRoomFor(a)
	}
	if err != nil {
		return c.refused(ctx, r, job, have, revision, err)
	}
	c.goOn(a, have)
	return c.record(ctx, r, a, revision)
}

// isReleasing reports whether an allocation lets its nodes go. slurmctld may start the
// same run of the job once more: one that was killed has forgotten what it did
// in the seconds before.
func isReleasing(a *kb.Allocation) bool {
	return a.Closed || a.Phase == kb.PhaseReturning || a.Phase == kb.PhaseDone || a.Phase == kb.PhaseFailed && !a.Ended.IsZero()
}

// known is the allocation that this run of the job has or had, if any.
func (c *Controller) known(ctx context.Context, id kb.JobID) (*kb.Allocation, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.records.allocs[id]; a != nil {
		return a, c.records.revisions[jobKey(id)], nil
	}
	return c.records.run(ctx, id)
}

// record commits a new allocation, in the place of what had the revision.
func (c *Controller) record(ctx context.Context, r Request, a *kb.Allocation, revision int64) error {
	defer c.toWrite()()
	if have := c.records.allocs[r.ID]; have != nil && !isReleasing(have) {
		return c.checkSameRequest(have, r)
	} else if ahead, _ := c.askLocked(r.ID); have == nil && ahead >= 0 {
		return &kb.RetryableError{Wait: turns.AskEvery, Err: fmt.Errorf("job %s waits for its turn, %d ahead: %w", r.ID, ahead, kb.ErrExhausted)}
	}
	if c.records.allocs[r.ID] == nil && revision != 0 {
		c.records.revisions[jobKey(r.ID)] = revision
	}
	err := c.records.commit(ctx, nil, []*kb.Allocation{a})
	switch {
	case errors.Is(err, store.ErrConflict):
		c.stale = true
		old, jerr := c.records.job(ctx, r.ID.Job, &r.ID.Restart)
		if jerr != nil {
			return jerr
		}
		return c.checkSameRequest(old, r)
	case err != nil:
		c.stale = true
		return fmt.Errorf("job %d: %w: %w", r.ID.Job, kb.ErrUnavailable, err)
	}
	c.line.Leave(r.ID.Job)
	c.log.Info("allocation accepted", "job", r.ID.String(), "user", a.User, "kernel", a.Kernel.Ref().String(), "nodes", a.Nodes)
	return nil
}

func (c *Controller) checkSameRequest(have *kb.Allocation, r Request) error {
	if have.Requested != r.Ref || !slices.Equal(slices.Sorted(slices.Values(have.Had())), slices.Sorted(slices.Values(r.Nodes))) {
		return fmt.Errorf("job %s has an allocation for %s on %v: %w", r.ID, have.Requested, have.Had(), kb.ErrExists)
	}
	return nil
}

// job asks slurmctld for the job, since what the hook says of it is not enough,
// and returns the look it took.
func (c *Controller) job(ctx context.Context, id kb.JobID) (kb.SlurmJob, kb.SlurmView, error) {
	view, err := c.polls.take(ctx, false)
	if err != nil {
		return kb.SlurmJob{}, view, err
	}
	job, ok := view.Jobs[id.Job]
	if !ok || job.Restart != id.Restart || !job.Holds() {
		return kb.SlurmJob{}, view, fmt.Errorf("job %s has no nodes in slurmctld: %w", id, kb.ErrNotFound)
	}
	if job.Unread != "" {
		return kb.SlurmJob{}, view, fmt.Errorf("job %s: squeue does not show its nodes, cancel it if that stays so: %s: %w", id, job.Unread, kb.ErrUnavailable)
	}
	return job, view, nil
}

func (c *Controller) newAllocation(ctx context.Context, r Request, job kb.SlurmJob, view kb.SlurmView) (*kb.Allocation, error) {
	if r.Ref.IsStock() {
		return nil, fmt.Errorf("profile %q needs no allocation: %w", r.Ref, kb.ErrInvalid)
	}
	if c.o.Authorize != nil {
		if err := c.o.Authorize(ctx, job, r.Ref); err != nil {
			return nil, err
		}
	}
	version, err := c.o.Catalog.Check(ctx, r.Ref)
	if err != nil {
		return nil, err
	}
	profile, err := c.o.Catalog.Get(ctx, r.Ref.Profile)
	if err != nil {
		return nil, err
	}
	nodes := slices.Clone(job.Nodes)
	slices.Sort(nodes)
	asked := slices.Clone(r.Nodes)
	slices.Sort(asked)
	if !slices.Equal(nodes, asked) {
		return nil, fmt.Errorf("job %s is on nodes %v, not %v: %w", r.ID, nodes, asked, kb.ErrInvalid)
	}
	if err := alone(view, r.ID, nodes); err != nil {
		return nil, err
	}
	if err := c.agentless(r.ID, nodes); err != nil {
		return nil, err
	}
	if err := c.forbiddenOn(job, version.Kernel.Ref()); err != nil {
		return nil, err
	}
	if job.AdminComment, err = c.o.Slurm.AdminComment(ctx, job.ID); err != nil {
		return nil, err
	}
	cgroup, err := c.o.Slurm.Cgroup(ctx, job.ID)
	if err != nil { // only a profiling run needs it
		c.log.Warn("name of the job's cgroup not read, a profiling run would not find its processes", "job", r.ID.String(), "error", err)
	}
	last, err := c.lastRun(ctx, r.ID, job)
	if err != nil {
		return nil, err
	}
	collectors := c.collectorsFor(job)
	denied, err := c.deniedRun(ctx, r.ID, job, version.Kernel.Ref(), collectors)
	if err != nil {
		return nil, err
	}
	now := c.clock.Now()
	a := &kb.Allocation{
		Application: profile.Application, Collectors: collectors, Run: denied,
		ID: r.ID, Reference: job.Reference, User: job.User, UID: job.UID, Cgroup: cgroup, Requested: r.Ref, Kernel: version.Kernel,
		BootAttempts: profile.BootAttempts, BootTimeout: profile.BootTimeout, Reuse: profile.Reuse, Fallback: profile.Fallback,
		NoRequeue: job.SaidNoRequeue() || last.NoRequeue, Missed: last.Missed, Submitted: job.Submitted(), Nodes: r.Nodes, Phase: kb.PhaseAccepted, Since: now, Created: now,
	}
	a.Note(now, "", string(kb.PhaseAccepted), fmt.Sprintf("%s asked for %s", job.User, r.Ref))
	return a, nil
}

// alone refuses nodes that another job shares: its kernel would be taken away
// under it.
func alone(view kb.SlurmView, id kb.JobID, nodes []string) error {
	for _, name := range nodes {
		for _, j := range view.On(name) {
			if j.ID != id.Job && j.Holds() {
				return fmt.Errorf("node %q is shared with job %s: %w", name, j.Reference, kb.ErrFailedPrecondition)
			}
		}
	}
	return nil
}
