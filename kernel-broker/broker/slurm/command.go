// SPDX-License-Identifier: Apache-2.0

// Package slurm polls slurmctld and makes the product's changes there, through Slurm's own commands. It decides nothing.
//
// It uses commands instead of the C library: their output is stable from 22.05 on, whereas the library must match
// slurmctld to the micro version. It only parses fields that users cannot write. Accounts and comments, which may hold
// any text, have separate queries with fixed-length records.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

// Client runs Slurm's commands. Safe for concurrent use.
type Client struct {
	scontrol, squeue, scancel string
	runner                    slurmexec.Runner
	now                       func() time.Time
	timeouts                  cache.Cache[struct{}, time.Duration]
	cgroups                   cache.Cache[struct{}, bool] // named by SLUID
	jobTurns                  *semaphore.Weighted
	rows                      *rows
	hold                      Hold
}

// Hold returns a context that ends when this process may not change anything any more, or why it may not now.
type Hold func(context.Context) (context.Context, context.CancelFunc, error)

// jobsAtATime limits the questions about one job each: a thousand jobs may begin at once, and each question is a process
// on slurmctld's host.
const jobsAtATime = 8

// Options of a client.
type Options struct {
	// BinDir holds scontrol, squeue and scancel.
	BinDir string
	// Conf is the path of slurm.conf; empty for Slurm's default.
	Conf string
	// Limit bounds every command.
	Limit time.Duration
	// Now is the clock of polls; nil means time.Now.
	Now func() time.Time
	// Hold is asked before each command that changes something; nil: nobody else changes anything.
	Hold Hold
}

// New returns a client.
func New(o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Hold == nil {
		o.Hold = func(ctx context.Context) (context.Context, context.CancelFunc, error) { return ctx, func() {}, nil }
	}
	return &Client{
		now:      o.Now,
		scontrol: o.BinDir + "/scontrol", squeue: o.BinDir + "/squeue", scancel: o.BinDir + "/scancel",
		runner:   slurmexec.Runner{Environ: append(os.Environ(), "LC_ALL=C", "SLURM_TIME_FORMAT=standard"), Conf: o.Conf, Limit: o.Limit, MaxOutput: maxOutput},
		jobTurns: semaphore.NewWeighted(jobsAtATime),
		rows:     newRows(),
		hold:     o.Hold,
	}
}

// maxOutput limits the output of a command. 10,000 nodes take some 10 MB, as many pending jobs 2 MB, and 11 MB with
// their comments.
const maxOutput = 256 << 20

// run executes one command and returns its output, also what it printed on stderr.
func (c *Client) run(ctx context.Context, program string, args ...string) (stdout, stderr string, err error) {
	return c.runner.Run(ctx, program, args...)
}

// change runs a scontrol command that has no output.
func (c *Client) change(ctx context.Context, args ...string) error {
	return c.command(ctx, c.scontrol, args...)
}

// command runs a program that has no output. Text on stderr is a refusal, whatever the exit code.
func (c *Client) command(ctx context.Context, program string, args ...string) error {
	stderr, err := c.held(ctx, program, args...)
	if err != nil {
		return err
	}
	if stderr != "" {
		return slurmexec.Refused(0, stderr, program, args...)
	}
	return nil
}

