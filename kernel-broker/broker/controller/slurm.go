// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Slurm is what the controller needs of slurmctld.
type Slurm interface {
	View(ctx context.Context, comments bool) (kb.SlurmView, error)
	Nodes(ctx context.Context, names []string) (map[string]kb.SlurmNode, error)
	AdminComment(ctx context.Context, job uint32) (string, error)
	// Cgroup is the name of a job's cgroup on its nodes, empty for job_ID.
	Cgroup(ctx context.Context, job uint32) (string, error)
	ArmReturn(ctx context.Context, nodes []string) error
	Label(ctx context.Context, nodes []string, reason string) error
	Disarm(ctx context.Context, nodes []string) error
	// Drain, Down and RestoreState have Slurm end that at a time, if it is not zero.
	Drain(ctx context.Context, node, reason string, until time.Time) error
	Down(ctx context.Context, node, reason string, until time.Time) error
	UndoPrologDrain(ctx context.Context, node, by string) error
	StartID(ctx context.Context) (string, error)
	EndWait(ctx context.Context, node string) error
	Resume(ctx context.Context, node string) error
	RestoreState(ctx context.Context, node, reason, state string, until time.Time) error
	SettleBoot(ctx context.Context, node, reason string) error
	Hold(ctx context.Context, reference string) error
	HoldForUser(ctx context.Context, reference string) error
	Requeue(ctx context.Context, reference string) error
	Cancel(ctx context.Context, reference string) error
	StartNow(ctx context.Context, reference string) error
	Comment(ctx context.Context, reference, text string) error
	SetFeatures(ctx context.Context, nodes []string, available, active string) error
	SetNoRequeue(ctx context.Context, reference string) error
	Reserve(ctx context.Context, name, reference, user string, nodes []string) error
	DropReservation(ctx context.Context, name string) error
}

// Resetter resets a node from outside, as a BMC does.
type Resetter interface {
	Reset(ctx context.Context, node string) error
}
