// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

// task is a step whose inputs are all known.
type task struct {
	spot
	step  Step
	needs map[string]Result
	// slot waits until the step may use the machine, and returns what gives
	// the machine back.
	slot func(ctx context.Context) (func(), error)
	// observe receives changes.
	observe func(update)
}

// update is a change in how a task stands.
type update struct {
	state       State
	job         string // Slurm's, where it has one
	done, total int
}

// pollInterval is how often a follower looks at what it follows.
const pollInterval = 200 * time.Millisecond

// perform does the work of a task, unless its result is there or comes while
// another process works on it.
func (t task) perform(ctx context.Context) (Result, error) {
	return t.once(ctx, "lock", func(ctx context.Context, _ string) (Result, error) { return t.attempt(ctx) })
}

// once sees to it that one process at a time works for the task's result. It
// holds the lock for as long as it works, and takes it no sooner than it may:
// another process may be able to begin at once. The work learns what the last
// failure before it was.
func (t task) once(ctx context.Context, lockName string, work func(ctx context.Context, before string) (Result, error)) (Result, error) {
	result, has, err := t.found()
	if result.cached = true; err != nil || has {
		return result, err
	}
	before := t.lastFailure()
	for {
		free, err := t.slot(ctx)
		if err != nil {
			return Result{}, err
		}
		lock, err := filelock.Try(t.path(lockName))
		if err == nil {
			defer free()
			defer lock.Release()
			if result, has, err := t.left(before); has || err != nil {
				return result, err
			}
			return work(ctx, before)
		}
		free()
		if !errors.Is(err, filelock.ErrHeld) {
			return Result{}, err
		}
		if result, has, err := t.follow(ctx, lockName, before); has || err != nil {
			return result, err
		}
	}
}

// follow waits for the process that holds the lock, until that has come to
// something or is gone.
func (t task) follow(ctx context.Context, lockName, before string) (Result, bool, error) {
	for told := false; ; told = true {
		lock, err := filelock.Try(t.path(lockName))
		if err != nil && !errors.Is(err, filelock.ErrHeld) {
			return Result{}, false, err
		}
		if lock != nil {
			lock.Release()
		}
		if result, has, err := t.left(before); lock != nil || has || err != nil {
			return result, has, err
		}
		if !told {
			t.observe(update{state: Following})
		}
		t.passUnits(Following, "")
		if err := pause(ctx, pollInterval); err != nil {
			return Result{}, false, err
		}
	}
}

// left is what others left since before: a result, or a failure as the error.
func (t task) left(before string) (Result, bool, error) {
	result, has, err := t.found()
	result.shared = true
	if failed := t.failedSince(before, t.step.Name); err == nil && !has && failed != nil {
		err = failed
	}
	return result, has, err
}

// pause waits, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// attempt does the work; slot and lock are held.
func (t task) attempt(ctx context.Context) (Result, error) {
	if err := t.clear(); err != nil {
		return Result{}, fmt.Errorf("step %q: left-over of a killed run: %w", t.step.Name, err)
	}
	t.observe(update{state: Running})
	result, err := t.fill(ctx)
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		// Stopped, not failed: the next run that needs the step begins it again.
		return Result{}, fmt.Errorf("step %q: %w", t.step.Name, ctx.Err())
	}
	return Result{}, t.fail(t.step.Name, err)
}

// fill runs the step in a new folder and moves it into place.
func (t task) fill(ctx context.Context) (result Result, err error) {
	partial, err := os.MkdirTemp(t.dir, partialPrefix)
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
	result = Result{Kind: t.step.Kind, Key: t.key, Inputs: t.step.Inputs, Needs: map[string]string{},
		Began: time.Now().UTC(), Host: hostname()}
	for as, need := range t.needs {
		result.Needs[as] = need.Digest
	}
	err = t.run(ctx, work, t.log(), t.reportUnits())
	if err = errors.Join(err, remove(t.path("units")), ctx.Err()); err != nil {
		return Result{}, err
	}
	return t.keep(partial, result)
}

// act does a step that is an effect: no lock, no result, its log at that path.
func (t task) act(ctx context.Context, logPath string) error {
	free, err := t.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	t.observe(update{state: Running})
	err = t.run(ctx, "", logPath, func(done, total int) { t.observe(update{state: Running, done: done, total: total}) })
	if err == nil {
		return nil
	}
	return stepError(t.step.Name, "", logPath, filepath.Dir(logPath), err)
}

