// SPDX-License-Identifier: Apache-2.0

// Package qualify boots a node into a kernel and back, round after round, by jobs in a reservation of its own, and
// summarises the phases of these boots by the timelines that the broker keeps of the jobs.
package qualify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

// Options of a qualification.
type Options struct {
	Node, Kernel string
	Rounds       int
	// RoundLimit bounds one round.
	RoundLimit time.Duration
	// Scontrol is its path; the other commands of Slurm are beside it. SlurmConf is theirs; empty: Slurm's default.
	Scontrol, SlurmConf string
	// Job asks the broker for a job.
	Job func(ctx context.Context, id uint32) (*api.Job, error)
	// Done is called after each round.
	Done func(round int)
	// Warn tells what could not be restored.
	Warn func(text string)
}

// Round is one boot there and back.
type Round struct {
	Job uint32 `json:"job"`
	// Switch and Return are the known phases in seconds; ReturnedBy is the way back.
	Switch      map[string]float64 `json:"switch"`
	Return      map[string]float64 `json:"return"`
	ReturnedBy  kb.Way             `json:"returned_by"`
	there, back Boot
}

// Result of a qualification.
type Result struct {
	Node   string    `json:"node"`
	Kernel string    `json:"kernel"`
	Rounds []Round   `json:"rounds"`
	Phases []Summary `json:"phases"`
}

const (
	pollPause = 500 * time.Millisecond
	// commandLimit bounds one command of Slurm.
	commandLimit = 30 * time.Second
	// answered is longer than slurmctld takes to ask a node that came back whether it is there. An answer that comes in the
	// next boot is that boot to Slurm, and its job would be requeued.
	answered = 2 * time.Second
	// restoreLimit bounds what is done at the end, also after an interrupt.
	restoreLimit = 5 * time.Minute
)

// qualifier is a qualification under way.
type qualifier struct {
	Options
	reservation string
	partition   string
	job         uint32 // that may not be over
}

// Run qualifies a node. It restores what it changed also after an error or an interrupt; the rounds that ended are in
// the result.
func Run(ctx context.Context, o Options) (result Result, err error) {
	q := &qualifier{Options: o, reservation: fmt.Sprintf("qualify-%s-%d", o.Node, os.Getpid())}
	result = Result{Node: o.Node, Kernel: o.Kernel, Rounds: []Round{}, Phases: []Summary{}}
	before, err := q.idle(ctx)
	if err != nil {
		return result, err
	}
	if strings.HasPrefix(before.Reason, kb.ReasonDrain) {
		// What the broker said of the node is over with its resume: the drain at the end is the administrator's.
		before.Reason = "drained before its qualification by " + before.Reason
	}
	minutes := int((o.RoundLimit*time.Duration(o.Rounds) + restoreLimit).Minutes()) + 1
	if err := q.reserve(ctx, minutes); err != nil {
		return result, fmt.Errorf("node %q cannot be reserved: %w", o.Node, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
		defer cancel()
		err = errors.Join(err, q.restore(ctx, before))
	}()
	if before.Drained() {
		if _, err := q.slurm(ctx, "scontrol", "update", "NodeName="+o.Node, "State=RESUME"); err != nil {
			return result, err
		}
	}
	for round := range o.Rounds {
		if round > 0 {
			if err := pause(ctx, answered); err != nil {
				return result, err
			}
		}
		r, err := q.round(ctx, round)
		if err != nil {
			return result, fmt.Errorf("round %d of %d: %w", round+1, o.Rounds, err)
		}
		result.Rounds = append(result.Rounds, r)
		result.Phases = summarise(result.Rounds)
		o.Done(round + 1)
	}
	return result, nil
}

// reserve creates the reservation. It exists also where only the answer of slurmctld was lost.
func (q *qualifier) reserve(ctx context.Context, minutes int) error {
	_, err := q.slurm(ctx, "scontrol", "create", "reservation", "ReservationName="+q.reservation, "Nodes="+q.Node,
		"Users="+strconv.Itoa(os.Getuid()), "StartTime=now", "Duration="+strconv.Itoa(minutes))
	if err == nil {
		return nil
	}
	list, unknown := q.look(ctx, "scontrol", "--oneliner", "show", "reservation")
	switch {
	case unknown != nil:
		return fmt.Errorf("%w; whether it is left is not known: scontrol delete ReservationName=%s: %w", err, q.reservation, unknown)
	case slices.Contains(strings.Fields(list), "ReservationName="+q.reservation):
		return nil
	}
	return err
}

// submit submits a round's job and returns its number, also where only the answer of slurmctld was lost.
func (q *qualifier) submit(ctx context.Context, round int) (string, error) {
	comment := fmt.Sprintf("%s-%d", q.reservation, round+1)
	text, err := q.slurm(ctx, "sbatch", "--parsable", "--job-name=kernel-qualify", "--comment="+comment, "--reservation="+q.reservation,
		"--partition="+q.partition, "--nodes=1", "--nodelist="+q.Node, "--no-requeue", "--chdir=/", "--output=/dev/null", "--kernel-profile="+q.Kernel, "--wrap=true")
	if err == nil {
		return text, nil
	}
	list, unknown := q.look(ctx, "squeue", "--noheader", "--me", "--states=all", "--name=kernel-qualify", "--format=%i %k")
	if unknown != nil {
		return "", fmt.Errorf("%w; whether its job is left is not known: scancel --name=kernel-qualify: %w", err, unknown)
	}
	for line := range strings.Lines(list) {
		if id, of, _ := strings.Cut(strings.TrimSpace(line), " "); of == comment {
			return id, nil
		}
	}
	return "", err
}

// look asks slurmctld until it answers, also after an interrupt.
func (q *qualifier) look(ctx context.Context, program string, arguments ...string) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	err = q.wait(ctx, func() (bool, error) {
		var failed error
		text, failed = q.slurm(ctx, program, arguments...)
		return failed == nil, nil
	})
	return text, err
}

