// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// Slurm does each step in a job. The store is in a folder that all nodes of the
// partition see at the same path; a result comes back through it, and so do the
// log, the units and a failure. Jobs are looked after by looking at the store,
// and at Slurm only to learn of jobs that end without leaving anything.
//
// A job outlives the process that asked for it. A run that needs the same step
// next finds the job by its name and follows it. That is why this does not use
// sbatch --wait: its wait ends with its process, and it prints the job's number
// only at its end.
type Slurm struct {
	// Worker is the command that does the task of the file that is added to it.
	Worker []string
	// Arguments for sbatch, a partition for example.
	Arguments []string
	// Poll is the time between two looks at the store; Slurm is asked at every
	// tenth. 0: 1 s.
	Poll time.Duration
	// Grace is how long the result of an ended job may take to be seen through
	// a file system that caches names. 0: 90 s.
	Grace time.Duration
}

// JobError is a job that ended and left neither a result nor a failure.
type JobError struct {
	Job    string
	State  string // Slurm's, TIMEOUT for example; empty when Slurm forgot it
	Output string // the end of what it printed
}

func (e *JobError) Error() string {
	text := fmt.Sprintf("job %s ended without a result (%s)", e.Job, cmp.Or(e.State, "Slurm knows it no more"))
	if e.Output != "" {
		text += "\n" + e.Output
	}
	return text
}

// Where implements Executor.
func (s *Slurm) Where() string { return "slurm" }

// Do implements Executor.
func (s *Slurm) Do(ctx context.Context, t Task) (Outcome, error) {
	result, has, err := t.spot.found()
	if err != nil || has {
		return Outcome{Result: result, Cached: true}, err
	}
	before := t.spot.lastFailure()
	// One process at a time looks after the step's job.
	lock, err := filelock.Acquire(ctx, t.spot.path("submit.lock"), func() { t.Observe(Update{State: Following}) })
	if err != nil {
		return Outcome{}, err
	}
	defer lock.Release()
	if outcome, err := t.left(before); outcome.Shared || err != nil {
		return outcome, err
	}
	job, err := s.find(ctx, t)
	adopted := job != ""
	if err == nil && job == "" {
		if outcome, err := s.awaitLocal(ctx, t, before); outcome.Shared || err != nil {
			return outcome, err
		}
		job, err = s.submit(ctx, t)
	}
	if err != nil {
		return Outcome{}, err
	}
	outcome, err := s.watch(ctx, t, job, before)
	if ctx.Err() != nil {
		return Outcome{}, errors.Join(ctx.Err(), s.cancel(ctx, job))
	}
	outcome.Shared = adopted
	return outcome, err
}

// left is what others left since before: a result, or a failure.
func (t Task) left(before string) (Outcome, error) {
	result, has, err := t.spot.found()
	if err != nil || has {
		return Outcome{Result: result, Shared: true}, err
	}
	if failed, has := t.spot.failedSince(before, t.Step.Name); has {
		return Outcome{Shared: true}, failed
	}
	return Outcome{}, nil
}

// awaitLocal waits for a process that works on the step without Slurm: a job
// would do nothing but wait for it.
func (s *Slurm) awaitLocal(ctx context.Context, t Task, before string) (Outcome, error) {
	lock, err := filelock.Acquire(ctx, t.spot.path("lock"), func() { t.Observe(Update{State: Following}) })
	if err != nil {
		return Outcome{}, err
	}
	lock.Release()
	return t.left(before)
}

// jobName finds the job of a step again.
func (t Task) jobName() string { return "kb-" + t.Step.Kind + "-" + t.Key[:12] }

func (s *Slurm) find(ctx context.Context, t Task) (string, error) {
	text, err := slurm(ctx, nil, "squeue", "--noheader", "--me", "--name", t.jobName(),
		"--states", "PENDING,CONFIGURING,RUNNING,SUSPENDED", "--format", "%i")
	first, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(first), err
}

