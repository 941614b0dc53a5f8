// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// errOvertaken: an administrator said something of the node after the poll that the action was decided by.
var errOvertaken = errors.New("what slurmctld says of it has changed")

// upToDate returns errOvertaken if the action would overwrite what was said of a node since the plan saw it. What is
// said in the milliseconds between this and the command is lost: Slurm has no conditional update.
func (e *executor) upToDate(ctx context.Context, a plan.Action) error {
	if len(a.Seen) == 0 {
		return nil
	}
	names := make([]string, len(a.Seen))
	for i, seen := range a.Seen {
		names[i] = seen.Name
	}
	nodes, err := e.c.o.Slurm.Nodes(ctx, names)
	if err != nil {
		return err
	}
	for _, seen := range a.Seen {
		if now := nodes[seen.Name]; a.Kind == plan.SetFeatures {
			if !slices.Equal(now.Features, seen.Features) || !slices.Equal(now.Available, seen.Available) {
				return fmt.Errorf("node %q: %w to %q", seen.Name, errOvertaken, now.Available)
			}
			continue
		}
		if now := nodes[seen.Name]; (now.Reason != seen.Reason || now.By != seen.By) && now.Reason != "" && !now.Ours() {
			return fmt.Errorf("node %q: %w to %q", seen.Name, errOvertaken, now.Reason)
		}
	}
	return nil
}

// errNotDue: what an action was for is over.
var errNotDue = errors.New("no longer needed")

// perform carries out one action, and keeps its receipt where a decision has to know.
func (e *executor) perform(ctx context.Context, a plan.Action) error {
	err := e.upToDate(ctx, a)
	if err == nil {
		err = e.carryOut(ctx, a)
	}
	refused := a.Kind == plan.UndoGate && errors.Is(err, kb.ErrFailedPrecondition)
	if refused || err == nil && a.Needed() {
		e.c.mu.Lock()
		defer e.c.mu.Unlock()
		e.c.receipts = append(e.c.receipts, plan.Receipt{Action: a, At: e.c.clock.Now(), Refused: refused})
		e.c.marks.node(a.Node)
		e.c.marks.job(a.Job)
	}
	if errors.Is(err, errNotDue) {
		return nil
	}
	return err
}

func (e *executor) carryOut(ctx context.Context, a plan.Action) error {
	slurm := e.c.o.Slurm
	switch a.Kind {
	case plan.ArmReturn:
		return slurm.ArmReturn(ctx, a.Nodes)
	case plan.LabelNodes:
		return slurm.Label(ctx, a.Nodes, a.Text)
	case plan.Disarm:
		return slurm.Disarm(ctx, a.Nodes)
	case plan.DrainNode:
		return slurm.Drain(ctx, a.Node, a.Text, a.Until)
	case plan.DownNode:
		return e.down(ctx, a)
	case plan.ResumeNode:
		return slurm.Resume(ctx, a.Node)
	case plan.EndWait:
		return slurm.EndWait(ctx, a.Node)
	case plan.RestoreState:
		return slurm.RestoreState(ctx, a.Node, a.Text, a.State, a.Until)
	case plan.SettleBoot:
		return slurm.SettleBoot(ctx, a.Node, a.Text)
	case plan.HoldJob:
		return e.c.hold(ctx, a.Job, a.Reference)
	case plan.HoldForUser:
		return slurm.HoldForUser(ctx, a.Reference)
	case plan.RequeueJob:
		return slurm.Requeue(ctx, a.Reference)
	case plan.CancelJob:
		return slurm.Cancel(ctx, a.Reference)
	case plan.StartJob:
		return slurm.StartNow(ctx, a.Reference)
	case plan.CommentJob:
		return slurm.Comment(ctx, a.Reference, a.Text)
	case plan.RestoreNoRequeue:
		return slurm.SetNoRequeue(ctx, a.Reference)
	case plan.ReserveNodes:
		return slurm.Reserve(ctx, a.Text, a.Reference, a.User, a.Nodes)
	case plan.DropReservation:
		return slurm.DropReservation(ctx, a.Text)
	case plan.ResetNode:
		return e.reset(ctx, a)
	case plan.CheckImage:
		return e.c.checkImage(ctx, a.Text)
	case plan.RebootNode:
		return e.reboot(ctx, a)
	case plan.CountFault:
		return e.countFault(ctx, a)
	case plan.SetFeatures:
		return slurm.SetFeatures(ctx, a.Nodes, a.Available, a.Text)
	case plan.UndoGate:
		return slurm.UndoPrologDrain(ctx, a.Node, a.By)
	}
	return fmt.Errorf("action %q: %w", a.Kind, kb.ErrInvalid)
}

// down takes a node down, for a job only while the node is lost to that one.
func (e *executor) down(ctx context.Context, a plan.Action) error {
	e.c.mu.Lock()
	n, job := e.c.records.nodes[a.Node], e.c.records.allocs[a.Job]
	due := a.Job.IsZero() || n != nil && n.Owner == a.Job && job != nil && job.HasLost(a.Node)
	e.c.mu.Unlock()
	if !due {
		return nil
	}
	return e.c.o.Slurm.Down(ctx, a.Node, a.Text, a.Until)
}

// reset resets a node unless it has come up since that was asked for.
func (e *executor) reset(ctx context.Context, a plan.Action) error {
	c := e.c
	c.mu.Lock()
	bootID, n := "", c.records.nodes[a.Node]
	if s := c.sessions[a.Node]; s != nil {
		bootID = s.agent.Boot.BootID
	}
	due := n != nil && n.Resettable(a.Token, bootID) &&
		!slices.ContainsFunc(c.receipts, func(r plan.Receipt) bool { return r.Action.Token == a.Token })
	c.mu.Unlock()
	if !due {
		return errNotDue
	}
	return c.o.Reset.Reset(ctx, a.Node)
}

func (e *executor) countFault(ctx context.Context, a plan.Action) error {
	c := e.c
	if _, err := c.o.Catalog.RecordBootFailure(ctx, catalog.BootFailure{ID: a.Fault.Token, Ref: a.Fault.Ref, Node: a.Node,
		Cause: a.Fault.Cause, Only: a.Fault.Only, Threshold: c.o.QuarantineAfter}); err != nil {
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
