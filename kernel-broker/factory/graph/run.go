// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

type Runner struct {
	Store    Store
	Slurm    *Slurm      // does the steps in jobs; nil: this process does them
	Parallel int         // steps that work at once, at least 1
	Observe  func(Event) // may be nil; calls come one after the other
}

// Event is a change of a step, or of the run where the step has no name.
type Event struct {
	Run string
	StepStatus
	Took     time.Duration
	Finished int // steps that are done
	Steps    int // all steps
	Err      error
}

// recordInterval is the time between two records of how far a step is.
const recordInterval = 2 * time.Second

// Run does the targets and all that they need, or all steps when there is no
// target, and returns their results. Steps that do not need each other may run
// at once. After an error no further step begins; those that work come to
// their end, since their results are of use to the next run.
func (r *Runner) Run(ctx context.Context, name string, g *Graph, targets ...string) (map[string]Result, error) {
	steps, err := g.Needed(targets...)
	if err != nil {
		return nil, err
	}
	run := &run{Runner: r, slots: make(chan struct{}, max(1, r.Parallel)), results: map[string]Result{}}
	lock, err := run.begin(ctx, name, steps)
	if err != nil {
		return nil, fmt.Errorf("run %q: %w", name, err)
	}
	defer lock.Release()
	run.all(ctx, steps)
	return run.results, run.end(ctx)
}

// run is one call of Run.
type run struct {
	*Runner
	dir   string        // of its status, which it holds the lock of
	slots chan struct{} // one for each step that works

	mu       sync.Mutex
	status   Status
	recorded time.Time
	results  map[string]Result
	failed   []error
}

// begin writes the first status.
func (r *run) begin(ctx context.Context, name string, steps []Step) (*filelock.Lock, error) {
	if !stepName.MatchString(name) {
		return nil, errors.New("use lower-case letters, digits, dot, dash and underscore")
	}
	now := time.Now().UTC()
	// The order of names is the order of time.
	id := now.Format("20060102T150405.000000000Z") + "-" + rand.Text()[:6]
	r.dir = r.Store.builds(name, id)
	r.status = Status{Format: statusFormat, Name: name, ID: id, Where: "local", Host: hostname(), PID: os.Getpid(), State: Running, Began: now}
	if r.Slurm != nil {
		r.status.Where = "slurm"
	}
	for _, step := range steps {
		r.status.Steps = append(r.status.Steps, StepStatus{Name: step.Name, State: Pending})
	}
	// Nobody else has this folder, but a reader may look at its lock.
	lock, err := filelock.Acquire(ctx, filepath.Join(r.dir, "lock"), nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.write(), r.Store.forget(name)); err != nil {
		lock.Release()
		return nil, err
	}
	return lock, nil
}

// all starts every step, each of which waits for those it needs.
func (r *run) all(ctx context.Context, steps []Step) {
	ended := map[string]chan struct{}{}
	for _, step := range steps {
		ended[step.Name] = make(chan struct{})
	}
	var working sync.WaitGroup
	for _, step := range steps {
		working.Go(func() {
			defer close(ended[step.Name])
			for _, need := range step.before() {
				<-ended[need]
			}
			r.one(ctx, step)
		})
	}
	working.Wait()
}

