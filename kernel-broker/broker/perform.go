package broker

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/plan"
)

// perform carries out one action.
func (e *executor) perform(ctx context.Context, a plan.Action) error {
	slurm := e.c.o.Slurm
	switch a.Kind {
	case plan.ArmReturn:
		return slurm.ArmReturn(ctx, a.Nodes, a.Text)
	case plan.Disarm:
		return slurm.Disarm(ctx, a.Nodes)
	case plan.DrainNode:
		return slurm.Drain(ctx, a.Node, a.Text)
	case plan.DownNode:
		return slurm.Down(ctx, a.Node, a.Text)
	case plan.HoldJob:
		return e.c.hold(ctx, a.Job, a.Reference)
	case plan.HoldForUser:
		return slurm.HoldForUser(ctx, a.Reference)
	case plan.RequeueJob:
		return slurm.Requeue(ctx, a.Reference)
	case plan.StartJob:
		return slurm.StartNow(ctx, a.Reference)
	case plan.CommentJob:
		return e.comment(ctx, a)
	case plan.RestoreNoRequeue:
		return e.restoreNoRequeue(ctx, a)
	case plan.ReserveNodes:
		return slurm.Reserve(ctx, a.Text, a.Reference, a.User, a.Nodes)
	case plan.DropReservation:
		return slurm.DropReservation(ctx, a.Text)
	case plan.ResetNode:
		return e.reset(ctx, a)
	case plan.CountFault:
		return e.countFault(ctx, a)
	}
	return fmt.Errorf("action %q: %w", a.Kind, kb.ErrInvalid)
}

// hold holds a job, and looks after that.
func (c *Controller) hold(ctx context.Context, id kb.JobID, reference string) error {
	if err := c.o.Slurm.Hold(ctx, reference); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[id] = time.Now().UTC()
	c.wakeLocked(id)
	return nil
}

// reset resets a node unless it has come up since that was asked for.
func (e *executor) reset(ctx context.Context, a plan.Action) error {
	c := e.c
	c.mu.Lock()
	bootID, n := "", c.records.nodes[a.Node]
	if s := c.sessions[a.Node]; s != nil {
		bootID = s.agent.Boot.BootID
	}
	due := n != nil && n.Resettable(a.Token, bootID)
	c.mu.Unlock()
	if !due {
		return nil
	}
	if err := c.o.Reset.Reset(ctx, a.Node); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets[a.Token] = time.Now().UTC()
	return nil
}

func (e *executor) comment(ctx context.Context, a plan.Action) error {
	if err := e.c.o.Slurm.Comment(ctx, a.Reference, a.Text); err != nil {
		return err
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.c.told[a.Job] = a.Text
	return nil
}

func (e *executor) restoreNoRequeue(ctx context.Context, a plan.Action) error {
	if err := e.c.o.Slurm.SetNoRequeue(ctx, a.Reference); err != nil {
		return err
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.c.restored[a.Job] = true
	return nil
}

func (e *executor) countFault(ctx context.Context, a plan.Action) error {
	c := e.c
	if _, err := c.o.Catalog.RecordBootFailure(ctx, a.Fault.Token, a.Fault.Ref, a.Fault.Cause, c.o.QuarantineAfter); err != nil {
		return err
	}
	if err := c.refresh(ctx, ""); err != nil {
		return err
	}
	c.mu.Lock()
	c.counted[a.Fault.Token] = true
	c.mu.Unlock()
	return nil
}
