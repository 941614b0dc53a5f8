// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// StepError is a step that could not be done. As JSON it is on its way to those
// who follow the step.
type StepError struct {
	Step string `json:"-"`
	Key  string `json:"-"`
	Log  string `json:"-"` // the file with all that the step said; may be empty
	Tail string `json:"-"` // its end
	// Full is the folder on the file system that has no room left, which is
	// why the step failed; empty in all other cases.
	Full string `json:"full,omitempty"`
	// Detail is what the step's error gave as Detailed, in JSON.
	Detail json.RawMessage `json:"detail,omitempty"`
	Err    error           `json:"-"`
	Text   string          `json:"error"` // of Err
	At     time.Time       `json:"at"`
}

// Detailed is an error that says more to programs than its text says to people.
// What it gives reaches all that wait for the step, in whichever process.
type Detailed interface {
	error
	Detail() any
}

func (e *StepError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "step %q: ", e.Step)
	if e.Full != "" {
		fmt.Fprintf(&text, "no space left for %s: ", e.Full)
	}
	what := e.Err.Error()
	text.WriteString(what)
	// Many errors of programs hold the end of what they said already.
	if last := lastLine(e.Tail); last != "" && !strings.Contains(what, last) {
		text.WriteString("\n" + e.Tail)
	}
	if e.Log != "" && !strings.Contains(what, e.Log) {
		fmt.Fprintf(&text, "\n(whole log: %s)", e.Log)
	}
	return text.String()
}

// Unwrap gives the cause.
func (e *StepError) Unwrap() error { return e.Err }

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// stepError makes the error of a step that has its log there and its result in
// dir.
func stepError(step, key, log, dir string, err error) *StepError {
	made := &StepError{Step: step, Key: key, Log: log, Err: err, Text: err.Error(), At: time.Now().UTC()}
	made.addTail()
	if full(err, made.Tail, dir) {
		made.Full = dir
	}
	var detailed Detailed
	if errors.As(err, &detailed) {
		if made.Detail, err = json.Marshal(detailed.Detail()); err != nil {
			made.Err = errors.Join(made.Err, fmt.Errorf("detail: %w", err))
		}
	}
	return made
}

func (e *StepError) addTail() {
	var err error
	if e.Tail, err = Tail(e.Log, tailLines); err != nil {
		e.Log = ""
	}
}

// fail makes the error of an attempt, and leaves it for others to find.
func (s spot) fail(step string, err error) *StepError {
	made := stepError(step, s.key, s.log(), s.dir, err)
	text, err := json.Marshal(made)
	if err == nil {
		err = atomicfile.Write(s.path("failure.json"), text, 0o644)
	}
	if err != nil && made.Full == "" {
		// A follower finds no failure and tries the step itself.
		made.Err = errors.Join(made.Err, fmt.Errorf("failure could not be noted: %w", err))
	}
	return made
}

// lastFailure is the text of the failure that the last attempt left, if any.
func (s spot) lastFailure() string {
	text, err := os.ReadFile(s.path("failure.json"))
	if err != nil {
		return "" // none, or none that can be read
	}
	return string(text)
}

// failedSince reads the failure of an attempt that was made since before was
// what lastFailure said; nil if there is none. Clocks have no part in it:
// machines differ in them.
func (s spot) failedSince(before, step string) *StepError {
	text := s.lastFailure()
	failed := StepError{Step: step, Key: s.key, Log: s.log()}
	if text == "" || text == before || json.Unmarshal([]byte(text), &failed) != nil {
		return nil
	}
	failed.Err = errors.New(failed.Text)
	failed.addTail()
	return &failed
}

// full reports whether there was no room. Programs only print that.
func full(err error, tail, dir string) bool {
	if diskfull.Is(err) || !ofAnotherMachine(err) && diskfull.In(err.Error()+"\n"+tail) != nil {
		return true
	}
	var space unix.Statfs_t
	return unix.Statfs(dir, &space) == nil && space.Bavail == 0
}

// ofAnotherMachine reports whether the text is that of a guest, whose full
// disk is not ours.
func ofAnotherMachine(err error) bool {
	var other interface{ OfAnotherMachine() bool }
	return errors.As(err, &other) && other.OfAnotherMachine()
}

const (
	tailLines = 12
	tailBytes = 8 << 10
)

// Tail returns the last lines of a file, of at most some kilobytes.
func Tail(path string, lines int) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read from
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	from := max(0, info.Size()-tailBytes)
	text, err := io.ReadAll(io.NewSectionReader(file, from, tailBytes))
	if err != nil {
		return "", err
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if from > 0 && len(all) > 1 {
		all = all[1:] // it may be half a line
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n"), nil
}