// held runs a program that changes something, while this process may.
func (c *Client) held(ctx context.Context, program string, args ...string) (stderr string, err error) {
	ctx, release, err := c.hold(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	_, stderr, err = c.run(ctx, program, args...)
	return stderr, err
}

// ArmReturn makes Slurm boot the nodes as soon as they are idle and then resume them. It sets no reason, which would
// replace the node's own.
func (c *Client) ArmReturn(ctx context.Context, nodes []string) error {
	return c.change(ctx, "reboot", "ASAP", "nextstate=RESUME", strings.Join(nodes, ","))
}

// Label sets the reason of the nodes' states and keeps the states.
func (c *Client) Label(ctx context.Context, nodes []string, reason string) error {
	return c.change(ctx, "update", "nodename="+strings.Join(nodes, ","), "reason="+reason)
}

// SetFeatures replaces the available and the active features of nodes. One that is active has to be available, and setting
// the available ones alone makes them active.
func (c *Client) SetFeatures(ctx context.Context, nodes []string, available, active string) error {
	return c.change(ctx, "update", "nodename="+hostlist.Compress(nodes), "availablefeatures="+available, "activefeatures="+active)
}

// Disarm cancels a boot that Slurm has not started.
func (c *Client) Disarm(ctx context.Context, nodes []string) error {
	return c.change(ctx, "cancel_reboot", strings.Join(nodes, ","))
}

// Drain keeps new jobs from a node, until a time if it is not zero.
func (c *Client) Drain(ctx context.Context, node, reason string, until time.Time) error {
	return c.takeOut(ctx, node, kb.StateDrain, reason, until)
}

// Down takes a node out of service, until a time if it is not zero.
func (c *Client) Down(ctx context.Context, node, reason string, until time.Time) error {
	return c.takeOut(ctx, node, kb.StateDown, reason, until)
}

// takeOut sets a node's state and reason. Slurm counts the time that is left in seconds, from 23.02 on; only there has a
// state an end.
func (c *Client) takeOut(ctx context.Context, node, state, reason string, until time.Time) error {
	args := []string{"update", "nodename=" + node, "state=" + state, "reason=" + reason}
	if !until.IsZero() {
		left := max(until.Sub(c.now()), time.Second).Round(time.Second)
		args = append(args, fmt.Sprintf("resumeafter=%d", int(left.Seconds())))
	}
	return c.change(ctx, args...)
}

// Resume makes a node available to jobs again.
func (c *Client) Resume(ctx context.Context, node string) error {
	return c.change(ctx, "update", "nodename="+node, "state=resume")
}

// StartID identifies the running slurmctld: another one has forgotten recent changes.
func (c *Client) StartID(ctx context.Context) (string, error) {
	return c.setting(ctx, "BOOT_TIME")
}

// EndWait ends Slurm's wait for the boot of a node without a job. The wait survives every state change but to FUTURE,
// from which a node returns as unregistered. Slurm refuses this while a job is on the node.
func (c *Client) EndWait(ctx context.Context, node string) error {
	if err := c.change(ctx, "update", "nodename="+node, "state=future"); err != nil {
		return err
	}
	return c.Resume(ctx, node)
}

// RestoreState cancels a boot that Slurm awaits on a node without slurmd and takes the node out of service with a reason.
// The resume ends the wait and makes slurmctld accept all boots so far as known; it schedules no job on the node before
// slurmd answers. With ReturnToService=2 a registration ends "down" but not a drain, so a node that is set down is
// drained as well.
func (c *Client) RestoreState(ctx context.Context, node, reason, state string, until time.Time) error {
	if err := c.Resume(ctx, node); err != nil {
		var refused *slurmexec.ExitError
		if !errors.As(err, &refused) { // there may be nothing to resume
			return err
		}
	}
	first := state
	if state == kb.StateDown {
		first = kb.StateDrain
	}
	if err := c.takeOut(ctx, node, first, reason, until); err != nil || first == state {
		return err
	}
	return c.Down(ctx, node, reason, until)
}

// SettleBoot makes slurmctld accept all boots of an idle node so far as known, as a resume does; only a node that is out
// of service can be resumed.
func (c *Client) SettleBoot(ctx context.Context, node, reason string) error {
	if err := c.Drain(ctx, node, reason, time.Time{}); err != nil {
		return err
	}
	return c.Resume(ctx, node)
}

// Hold requeues a job that has its nodes and holds it.
func (c *Client) Hold(ctx context.Context, reference string) error {
	return c.change(ctx, "requeuehold", scontrol.Incomplete, whole(reference))
}

// HoldForUser makes a job's hold releasable by its user. A job that is no longer held would be held again.
func (c *Client) HoldForUser(ctx context.Context, reference string) error {
	return c.change(ctx, "uhold", whole(reference))
}

// Requeue puts a job back into the queue that has its nodes.
func (c *Client) Requeue(ctx context.Context, reference string) error {
	return c.change(ctx, "requeue", scontrol.Incomplete, whole(reference))
}

// whole is the job that a component of a heterogeneous job (20+1) belongs to: Slurm requeues it by its leader (20) only,
// and refuses the component's own name.
func whole(reference string) string {
	leader, _, _ := strings.Cut(reference, "+")
	return leader
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

// Comment writes the product's part of a job's AdminComment. job_submit.lua keeps the parts of others.
func (c *Client) Comment(ctx context.Context, reference, text string) error {
	return c.change(ctx, "update", "jobid="+reference, "admincomment="+kb.OnePart(text))
}

// SetNoRequeue keeps a job from being requeued.
func (c *Client) SetNoRequeue(ctx context.Context, reference string) error {
	return c.change(ctx, "update", "jobid="+reference, "requeue=0")
}

// Reserve reserves nodes for one pending job and ties the job to them. The nodes run its kernel already, so Slurm need
// not wait for a boot. A reservation of these nodes that exists without its job is completed. It is dropped within
// seconds; that it lasts for a day is for a broker that dies meanwhile: Slurm ends a job whose reservation ends, and
// holds one that waits for it unless told otherwise.
func (c *Client) Reserve(ctx context.Context, name, reference, user string, nodes []string) error {
	_, err := c.held(ctx, c.scontrol, "create", "reservation", "reservationname="+name, "starttime=now",
		"duration=1-00:00:00", "users="+user, "flags=IGNORE_JOBS,NO_HOLD_JOBS_AFTER_END", "nodes="+strings.Join(nodes, ","))
	if err != nil && !c.reserved(ctx, name, nodes, err) {
		return err
	}
	return c.change(ctx, "update", "jobid="+reference, "reservationname="+name, "reboot=no")
}

// reserved reports whether slurmctld refused to make a reservation that it has.
func (c *Client) reserved(ctx context.Context, name string, nodes []string, err error) bool {
	var refused *slurmexec.ExitError
	if !errors.As(err, &refused) {
		return false
	}
	list, err := c.reservations(ctx)
	return err == nil && slices.ContainsFunc(list, func(r kb.SlurmReservation) bool {
		return r.Name == name && slices.Equal(slices.Sorted(slices.Values(r.Nodes)), slices.Sorted(slices.Values(nodes)))
	})
}

// DropReservation deletes a reservation. Slurm deletes none that a pending or running job is tied to, so it unties the
// job first if needed. A pending job then needs a boot again; a running one cannot be changed.
func (c *Client) DropReservation(ctx context.Context, name string) error {
	err := c.change(ctx, "delete", "reservationname="+name)
	reference, ours := strings.CutPrefix(name, kb.ReservationPrefix)
	var refused *slurmexec.ExitError
	if !ours || !errors.As(err, &refused) {
		return err
	}
	tied, err := c.tied(ctx, name)
	if err != nil {
		return errors.Join(refused, err)
	}
	for _, j := range tied {
		// Other jobs that requested the reservation keep their own reboot setting.
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
	return parseJobs(out)
}
