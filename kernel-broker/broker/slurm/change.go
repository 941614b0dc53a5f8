// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// ArmReturn has Slurm boot the nodes as soon as they are idle and resume them. No
// reason comes with it, which would take the place of one that a node has.
func (c *Client) ArmReturn(ctx context.Context, nodes []string) error {
	return c.change(ctx, "reboot", "ASAP", "nextstate=RESUME", strings.Join(nodes, ","))
}

// Label gives the reason of a node's state, which stays as it is.
func (c *Client) Label(ctx context.Context, node, reason string) error {
	return c.change(ctx, "update", "nodename="+node, "reason="+reason)
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

// Boot names the start of the slurmctld that answers: another one has forgotten
// what it was told last.
func (c *Client) Boot(ctx context.Context) (string, error) {
	out, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return "", err
	}
	boot, found := configured(out, "BOOT_TIME")
	if !found {
		return "", fmt.Errorf("scontrol show config has no BOOT_TIME: %w", kb.ErrUnavailable)
	}
	return boot, nil
}

// EndWait has Slurm no longer wait for the boot of a node without a job. It keeps
// the wait through every change of state but to FUTURE, out of which a node comes
// as one that has yet to register, whatever its boot. Slurm refuses it where a
// job is on the node.
func (c *Client) EndWait(ctx context.Context, node string) error {
	if err := c.change(ctx, "update", "nodename="+node, "state=future"); err != nil {
		return err
	}
	return c.Resume(ctx, node)
}

// SayAgain takes a boot back that Slurm waits for on a node without a slurmd,
// and takes the node out of service for a reason. The resume ends the wait, and
// has slurmctld take any boot up to now for one it knows; before slurmd answers
// it gives the node no job. A registration ends "down" where ReturnToService is
// 2, and no drain, so a node that is set down is drained as well.
func (c *Client) SayAgain(ctx context.Context, node, reason, state string) error {
	if err := c.Resume(ctx, node); err != nil {
		var refused *CommandError
		if !errors.As(err, &refused) { // there may be nothing to resume
			return err
		}
	}
	first := state
	if state == kb.StateDown {
		first = kb.StateDrain
	}
	if err := c.change(ctx, "update", "nodename="+node, "state="+first, "reason="+reason); err != nil || first == state {
		return err
	}
	return c.Down(ctx, node, reason)
}

// SettleBoot has slurmctld take every boot of an idle node up to now for one it
// knows, as a resume does; only what is out of service can be resumed.
func (c *Client) SettleBoot(ctx context.Context, node, reason string) error {
	if err := c.Drain(ctx, node, reason); err != nil {
		return err
	}
	return c.Resume(ctx, node)
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

// Cancel ends a job.
func (c *Client) Cancel(ctx context.Context, reference string) error {
	return c.command(ctx, c.scancel, reference)
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
	tied, err := c.tied(ctx, name)
	if err != nil {
		return errors.Join(refused, err)
	}
	for _, j := range tied {
		// Others that asked for it by themselves boot or not as they did.
		if j.Reference == reference && c.change(ctx, "update", "jobid="+reference, "reservationname=", "reboot=yes") == nil {
			continue
		}
		if err := c.change(ctx, "update", "jobid="+j.Reference, "reservationname="); err != nil {
			return errors.Join(refused, err)
		}
	}
	return c.change(ctx, "delete", "reservationname="+name)
}

// tied are the jobs that name a reservation.
func (c *Client) tied(ctx context.Context, name string) ([]kb.SlurmJob, error) {
	out, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--reservation="+name, "--Format="+jobFormat())
	if err != nil {
		return nil, err
	}
	var jobs []kb.SlurmJob
	for line := range strings.Lines(out) {
		job, err := parseJob(strings.TrimRight(line, "\n"))
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}
