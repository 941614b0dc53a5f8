// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// State of a step, or of a whole run, which is Running, Done, Failed, Stopped
// or Killed.
type State string

// The states. Killed is never written: it is what a reader makes of Running when
// the process is gone.
const (
	Pending   State = "pending"   // nothing was done yet
	Queued    State = "queued"    // a job waits in Slurm
	Running   State = "running"   // it is being worked on
	Following State = "following" // another process works on it
	Done      State = "done"      // the result is there
	Failed    State = "failed"    // it ended with an error
	Stopped   State = "stopped"   // its run was stopped
	Killed    State = "killed"    // its process is gone
)

// Ended reports whether nothing more will happen.
func (s State) Ended() bool {
	return s == Done || s == Failed || s == Stopped || s == Killed
}

// statusFormat is the version of status.json, and maxRuns of one name are kept.
const (
	statusFormat = 2
	maxRuns      = 20
)

// Status is how far a run is: what status.json in its folder says.
type Status struct {
	Format int          `json:"format"`
	Name   string       `json:"name"`
	ID     string       `json:"id"`
	Where  string       `json:"where"`
	Host   string       `json:"host"`
	PID    int          `json:"pid"`
	State  State        `json:"state"`
	Began  time.Time    `json:"began"`
	Ended  time.Time    `json:"ended,omitzero"`
	Error  string       `json:"error,omitempty"`
	Steps  []StepStatus `json:"steps"`
	Cost   Cost         `json:"cost"`
}

// Cost is the work of all steps of a run that have ended.
type Cost struct {
	// Seconds of the steps that were done for this run, one after the other,
	// and of those that were there before, when they were done.
	Seconds       float64 `json:"seconds"`
	SecondsBefore float64 `json:"seconds_before"`
	// Bytes of all results.
	Bytes int64 `json:"bytes"`
}

type StepStatus struct {
	Name   string    `json:"name"`
	State  State     `json:"state"`
	Cached bool      `json:"cached"` // it was done before
	Shared bool      `json:"shared"` // another process did it meanwhile
	Began  time.Time `json:"began,omitzero"`
	Ended  time.Time `json:"ended,omitzero"`
	Done   int       `json:"done,omitempty"`
	Total  int       `json:"total,omitempty"`
	// Seconds that the work took, in whichever run, and the size of
	// its result.
	Seconds float64 `json:"seconds,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Job     string  `json:"job,omitempty"`
	Key     string  `json:"key,omitempty"`
	Digest  string  `json:"digest,omitempty"`
	Dir     string  `json:"dir,omitempty"`
	Log     string  `json:"log,omitempty"`
	Error   string  `json:"error,omitempty"`
}

func (s Status) Step(name string) (StepStatus, bool) {
	i := slices.IndexFunc(s.Steps, func(step StepStatus) bool { return step.Name == name })
	if i < 0 {
		return StepStatus{}, false
	}
	return s.Steps[i], true
}

func (s Status) cost() (cost Cost) {
	for _, step := range s.Steps {
		if step.Cached {
			cost.SecondsBefore += step.Seconds
		} else {
			cost.Seconds += step.Seconds
		}
		cost.Bytes += step.Bytes
	}
	return cost
}

func (s Store) builds(name, id string) string { return filepath.Join(s.Dir, "builds", name, id) }

// Runs are the ids of the runs of that name, the newest first.
func (s Store) Runs(name string) ([]string, error) {
	entries, err := os.ReadDir(s.builds(name, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ids := make([]string, len(entries))
	for i, entry := range entries {
		ids[i] = entry.Name()
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) })
	return ids, err
}

// Status of a run; the empty id is the newest one that has any.
func (s Store) Status(name, id string) (Status, error) {
	ids, newest := []string{id}, id == ""
	if newest {
		var err error
		if ids, err = s.Runs(name); err != nil {
			return Status{}, fmt.Errorf("runs of %q: %w", name, err)
		}
	}
	for _, id := range ids {
		status, err := readStatus(s.builds(name, id))
		if newest && errors.Is(err, fs.ErrNotExist) {
			continue // killed before it wrote any
		}
		if err != nil {
			return Status{}, fmt.Errorf("run %q of %q: %w", id, name, err)
		}
		return status, nil
	}
	return Status{}, fmt.Errorf("%q was never built here (%s): %w", name, s.Dir, kb.ErrNotFound)
}

func readStatus(dir string) (Status, error) {
	status, err := parseStatus(dir)
	if err != nil || status.State.Ended() {
		return status, err
	}
	if held, err := filelock.Held(filepath.Join(dir, "lock")); held || err != nil {
		return status, err
	}
	// It may have ended before the lock was asked for.
	if status, err = parseStatus(dir); err == nil {
		status.bury()
	}
	return status, err
}

func parseStatus(dir string) (Status, error) {
	text, err := os.ReadFile(filepath.Join(dir, "status.json"))
	if err != nil {
		return Status{}, err
	}
	var status Status
	if err := json.Unmarshal(text, &status); err != nil {
		return Status{}, fmt.Errorf("status.json: %w", err)
	}
	if status.Format != statusFormat {
		return Status{}, fmt.Errorf("status.json: format %d, this program reads %d", status.Format, statusFormat)
	}
	return status, nil
}

// bury calls killed what is said to run and does not.
func (s *Status) bury() {
	if s.State.Ended() {
		return
	}
	s.State = Killed
	for i := range s.Steps {
		if state := s.Steps[i].State; state == Running || state == Following || state == Queued {
			s.Steps[i].State = Killed
		}
	}
}

// forget removes old runs that ended.
func (s Store) forget(name string) error {
	ids, err := s.Runs(name)
	for _, id := range ids[min(len(ids), maxRuns):] {
		dir := s.builds(name, id)
		lock, lockErr := filelock.Try(filepath.Join(dir, "lock"))
		if lockErr == nil {
			lockErr = os.RemoveAll(dir)
			lock.Release()
		}
		if !errors.Is(lockErr, filelock.ErrHeld) {
			err = cmp.Or(err, lockErr)
		}
	}
	return err
}