// one does a step if it may begin.
func (r *run) one(ctx context.Context, step Step) {
	t, ready, err := r.task(step)
	if !ready || (err == nil && ctx.Err() != nil) {
		return
	}
	var result Result
	var bytes int64
	if err == nil {
		result, err = r.do(ctx, t)
	}
	if err == nil && !step.Effect {
		bytes, err = treeSize(result.Files())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(step.Name)
	worked := !s.Began.IsZero() // the wait for a slot is no work
	s.begin(t.key)
	s.State, s.Ended, s.Cached, s.Shared = Done, time.Now().UTC(), result.cached, result.shared
	took := s.Ended.Sub(s.Began)
	if worked {
		s.Seconds = took.Seconds()
	}
	switch {
	case err == nil && !step.Effect:
		s.Digest, s.Dir, s.Log = result.Digest, result.Files(), t.log()
		s.Seconds, s.Bytes = result.Ended.Sub(result.Began).Seconds(), bytes
	case err != nil && ctx.Err() != nil:
		s.State, s.Error = Stopped, err.Error()
	case err != nil:
		s.State, s.Error = Failed, err.Error()
		r.failed = append(r.failed, err)
	}
	if err == nil {
		r.results[step.Name] = result
	}
	r.record(step.Name)
	r.observe(Event{StepStatus: *s, Took: took, Err: err})
}

func (s *StepStatus) begin(key string) {
	if s.Key = key; s.Began.IsZero() {
		s.Began = time.Now().UTC()
	}
}

// task is ready when all that it needs is there and nothing has failed.
func (r *run) task(step Step) (t task, ready bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) > 0 {
		return task{}, false, nil
	}
	for _, name := range step.before() {
		if _, has := r.results[name]; !has {
			return task{}, false, nil
		}
	}
	t = task{step: step, needs: map[string]Result{}, slot: r.slot}
	for as, need := range step.Needs {
		t.needs[as] = r.results[need]
	}
	key, err := key(&step, t.needs)
	if err != nil {
		return t, true, fmt.Errorf("step %q: %w", step.Name, err)
	}
	t.spot = r.Store.spot(step.Kind, key)
	return t, true, nil
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

// unlimited is a slot for what takes nothing of this machine.
func unlimited(context.Context) (func(), error) { return func() {}, nil }

func (r *run) do(ctx context.Context, t task) (result Result, err error) {
	log := t.log()
	if t.step.Effect {
		log = filepath.Join(r.dir, t.step.Name+".log")
	}
	t.observe = func(u update) { r.pass(t, log, u) }
	switch {
	case t.step.Effect:
		err = t.act(ctx, log)
	case r.Slurm != nil:
		result, err = r.Slurm.do(ctx, t)
	default:
		result, err = t.perform(ctx)
	}
	if err != nil && !errors.As(err, new(*StepError)) && ctx.Err() == nil {
		err = stepError(t.step.Name, t.key, "", t.dir, err)
	}
	return result, err
}

// pass passes a task's update on, to the status file not too often.
func (r *run) pass(t task, log string, u update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(t.step.Name)
	changed := u.state != s.State || u.job != s.Job
	s.begin(t.key)
	s.State, s.Job, s.Log = u.state, u.job, log
	if u.done > 0 || u.total > 0 {
		s.Done, s.Total = u.done, u.total
	}
	if changed || time.Since(r.recorded) >= recordInterval {
		r.record(s.Name)
	}
	event := *s
	event.Done, event.Total = u.done, u.total
	r.observe(Event{StepStatus: event})
}

func (r *run) at(step string) *StepStatus {
	return &r.status.Steps[slices.IndexFunc(r.status.Steps, func(s StepStatus) bool { return s.Name == step })]
}

// record writes the status. A run that cannot write it ends: its state would be
// unknown.
func (r *run) record(step string) {
	r.recorded = time.Now()
	err := r.write()
	if err != nil && !slices.ContainsFunc(r.failed, func(err error) bool { return errors.As(err, new(*StepError)) }) {
		r.failed = append(r.failed, stepError(step, "", "", r.dir, err))
	}
}

func (r *run) write() error {
	r.status.Cost = r.status.cost()
	text, err := json.Marshal(r.status)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(r.dir, "status.json"), text, 0o644)
}

func (r *run) observe(e Event) {
	if r.Observe != nil {
		e.Run, e.Finished, e.Steps = r.status.Name, len(r.results), len(r.status.Steps)
		r.Observe(e)
	}
}

// end writes how the run ended.
func (r *run) end(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.State, r.status.Ended = Done, time.Now().UTC()
	err := errors.Join(r.failed...)
	switch {
	case err != nil:
		r.status.State, r.status.Error = Failed, err.Error()
	case ctx.Err() != nil:
		err = ctx.Err()
		r.status.State, r.status.Error = Stopped, err.Error()
	}
	if failed := r.write(); failed != nil && len(r.failed) == 0 {
		err = errors.Join(err, fmt.Errorf("run %q: %w", r.status.Name, failed))
	}
	r.observe(Event{StepStatus: StepStatus{State: r.status.State}, Took: r.status.Ended.Sub(r.status.Began), Err: err})
	return err
}
