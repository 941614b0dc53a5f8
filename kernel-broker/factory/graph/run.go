// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Executor is where steps are done.
type Executor interface {
	// Where is its name, for journals.
	Where() string
	// Do returns when the result of the task is in the store, or why it will
	// not be. When ctx ends it sees to it that the work ends too.
	Do(ctx context.Context, task Task) (Outcome, error)
}

// Local does steps in this process.
type Local struct{}

// Where implements Executor.
func (Local) Where() string { return "local" }

// Do implements Executor.
func (Local) Do(ctx context.Context, task Task) (Outcome, error) { return task.perform(ctx) }

// Runner runs graphs.
type Runner struct {
	Store    Store
	Executor Executor    // nil: Local
	Parallel int         // steps that work at once, at least 1
	Observe  func(Event) // may be nil; calls come one after the other
}

// Event is a change of a step, or of the run when Step is empty.
type Event struct {
	Run, Step      string
	State          State
	Log            string
	Job            string
	Done, Total    int
	Cached, Shared bool
	Took           time.Duration
	Finished       int // steps that are done
	Steps          int // all steps
	Err            error
}

// recordInterval is the time between two records of how far a step is.
const recordInterval = 2 * time.Second

// Run does the targets and all that they need, or all steps when there is no
// target, and returns their results. Steps that do not need each other may run
// at once. After an error no further step begins; those that work come to
// their end, since their results are of use to the next run.
func (r *Runner) Run(ctx context.Context, name string, g *Graph, targets ...string) (map[string]Result, error) {
	steps, err := g.needed(targets)
	if err != nil {
		return nil, err
	}
	executor := r.Executor
	if executor == nil {
		executor = Local{}
	}
	journal, err := r.Store.begin(name, executor.Where(), steps)
	if err != nil {
		return nil, fmt.Errorf("run %q: %w", name, err)
	}
	run := &run{runner: r, name: name, graph: g, executor: executor, journal: journal, total: len(steps),
		slots: make(chan struct{}, max(1, r.Parallel)), results: map[string]Result{}, units: map[string]Update{}, working: map[string]time.Time{}, began: time.Now()}
	err = run.all(ctx, steps)
	return run.results, errors.Join(err, run.end(ctx, err))
}

// run is one call of Run.
type run struct {
	runner   *Runner
	name     string
	graph    *Graph
	executor Executor
	journal  *journal
	total    int
	slots    chan struct{} // one for each step that works
	began    time.Time

	mu       sync.Mutex
	results  map[string]Result
	units    map[string]Update // how far each step was when it last said so
	working  map[string]time.Time
	finished int
	failed   []error

	observing sync.Mutex
}

// all starts every step, each of which waits for those it needs.
func (r *run) all(ctx context.Context, steps []string) error {
	ended := map[string]chan struct{}{}
	for _, name := range steps {
		ended[name] = make(chan struct{})
	}
	var working sync.WaitGroup
	for _, name := range steps {
		working.Go(func() {
			defer close(ended[name])
			step := r.graph.steps[name]
			for _, need := range step.before() {
				<-ended[need]
			}
			r.one(ctx, step)
		})
	}
	working.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failed...)
}

// one does a step if it may begin.
func (r *run) one(ctx context.Context, step *Step) {
	task, ready, err := r.task(step)
	if !ready || (err == nil && ctx.Err() != nil) {
		return
	}
	began := time.Now()
	var outcome Outcome
	if err == nil {
		outcome, err = r.do(ctx, task)
	}
	r.mu.Lock()
	switch {
	case err == nil:
		r.finished++
		r.results[step.Name] = outcome.Result
	case ctx.Err() == nil:
		r.failed = append(r.failed, err)
	}
	r.mu.Unlock()
	state := Done
	if err != nil {
		state = Failed
		if ctx.Err() != nil {
			state = Stopped
		}
	}
	r.mu.Lock()
	units := r.units[step.Name]
	record := Record{Step: step.Name, State: state, Cached: outcome.Cached, Shared: outcome.Shared, Key: task.Key,
		Done: units.Done, Total: units.Total}
	if since, has := r.working[step.Name]; has {
		began = since // the wait for a slot is no work
		record.Seconds = time.Since(began).Seconds()
	}
	r.mu.Unlock()
	if err != nil {
		record.Error = err.Error()
	} else if !step.Effect {
		record.Digest, record.Dir, record.Log = outcome.Result.Digest, outcome.Result.Files(), task.spot.log()
		record.Seconds, record.Bytes = outcome.Result.Took().Seconds(), outcome.Bytes
	}
	event := Event{State: state, Cached: outcome.Cached, Shared: outcome.Shared, Took: time.Since(began), Err: err}
	r.record(step.Name, record, event)
}