// idle refuses a node that somebody else uses.
func (q *qualifier) idle(ctx context.Context) (kb.SlurmNode, error) {
	n, err := q.state(ctx)
	if err != nil {
		return n, err
	}
	jobs, err := q.slurm(ctx, "squeue", "--noheader", "--nodelist="+q.Node, "--format=%i")
	if err != nil {
		return n, err
	}
	if ids := strings.Fields(jobs); len(ids) > 0 {
		return n, fmt.Errorf("node %q has job %s: drain it (scontrol update NodeName=%s State=DRAIN Reason=qualify) and wait: %w", q.Node, strings.Join(ids, ", "), q.Node, kb.ErrFailedPrecondition)
	}
	if n.State != "IDLE" && n.State != "DRAINED" || len(slices.DeleteFunc(slices.Clone(n.Flags), func(f string) bool { return f == "DRAIN" })) > 0 {
		return n, fmt.Errorf("node %q is %s: it must be idle, or idle and drained: %w", q.Node, n.FullState(), kb.ErrFailedPrecondition)
	}
	if len(n.Partitions) == 0 {
		return n, fmt.Errorf("node %q is in no partition: %w", q.Node, kb.ErrFailedPrecondition)
	}
	q.partition = n.Partitions[0]
	return n, nil
}

// round is one job, from its submission until its node is back.
func (q *qualifier) round(ctx context.Context, round int) (Round, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.RoundLimit, fmt.Errorf("not over within %v", q.RoundLimit))
	defer cancel()
	text, err := q.submit(ctx, round)
	if err != nil {
		return Round{}, err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(text), ";")
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return Round{}, fmt.Errorf("sbatch printed %q: %w", text, kb.ErrInvalid)
	}
	q.job = uint32(number)
	job, err := q.over(ctx)
	if err != nil {
		return Round{}, err
	}
	there, back := boots(job, q.Node)
	if err := q.wait(ctx, func() (bool, error) {
		n, err := q.state(ctx)
		return n.State == "IDLE" && n.Free() && !n.Armed() && !n.Waiting() && !n.Drained(), err
	}); err != nil {
		return Round{}, fmt.Errorf("node %q did not come back: %w", q.Node, err)
	}
	q.job = 0
	return Round{Job: job.GetJobId(), Switch: there.seconds(), Return: back.seconds(), ReturnedBy: back.Way, there: there, back: back}, nil
}