func (s *Slurm) submit(ctx context.Context, t Task) (string, error) {
	file, err := t.hand()
	if err != nil {
		return "", err
	}
	args := []string{"--parsable", "--job-name", t.jobName(), "--output", t.spot.path("job-%j.out"), "--requeue", "--chdir", "/"}
	if n := t.Step.Resources.CPUs; n > 0 {
		args = append(args, "--cpus-per-task", strconv.Itoa(n))
	}
	if n := t.Step.Resources.MemoryMiB; n > 0 {
		args = append(args, "--mem", strconv.Itoa(n)+"M")
	}
	if limit := t.Step.Resources.Limit; limit > 0 {
		args = append(args, "--time", strconv.Itoa(int((limit+time.Minute-1)/time.Minute)))
	}
	text, err := slurm(ctx, script(append(s.Worker, file)), "sbatch", append(args, s.Arguments...)...)
	if err != nil {
		return "", err
	}
	// The name of the cluster may follow.
	job, _, _ := strings.Cut(strings.TrimSpace(text), ";")
	if _, err := strconv.ParseUint(job, 10, 32); err != nil {
		return "", fmt.Errorf("sbatch answered %q, which is no job", text)
	}
	t.Observe(Update{State: Queued, Job: job})
	return job, nil
}

// script runs a command in a job, and gives it the signals.
func script(command []string) []byte {
	var text bytes.Buffer
	text.WriteString("#!/bin/sh\nexec")
	for _, word := range command {
		text.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	text.WriteString("\n")
	return text.Bytes()
}

// silence is how long slurmctld may not answer before a run gives up on it.
const silence = 10 * time.Minute

// watch returns when the job has come to something, or to an end.
func (s *Slurm) watch(ctx context.Context, t Task, job, before string) (Outcome, error) {
	state, answered := Queued, time.Now()
	for look := 0; ; look++ {
		if outcome, err := t.left(before); outcome.Shared || err != nil {
			return outcome, err
		}
		if look%10 == 0 {
			now, err := s.state(ctx, job)
			switch {
			case err != nil && (ctx.Err() != nil || time.Since(answered) > silence):
				return Outcome{}, err
			case err != nil:
				// slurmctld may be restarting; the job goes on without it.
				continue
			case ended(now):
				return s.ended(ctx, t, job, now, before)
			case now == "PENDING" || now == "REQUEUED" || now == "CONFIGURING":
				state = Queued
			default:
				state = Running
			}
			answered = time.Now()
			t.Observe(Update{State: state, Job: job})
		}
		if state == Running {
			s.passUnits(t, job)
		}
		select {
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		case <-time.After(s.poll()):
		}
	}
}

// passUnits passes on how far the job is.
func (s *Slurm) passUnits(t Task, job string) {
	observe := t.Observe
	t.Observe = func(u Update) {
		u.State, u.Job = Running, job
		observe(u)
	}
	t.passUnits()
}

// ended looks for what an ended job left, for as long as a file system may take
// to show it.
func (s *Slurm) ended(ctx context.Context, t Task, job, state, before string) (Outcome, error) {
	grace := cmp.Or(s.Grace, 90*time.Second)
	if state != "COMPLETED" && state != "" {
		grace = min(grace, 10*time.Second) // there will hardly be a result
	}
	for end := time.Now().Add(grace); ; {
		if outcome, err := t.left(before); outcome.Shared || err != nil {
			return outcome, err
		}
		if time.Now().After(end) {
			break
		}
		select {
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		case <-time.After(min(s.poll(), grace)):
		}
	}
	output, err := Tail(t.spot.path("job-"+job+".out"), tailLines)
	if err != nil {
		output = "" // it may never have begun
	}
	return Outcome{}, &JobError{Job: job, State: state, Output: output}
}

// state of a job; empty when Slurm does not know it any more.
func (s *Slurm) state(ctx context.Context, job string) (string, error) {
	text, err := slurm(ctx, nil, "squeue", "--noheader", "--states", "all", "--jobs", job, "--format", "%T")
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return "", nil
	}
	return strings.TrimSpace(text), err
}

// ended reports the states that a job does not leave.
func ended(state string) bool {
	switch state {
	case "", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT":
		return true
	}
	return false
}

// cancel ends a job whose run was stopped, though the run's context is over.
func (s *Slurm) cancel(ctx context.Context, job string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	_, err := slurm(ctx, nil, "scancel", job)
	return err
}

func (s *Slurm) poll() time.Duration { return cmp.Or(s.Poll, time.Second) }

// slurm runs one of Slurm's commands and returns what it printed.
func slurm(ctx context.Context, input []byte, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // G204: Slurm's commands, without a shell
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
