package slurm

import (
	"context"
	"errors"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// ArmReturn has Slurm boot the nodes as soon as they are idle and resume them.
func (c *Client) ArmReturn(ctx context.Context, nodes []string, reason string) error {
	return c.change(ctx, "reboot", "ASAP", "nextstate=RESUME", "reason="+reason, strings.Join(nodes, ","))
}

// Disarm takes back a boot that Slurm has not begun.
func (c *Client) Disarm(ctx context.Context, nodes []string) error {
	return c.change(ctx, "cancel_reboot", strings.Join(nodes, ","))
}

// Drain keeps new jobs from a node.
func (c *Client) Drain(ctx context.Context, node, reason string) error {
	return c.change(ctx, "update", "nodename="+node, "state=drain", "reason="+reason)
}

// Down takes a node out of service.
func (c *Client) Down(ctx context.Context, node, reason string) error {
	return c.change(ctx, "update", "nodename="+node, "state=down", "reason="+reason)
}

// Resume lets jobs come to a node again.
func (c *Client) Resume(ctx context.Context, node string) error {
	return c.change(ctx, "update", "nodename="+node, "state=resume")
}

// Hold requeues a job and holds it.
func (c *Client) Hold(ctx context.Context, reference string) error {
	return c.change(ctx, "requeuehold", reference)
}

// HoldForUser makes a job's hold one that its user may release. One that is not
// held any more would be held anew.
func (c *Client) HoldForUser(ctx context.Context, reference string) error {
	return c.change(ctx, "uhold", reference)
}

// Requeue puts a job back into the queue.
func (c *Client) Requeue(ctx context.Context, reference string) error {
	return c.change(ctx, "requeue", reference)
}

// StartNow lets a waiting job start as soon as it has nodes, and has these
// booted for it.
func (c *Client) StartNow(ctx context.Context, reference string) error {
	return c.change(ctx, "update", "jobid="+reference, "starttime=now", "reboot=yes")
}

// Comment sets a job's AdminComment.
func (c *Client) Comment(ctx context.Context, reference, text string) error {
	return c.change(ctx, "update", "jobid="+reference, "admincomment="+text)
}

// SetNoRequeue keeps a job from being requeued.
func (c *Client) SetNoRequeue(ctx context.Context, reference string) error {
	return c.change(ctx, "update", "jobid="+reference, "requeue=0")
}

// Reserve reserves nodes for one job that waits, and ties the job to them. It
// finds its kernel there, so that Slurm need not wait for a boot.
func (c *Client) Reserve(ctx context.Context, name, reference, user string, nodes []string) error {
	_, _, err := c.run(ctx, c.scontrol, "create", "reservation", "reservationname="+name, "starttime=now",
		"duration=5", "users="+user, "flags=IGNORE_JOBS", "nodes="+strings.Join(nodes, ","))
	if err != nil {
		return err
	}
	return c.change(ctx, "update", "jobid="+reference, "reservationname="+name, "reboot=no")
}

// DropReservation deletes a reservation. Slurm deletes none that a job is tied
// to, be it waiting or running, so the job is untied where that is needed. One
// that waits needs a boot again; one that has begun can no longer be told.
func (c *Client) DropReservation(ctx context.Context, name string) error {
	err := c.change(ctx, "delete", "reservationname="+name)
	reference, ours := strings.CutPrefix(name, kb.ReservationPrefix)
	var refused *CommandError
	if !ours || !errors.As(err, &refused) {
		return err
	}
	if c.change(ctx, "update", "jobid="+reference, "reservationname=", "reboot=yes") != nil {
		if err := c.change(ctx, "update", "jobid="+reference, "reservationname="); err != nil {
			return errors.Join(refused, err)
		}
	}
	return c.change(ctx, "delete", "reservationname="+name)
}