// over waits until the job's node has returned.
func (q *qualifier) over(ctx context.Context) (job *api.Job, err error) {
	err = q.wait(ctx, func() (bool, error) {
		found, err := q.Job(ctx, q.job)
		if status.Code(err) == codes.NotFound {
			// The broker sees a job with its next poll of slurmctld.
			_, err = q.slurm(ctx, "squeue", "--noheader", "--jobs="+strconv.FormatUint(uint64(q.job), 10))
			return false, err
		}
		if status.Code(err) == codes.Unavailable {
			return false, nil // a broker that is restarted goes on with the switch
		}
		if err != nil {
			return false, err
		}
		job = found
		switch job.GetPhase() {
		case api.AllocationPhase_ALLOCATION_PHASE_FAILED, api.AllocationPhase_ALLOCATION_PHASE_REQUEUED, api.AllocationPhase_ALLOCATION_PHASE_HELD:
			return false, fmt.Errorf("job %d: %s: %w", q.job, job.GetReason(), kb.ErrFailedPrecondition)
		case api.AllocationPhase_ALLOCATION_PHASE_WAITING:
			if held := job.GetReason(); strings.Contains(held, "scontrol release") {
				return false, fmt.Errorf("job %d: %s %s: %w", q.job, held, q.comment(ctx), kb.ErrFailedPrecondition)
			}
		}
		return job.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_DONE, nil
	})
	if err != nil && job != nil && context.Cause(ctx) != nil {
		err = fmt.Errorf("%w; the job is %s", err, strings.ToLower(strings.TrimPrefix(job.GetPhase().String(), "ALLOCATION_PHASE_")))
	}
	return job, err
}

// comment is what the broker wrote about the job.
func (q *qualifier) comment(ctx context.Context) string {
	text, err := q.slurm(ctx, "scontrol", "--oneliner", "show", "job", strconv.FormatUint(uint64(q.job), 10))
	if err != nil {
		return err.Error()
	}
	if found := commentPattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// commentPattern is scontrol's AdminComment, which ends with the next key.
var commentPattern = regexp.MustCompile(` AdminComment=(.*?)(?: [A-Z][A-Za-z/]*=|\s*$)`)

// restore ends the job, sets the node's drain again and removes the reservation, so that no other job gets in between.
// The drain does not wait for the job: on a node that hangs the job does not leave.
func (q *qualifier) restore(ctx context.Context, before kb.SlurmNode) error {
	var all error
	if q.job != 0 {
		_, err := q.slurm(ctx, "scancel", strconv.FormatUint(uint64(q.job), 10))
		all = errors.Join(all, err)
	}
	if before.Drained() {
		if _, err := q.slurm(ctx, "scontrol", "update", "NodeName="+q.Node, "State=DRAIN", "Reason="+before.Reason); err != nil {
			all = errors.Join(all, fmt.Errorf("node %q could not be drained again; run scontrol update NodeName=%s State=DRAIN Reason=%q: %w", q.Node, q.Node, before.Reason, err))
		}
	}
	if q.job != 0 && q.left(ctx) != nil {
		q.Warn(fmt.Sprintf("job %d is still on node %s", q.job, q.Node))
	}
	err := q.wait(ctx, func() (bool, error) {
		_, err := q.slurm(ctx, "scontrol", "delete", "ReservationName="+q.reservation)
		return err == nil, nil // a job that just ends may still hold it
	})
	if err != nil {
		err = fmt.Errorf("reservation %s remains; run scontrol delete ReservationName=%s: %w", q.reservation, q.reservation, err)
	}
	return errors.Join(all, err)
}

// left waits until the job has left the node, and leaves time for what follows.
func (q *qualifier) left(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restoreLimit/2)
	defer cancel()
	return q.wait(ctx, func() (bool, error) {
		jobs, err := q.slurm(ctx, "squeue", "--noheader", "--jobs="+strconv.FormatUint(uint64(q.job), 10))
		return err != nil || strings.TrimSpace(jobs) == "", nil // slurmctld forgets jobs
	})
}

func (q *qualifier) state(ctx context.Context) (kb.SlurmNode, error) {
	text, err := q.slurm(ctx, "scontrol", "--oneliner", "show", "node", q.Node)
	if err != nil {
		return kb.SlurmNode{}, err
	}
	n, ok := scontrol.ParseNode(text)
	if !ok {
		return n, fmt.Errorf("node %q: scontrol printed %.200q: %w", q.Node, text, kb.ErrInvalid)
	}
	// The reservation shows as a flag; it is ours.
	n.Flags = slices.DeleteFunc(n.Flags, func(f string) bool { return f == "RESERVED" && n.State == "IDLE" })
	return n, nil
}

func (q *qualifier) wait(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if cause := context.Cause(ctx); cause != nil && !ok {
			return cause
		}
		if err != nil || ok {
			return err
		}
		if err := pause(ctx, pollPause); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// slurm runs a command of Slurm's. An interrupt ends none that restores.
func (q *qualifier) slurm(ctx context.Context, program string, arguments ...string) (string, error) {
	out, _, err := slurmexec.Runner{Conf: q.SlurmConf, Limit: commandLimit}.Run(ctx, filepath.Join(filepath.Dir(q.Scontrol), program), arguments...)
	return out, err
}
