// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// Status is what a journal says of a run.
type Status struct {
	Head
	State State        `json:"state"`
	Began time.Time    `json:"began"`
	Ended time.Time    `json:"ended,omitzero"`
	Error string       `json:"error,omitempty"`
	Steps []StepStatus `json:"steps"`
	Cost  Cost         `json:"cost"`
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

// StepStatus is what it says of a step.
type StepStatus struct {
	Name   string    `json:"name"`
	State  State     `json:"state"`
	Cached bool      `json:"cached"`
	Shared bool      `json:"shared"`
	Began  time.Time `json:"began,omitzero"`
	Ended  time.Time `json:"ended,omitzero"`
	Done   int       `json:"done,omitempty"`
	Total  int       `json:"total,omitempty"`
	// Seconds that the work took, in whichever run, and the size of
	// its result; 0 where the journal is of a program that did not note it.
	Seconds float64 `json:"seconds,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Job     string  `json:"job,omitempty"`
	Key     string  `json:"key,omitempty"`
	Digest  string  `json:"digest,omitempty"`
	Dir     string  `json:"dir,omitempty"`
	Log     string  `json:"log,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Ended reports whether nothing more will happen.
func (s State) Ended() bool {
	return s == Done || s == Failed || s == Stopped || s == Killed
}

// Step returns the status of the step of that name.
func (s Status) Step(name string) (StepStatus, bool) {
	i := slices.IndexFunc(s.Steps, func(step StepStatus) bool { return step.Name == name })
	if i < 0 {
		return StepStatus{}, false
	}
	return s.Steps[i], true
}

// Status reads the journal of a run; the empty id is the newest one.
func (s Store) Status(name, id string) (Status, error) {
	if id == "" {
		ids, err := s.Runs(name)
		if err != nil {
			return Status{}, fmt.Errorf("runs of %q: %w", name, err)
		}
		if len(ids) == 0 {
			return Status{}, fmt.Errorf("%q was never built here (%s): %w", name, s.Dir, kb.ErrNotFound)
		}
		id = ids[0]
	}
	dir := filepath.Join(s.builds(name), id)
	// Asked before the journal is read: a run that ends in between has said so.
	lock, lockErr := filelock.Try(filepath.Join(dir, "lock"))
	release(lock)
	text, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		return Status{}, fmt.Errorf("run %q of %q: %w", id, name, err)
	}
	status, err := ReadJournal(text)
	if err != nil {
		return Status{}, fmt.Errorf("run %q of %q: %w", id, name, err)
	}
	if lockErr == nil {
		status.bury()
	} else if !errors.Is(lockErr, filelock.ErrHeld) {
		return Status{}, fmt.Errorf("run %q of %q: %w", id, name, lockErr)
	}
	return status, nil
}

// bury calls killed what is said to run and does not.
func (s *Status) bury() {
	if !s.State.Ended() {
		s.State = Killed
	}
	for i := range s.Steps {
		if state := s.Steps[i].State; state == Running || state == Following || state == Queued {
			s.Steps[i].State = Killed
		}
	}
}

// ReadJournal makes the status of a journal's text. A last line without its end
// is one that is being written, or that a killed process did not finish, and is
// left out; everything else that is wrong is an error with its line.
func ReadJournal(text []byte) (Status, error) {
	status := Status{State: Running}
	end := bytes.LastIndexByte(text, '\n') + 1
	number := 0
	for line := range bytes.Lines(text[:end]) {
		number++
		var r Record
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&r)
		if err == nil && decoder.Decode(new(Record)) != io.EOF {
			err = errors.New("more than one record")
		}
		if err == nil {
			err = status.apply(number, r)
		}
		if err != nil {
			return Status{}, fmt.Errorf("journal: line %d: %w", number, err)
		}
	}
	if number == 0 {
		return Status{}, errors.New("journal: no line is complete")
	}
	for _, step := range status.Steps {
		if step.Cached {
			status.Cost.SecondsBefore += step.Seconds
		} else {
			status.Cost.Seconds += step.Seconds
		}
		status.Cost.Bytes += step.Bytes
	}
	return status, nil
}

func (s *Status) apply(number int, r Record) error {
	if (number == 1) != (r.Head != nil) {
		return errors.New("the head is the first line and no other")
	}
	if r.Done < 0 || r.Total < 0 || r.Seconds < 0 || r.Bytes < 0 {
		return errors.New("less than none is done")
	}
	switch {
	case r.Head != nil:
		return s.begin(r)
	case !slices.Contains(states, r.State):
		return fmt.Errorf("unknown state %q", r.State)
	case r.Step == "":
		s.State, s.Ended, s.Error = r.State, r.At, r.Error
		return nil
	}
	i := slices.IndexFunc(s.Steps, func(step StepStatus) bool { return step.Name == r.Step })
	if i < 0 {
		return fmt.Errorf("unknown step %q", r.Step)
	}
	s.Steps[i].apply(r)
	return nil
}

func (s *Status) begin(r Record) error {
	if r.Head.Format != journalFormat {
		return fmt.Errorf("format %d, this program reads %d", r.Head.Format, journalFormat)
	}
	s.Head, s.Began = *r.Head, r.At
	s.Steps = make([]StepStatus, len(r.Head.Steps))
	for i, name := range r.Head.Steps {
		s.Steps[i] = StepStatus{Name: name, State: Pending}
	}
	return nil
}

func (s *StepStatus) apply(r Record) {
	if s.Began.IsZero() {
		s.Began = r.At
	}
	s.State = r.State
	if r.State.Ended() {
		s.Ended, s.Error = r.At, r.Error
		s.Cached, s.Shared = r.Cached, r.Shared
		s.Seconds, s.Bytes = r.Seconds, r.Bytes
	}
	if r.Done > 0 || r.Total > 0 {
		s.Done, s.Total = r.Done, r.Total
	}
	for to, from := range map[*string]string{&s.Key: r.Key, &s.Log: r.Log, &s.Job: r.Job, &s.Digest: r.Digest, &s.Dir: r.Dir} {
		if from != "" {
			*to = from
		}
	}
}