// run calls the step with a new log. It keeps the log's file, since a reader
// may follow it.
func (t task) run(ctx context.Context, dir, logPath string, units func(done, total int)) error {
	file, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	log := &log{file: file}
	err = t.step.Run(ctx, &Work{Dir: dir, Log: log, needs: t.needs, units: units})
	log.mu.Lock()
	defer log.mu.Unlock()
	if failed := errors.Join(log.err, file.Close()); failed != nil {
		err = errors.Join(err, fmt.Errorf("log: %w", failed))
	}
	return err
}

// log is the file that takes what a step says. A step's programs do not see
// write errors, which would end them for the wrong reason; the step's end has
// them.
type log struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		_, l.err = l.file.Write(text)
	}
	return len(text), nil
}

// unitsInterval is how often the file of units is written.
const unitsInterval = 500 * time.Millisecond

// reportUnits tells how far a step is: this process through observe, others
// through a file of one line. They see no bar when it cannot be written.
func (t task) reportUnits() func(done, total int) {
	var mu sync.Mutex
	var written time.Time
	return func(done, total int) {
		mu.Lock()
		defer mu.Unlock()
		t.observe(update{state: Running, done: done, total: total})
		if time.Since(written) >= unitsInterval || done == total {
			written = time.Now()
			_ = os.WriteFile(t.path("units"), fmt.Appendf(nil, "%d %d\n", done, total), 0o644) // as above
		}
	}
}

// passUnits passes on how far the process is that works on the task.
func (t task) passUnits(state State, job string) {
	text, err := os.ReadFile(t.path("units"))
	if err != nil {
		return // nothing is reported yet
	}
	var done, total int
	if n, _ := fmt.Sscanf(string(text), "%d %d\n", &done, &total); n == 2 && done >= 0 && total >= 0 {
		t.observe(update{state: state, job: job, done: done, total: total})
	}
}

// hostname is for information only.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// taskFile is what another process must know to do a task: it makes the same
// graph itself, and checks that it came to the same inputs.
type taskFile struct {
	Step   string             `json:"step"`
	Key    string             `json:"key"`
	Inputs map[string]string  `json:"inputs"`
	Needs  map[string]keyOnly `json:"needs"`
}

type keyOnly struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// hand writes the task for another process.
func (t task) hand() (path string, err error) {
	file := taskFile{Step: t.step.Name, Key: t.key, Inputs: t.step.Inputs, Needs: map[string]keyOnly{}}
	for as, need := range t.needs {
		file.Needs[as] = keyOnly{Kind: need.Kind, Key: need.Key}
	}
	path = t.path("task.json")
	return path, atomicfile.WriteJSON(path, file, 0o644)
}

// keyForm is that of ValueDigest: a key becomes a folder's name.
var keyForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Work does the task that another process handed over in a file, with the step
// of this process's graph. What goes wrong is left for the other to find.
func (s Store) Work(ctx context.Context, path string, g *Graph) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("task: %w", err)
	}
	var file taskFile
	if err := strictjson.Decode(text, &file); err != nil {
		return fmt.Errorf("task %q: %w", path, err)
	}
	step, has := g.Step(file.Step)
	if !has || step.Effect {
		return fmt.Errorf("task %q: no step %q that can be handed over", path, file.Step)
	}
	if !keyForm.MatchString(file.Key) {
		return fmt.Errorf("task %q: %q is no key", path, file.Key)
	}
	t := task{step: step, needs: map[string]Result{}, spot: s.spot(step.Kind, file.Key), observe: func(update) {}, slot: unlimited}
	if err := t.accept(s, file); err != nil {
		return t.fail(step.Name, err)
	}
	_, err = t.perform(ctx)
	return err
}

// accept finds what the task needs, and refuses one that would come to another
// result here than where it was made.
func (t task) accept(s Store, file taskFile) error {
	var other []string
	for name, there := range file.Inputs {
		if _, has := t.step.Inputs[name]; !has {
			other = append(other, fmt.Sprintf("%s is %q there, and nothing here", name, there))
		}
	}
	for name, here := range t.step.Inputs {
		if there := file.Inputs[name]; there != here {
			other = append(other, fmt.Sprintf("%s is %q there, %q here", name, there, here))
		}
	}
	if other != nil {
		slices.Sort(other)
		return fmt.Errorf("this machine has other inputs than the one that asks: %s", strings.Join(other, "; "))
	}
	for as := range t.step.Needs {
		need, err := s.Find(file.Needs[as].Kind, file.Needs[as].Key)
		if err != nil {
			return fmt.Errorf("need %q: %w", as, err)
		}
		t.needs[as] = need
	}
	key, err := key(&t.step, t.needs)
	if err == nil && key != t.key {
		err = fmt.Errorf("its inputs give key %s here, %s there", key, t.key)
	}
	return err
}