// task is ready when all that it needs is there and nothing has failed.
func (r *run) task(step *Step) (task Task, ready bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) > 0 {
		return Task{}, false, nil
	}
	for _, name := range step.After {
		if _, has := r.results[name]; !has {
			return Task{}, false, nil
		}
	}
	task = Task{Step: *step, Needs: map[string]Result{}, Slot: r.slot}
	for as, need := range step.Needs {
		result, has := r.results[need]
		if !has {
			return Task{}, false, nil
		}
		task.Needs[as] = result
	}
	if task.Key, err = key(step, task.Needs); err != nil {
		return task, true, fmt.Errorf("step %q: %w", step.Name, err)
	}
	task.spot = r.runner.Store.spot(step.Kind, task.Key)
	return task, true, nil
}

// slot waits until one step fewer than allowed works.
func (r *run) slot(ctx context.Context) (func(), error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *run) do(ctx context.Context, task Task) (Outcome, error) {
	log := task.spot.log()
	if task.Step.Effect {
		log = filepath.Join(r.journal.dir, task.Step.Name+".log")
	}
	task.Observe = r.observer(task, log)
	if task.Step.Effect {
		return Outcome{}, task.act(ctx, log)
	}
	outcome, err := r.executor.Do(ctx, task)
	if err == nil {
		outcome.Bytes, err = treeSize(outcome.Result.Files())
	}
	var known *StepError
	if err != nil && !errors.As(err, &known) && ctx.Err() == nil {
		failed := &StepError{Step: task.Step.Name, Key: task.Key, Err: err}
		if full(err, "", task.spot.dir) {
			failed.Full = task.spot.dir
		}
		err = failed
	}
	return outcome, err
}

// observer passes a task's updates on, to the journal not too often.
func (r *run) observer(task Task, log string) func(Update) {
	var recorded time.Time
	var last Update
	return func(u Update) {
		r.mu.Lock()
		if u.Total > 0 {
			r.units[task.Step.Name] = u
		}
		if _, has := r.working[task.Step.Name]; !has {
			r.working[task.Step.Name] = time.Now()
		}
		r.mu.Unlock()
		record := Record{Step: task.Step.Name, State: u.State, Key: task.Key, Log: log, Job: u.Job, Done: u.Done, Total: u.Total}
		event := Event{State: u.State, Log: log, Job: u.Job, Done: u.Done, Total: u.Total}
		if changed := u.State != last.State || u.Job != last.Job; !changed && time.Since(recorded) < recordInterval {
			r.event(task.Step.Name, event)
			return
		}
		recorded, last = time.Now(), u
		r.record(task.Step.Name, record, event)
	}
}

// record writes to the journal and to the observer. A run whose journal cannot be
// written ends: its state would be unknown.
func (r *run) record(step string, record Record, event Event) {
	if err := r.journal.write(record); err != nil {
		r.mu.Lock()
		failed := &StepError{Step: step, Err: fmt.Errorf("journal: %w", err)}
		if full(err, "", r.journal.dir) {
			failed.Full = r.journal.dir
		}
		if !slices.ContainsFunc(r.failed, func(err error) bool { return errors.As(err, new(*StepError)) }) {
			r.failed = append(r.failed, failed)
		}
		r.mu.Unlock()
	}
	r.event(step, event)
}

func (r *run) event(step string, event Event) {
	if r.runner.Observe == nil {
		return
	}
	r.mu.Lock()
	event.Run, event.Step, event.Finished, event.Steps = r.name, step, r.finished, r.total
	r.mu.Unlock()
	r.observing.Lock()
	defer r.observing.Unlock()
	r.runner.Observe(event)
}

// end writes how the run ended. Its error is that of the journal, or of ctx.
func (r *run) end(ctx context.Context, failed error) error {
	record := Record{State: Done}
	var ended error
	switch {
	case failed != nil:
		record.State, record.Error = Failed, failed.Error()
	case ctx.Err() != nil:
		ended = ctx.Err()
		record.State, record.Error = Stopped, ended.Error()
	}
	err := errors.Join(r.journal.write(record), r.journal.close())
	if err != nil && failed == nil {
		ended = errors.Join(ended, fmt.Errorf("run %q: journal: %w", r.name, err))
	}
	r.event("", Event{State: record.State, Took: time.Since(r.began), Err: errors.Join(failed, ended)})
	return ended
}
