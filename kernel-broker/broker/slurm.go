package broker

import (
	"context"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Slurm is what the controller needs of slurmctld.
type Slurm interface {
	View(ctx context.Context, comments bool) (kb.SlurmView, error)
	AdminComment(ctx context.Context, job uint32) (string, error)
	ArmReturn(ctx context.Context, nodes []string, reason string) error
	Disarm(ctx context.Context, nodes []string) error
	Drain(ctx context.Context, node, reason string) error
	Down(ctx context.Context, node, reason string) error
	Hold(ctx context.Context, reference string) error
	HoldForUser(ctx context.Context, reference string) error
	Requeue(ctx context.Context, reference string) error
	StartNow(ctx context.Context, reference string) error
	Comment(ctx context.Context, reference, text string) error
	SetNoRequeue(ctx context.Context, reference string) error
	Reserve(ctx context.Context, name, reference, user string, nodes []string) error
	DropReservation(ctx context.Context, name string) error
}

// Resetter resets a node from outside, as a BMC does.
type Resetter interface {
	Reset(ctx context.Context, node string) error
}
