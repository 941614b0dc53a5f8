// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// Task is a step whose inputs are all known.
type Task struct {
	Step  Step
	Key   string
	Needs map[string]Result
	// Slot waits until the step may use the machine, and returns what gives
	// the machine back.
	Slot func(ctx context.Context) (func(), error)
	// Observe receives changes; calls come one after the other.
	Observe func(Update)

	spot spot
}

// Update is a change in how a task stands.
type Update struct {
	State State
	Job   string // Slurm's, where it has one
	Done  int
	Total int
}

// Outcome of a task.
type Outcome struct {
	Result Result
	// Cached: it was there before. Shared: another process made it meanwhile.
	Cached, Shared bool
	// Bytes of the result; the run fills it in.
	Bytes int64
}

// pollInterval is how often a follower looks at what it follows.
const pollInterval = 200 * time.Millisecond

// perform does the work of a task, unless its result is there or comes while
// another process works on it. It holds the lock for as long as it works, and
// takes it no sooner than it may: another process may be able to begin at once.
func (t Task) perform(ctx context.Context) (Outcome, error) {
	result, has, err := t.spot.found()
	if err != nil || has {
		return Outcome{Result: result, Cached: true}, err
	}
	before := t.spot.lastFailure()
	free, err := t.Slot(ctx)
	if err != nil {
		return Outcome{}, err
	}
	lock, err := filelock.Try(t.spot.path("lock"))
	if errors.Is(err, filelock.ErrHeld) {
		free()
		return t.follow(ctx, before)
	}
	defer free()
	if err != nil {
		return Outcome{}, err
	}
	defer lock.Release()
	result, has, err = t.spot.found()
	if err != nil || has {
		return Outcome{Result: result, Shared: true}, err
	}
	result, err = t.attempt(ctx)
	return Outcome{Result: result}, err
}

// follow waits for the process that holds the lock, and does the work itself
// when that one goes away with neither a result nor a failure.
func (t Task) follow(ctx context.Context, before string) (Outcome, error) {
	t.Observe(Update{State: Following})
	for {
		lock, err := filelock.Try(t.spot.path("lock"))
		if err != nil && !errors.Is(err, filelock.ErrHeld) {
			return Outcome{}, err
		}
		result, has, foundErr := t.spot.found()
		failed, hasFailed := t.spot.failedSince(before, t.Step.Name)
		switch {
		case foundErr != nil || has:
			release(lock)
			return Outcome{Result: result, Shared: true}, foundErr
		case lock != nil && hasFailed:
			release(lock)
			return Outcome{Shared: true}, failed
		case lock != nil:
			release(lock)
			return t.perform(ctx)
		}
		t.passUnits()
		select {
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func release(lock *filelock.Lock) {
	if lock != nil {
		lock.Release()
	}
}

// attempt does the work; slot and lock are held.
func (t Task) attempt(ctx context.Context) (Result, error) {
	if err := t.spot.clear(); err != nil {
		return Result{}, fmt.Errorf("step %q: left-over of a killed run: %w", t.Step.Name, err)
	}
	t.Observe(Update{State: Running})
	result, err := t.fill(ctx)
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		// Stopped, not failed: the next run that needs the step begins it again.
		return Result{}, fmt.Errorf("step %q: %w", t.Step.Name, ctx.Err())
	}
	return Result{}, t.spot.fail(t.Step.Name, err)
}

// fill runs the step in a new folder and moves it into place.
func (t Task) fill(ctx context.Context) (result Result, err error) {
	partial, err := os.MkdirTemp(t.spot.dir, partialPrefix)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(partial))
		}
	}()
	work := filepath.Join(partial, "files")
	if err := errors.Join(os.Chmod(partial, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return Result{}, err
	}
	log, err := openLog(t.spot.log())
	if err != nil {
		return Result{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for information only
	}
	result = Result{Kind: t.Step.Kind, Key: t.Key, Inputs: t.Step.Inputs, Needs: map[string]string{},
		Began: time.Now().UTC(), Host: host}
	for as, need := range t.Needs {
		result.Needs[as] = need.Digest
	}
	units := t.newUnits()
	err = t.Step.Run(ctx, &Work{Dir: work, Log: log, needs: t.Needs, units: units.report})
	if err = errors.Join(err, log.Close(), units.Close(), ctx.Err()); err != nil {
		return Result{}, err
	}
	return t.spot.keep(partial, result)
}

// act does a step that is an effect: no lock, no result, its log at that path.
func (t Task) act(ctx context.Context, logPath string) error {
	free, err := t.Slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	t.Observe(Update{State: Running})
	log, err := openLog(logPath)
	if err != nil {
		return fmt.Errorf("step %q: %w", t.Step.Name, err)
	}
	units := func(done, total int) { t.Observe(Update{State: Running, Done: done, Total: total}) }
	err = t.Step.Run(ctx, &Work{Log: log, needs: t.Needs, units: units})
	if err = errors.Join(err, log.Close()); err == nil {
		return nil
	}
	tail, tailErr := Tail(logPath, tailLines)
	failed := &StepError{Step: t.Step.Name, Log: logPath, Tail: tail, Err: errors.Join(err, tailErr)}
	if full(err, tail, filepath.Dir(logPath)) {
		failed.Full = filepath.Dir(logPath)
	}
	return failed
}
