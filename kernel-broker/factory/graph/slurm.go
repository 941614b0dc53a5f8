// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

// Slurm does each step in a job. The store is in a folder that all nodes of the
// partition see at the same path; a result comes back through it, and so do the
// log, the units and a failure. Jobs are looked after by looking at the store,
// and at Slurm only to learn of jobs that end without leaving anything.
//
// A job outlives the process that asked for it. A run that needs the same step
// next finds the job by its name and follows it. That is why this does not use
// sbatch --wait: its wait ends with its process, and it prints the job's number
// only at its end. A job of srun ends with srun, and Slurm requeues batch jobs only.
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

// do returns when the result of the task is in the store, or why it will not
// be. When ctx ends it sees to it that the job ends too. One process at a time
// looks after the step's job.
func (s *Slurm) do(ctx context.Context, t task) (Result, error) {
	t.slot = unlimited
	return t.once(ctx, "submit.lock", func(ctx context.Context, before string) (Result, error) {
		job, err := s.find(ctx, t)
		adopted := job != ""
		if err == nil && !adopted {
			// A process may work on the step without Slurm: a job would do nothing
			// but wait for it.
			if result, has, err := t.follow(ctx, "lock", before); has || err != nil {
				return result, err
			}
			job, err = s.submit(ctx, t)
		}
		if err != nil {
			return Result{}, err
		}
		result, err := s.watch(ctx, t, job, before)
		if ctx.Err() != nil {
			return Result{}, errors.Join(ctx.Err(), s.cancel(ctx, job))
		}
		result.shared = adopted
		return result, err
	})
}

// jobName finds the job of a step again, which works for the place of the result:
// the key, and the store.
func (t task) jobName() string {
	sum := sha256.Sum256([]byte(t.dir))
	return fmt.Sprintf("kb-%s-%.6x", t.step.Kind, sum)
}

func (s *Slurm) find(ctx context.Context, t task) (string, error) {
	text, _, err := slurmexec.Runner{}.Run(ctx, "squeue", "--noheader", "--me", "--name", t.jobName(),
		"--states", "PENDING,CONFIGURING,RUNNING,SUSPENDED", "--format", "%i")
	first, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(first), err
}

func (s *Slurm) submit(ctx context.Context, t task) (string, error) {
	file, err := t.hand()
	if err != nil {
		return "", err
	}
	args := []string{"--parsable", "--job-name", t.jobName(), "--output", t.path("job-%j.out"), "--requeue", "--chdir", "/"}
	if n := t.step.Resources.CPUs; n > 0 {
		args = append(args, "--cpus-per-task", strconv.Itoa(n))
	}
	if n := t.step.Resources.MemoryMiB; n > 0 {
		args = append(args, "--mem", strconv.Itoa(n)+"M")
	}
	if limit := t.step.Resources.Limit; limit > 0 {
		args = append(args, "--time", strconv.Itoa(int((limit+time.Minute-1)/time.Minute)))
	}
	text, _, err := slurmexec.Runner{Input: script(append(s.Worker, file))}.Run(ctx, "sbatch", append(args, s.Arguments...)...)
	if err != nil {
		return "", err
	}
	// The name of the cluster may follow.
	job, _, _ := strings.Cut(strings.TrimSpace(text), ";")
	if _, err := strconv.ParseUint(job, 10, 32); err != nil {
		return "", fmt.Errorf("sbatch answered %q, which is no job", text)
	}
	t.observe(update{state: Queued, job: job})
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

// watch returns when the job has come to something, or to an end. What an ended
// job left may take a file system a while to show.
func (s *Slurm) watch(ctx context.Context, t task, job, before string) (Result, error) {
	state, answered, end := Queued, time.Now(), time.Time{}
	ended := ""
	for look := 0; ; look++ {
		if result, has, err := t.left(before); has || err != nil {
			return result, err
		}
		switch {
		case !end.IsZero() && time.Now().After(end):
			output, err := Tail(t.path("job-"+job+".out"), tailLines)
			if err != nil {
				output = "" // it may never have begun
			}
			return Result{}, &JobError{Job: job, State: ended, Output: output}
		case end.IsZero() && look%10 == 0:
			now, err := s.state(ctx, job)
			if err != nil && (ctx.Err() != nil || time.Since(answered) > silence) {
				return Result{}, err
			}
			if err != nil {
				break // slurmctld may be restarting; the job goes on without it
			}
			if answered = time.Now(); hasEnded(now) {
				ended, end = now, time.Now().Add(s.grace(now))
				break
			}
			if state = Running; now == "PENDING" || now == "REQUEUED" || now == "CONFIGURING" {
				state = Queued
			}
			t.observe(update{state: state, job: job})
		case state == Running:
			t.passUnits(Running, job)
		}
		if err := pause(ctx, cmp.Or(s.Poll, time.Second)); err != nil {
			return Result{}, err
		}
	}
}

func (s *Slurm) grace(state string) time.Duration {
	grace := cmp.Or(s.Grace, 90*time.Second)
	if state != "COMPLETED" && state != "" {
		grace = min(grace, 10*time.Second) // there will hardly be a result
	}
	return grace
}

// state of a job; empty when Slurm does not know it any more.
func (s *Slurm) state(ctx context.Context, job string) (string, error) {
	text, _, err := slurmexec.Runner{}.Run(ctx, "squeue", "--noheader", "--states", "all", "--jobs", job, "--format", "%T")
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return "", nil
	}
	return strings.TrimSpace(text), err
}

// hasEnded reports the states that a job does not leave.
func hasEnded(state string) bool {
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
	_, _, err := slurmexec.Runner{}.Run(ctx, "scancel", job)
	return err
}
