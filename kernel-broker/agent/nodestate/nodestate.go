// SPDX-License-Identifier: Apache-2.0

// Package nodestate is the node's proof for the gate: a small file of
// key=value lines with the running kernel and the jobs that it was prepared for.
// The agent writes it; the gate in the Slurm plugin and the epilog read it.
// A file from another boot is void, hence the boot id in it.
package nodestate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

const (
	format  = "1"
	maxSize = 16 << 10
)

// State is the content of the file. Profile is empty and Version 0 while the
// running kernel is not proven. Lost are the jobs that hold the node and whose
// kernel it no longer runs: the gate and the task check refuse their steps here.
type State struct {
	BootID   string
	BuildID  string
	Release  string
	Profile  string
	Version  uint32
	Jobs     []uint32
	Attested bool
	Lost     []uint32
}

// field is one of the file's: a text, a flag, a number or a list of jobs.
type field struct {
	key      string
	value    any
	optional bool
}

// fields in the order of the file.
func (s *State) fields() []field {
	return []field{
		{"boot_id", &s.BootID, false}, {"build_id", &s.BuildID, false}, {"release", &s.Release, false}, {"profile", &s.Profile, false},
		{"version", &s.Version, false}, {"job", &s.Jobs, true}, {"attested", &s.Attested, false}, {"lost", &s.Lost, true},
	}
}

// Equal compares two states.
func (s State) Equal(other State) bool { return s.String() == other.String() }

// String is the file's content, with a line for lost jobs only if there are any.
func (s State) String() string {
	text := "format=" + format + "\n"
	for _, f := range s.fields() {
		switch v := f.value.(type) {
		case *string:
			text += f.key + "=" + *v + "\n"
		case *bool:
			text += f.key + "=" + map[bool]string{true: "1", false: "0"}[*v] + "\n"
		case *uint32:
			text += fmt.Sprintf("%s=%d\n", f.key, *v)
		case *[]uint32:
			if f.key != "lost" || len(*v) > 0 {
				text += f.key + "=" + strings.ReplaceAll(strings.Trim(fmt.Sprint(*v), "[]"), " ", ",") + "\n"
			}
		}
	}
	return text
}

// Parse reads the content; unknown keys are ignored, a known one that is twice
// there, wrong or missing spoils the file.
func Parse(text string) (State, error) {
	if len(text) > maxSize {
		return State{}, fmt.Errorf("node state has %d bytes: %w", len(text), kb.ErrInvalid)
	}
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, has := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := values[key]; twice || !has || !strings.HasSuffix(line, "\n") {
			return State{}, fmt.Errorf("node state line %q: %w", line, kb.ErrInvalid)
		}
		values[key] = value
	}
	var s State
	for _, f := range append(s.fields(), field{"format", new(string), false}) {
		value, there := values[f.key]
		if !there && f.optional {
			continue
		}
		if !there || f.key == "format" && value != format || f.set(value) != nil {
			return State{}, fmt.Errorf("node state: %s is missing or wrong, %q: %w", f.key, value, kb.ErrInvalid)
		}
	}
	return s, nil
}

func (f field) set(value string) error {
	switch v := f.value.(type) {
	case *string:
		*v = value
	case *bool:
		*v = value == "1"
		if !*v && value != "0" {
			return kb.ErrInvalid
		}
	case *uint32:
		return number(value, v)
	case *[]uint32:
		for text := range strings.SplitSeq(value, ",") {
			var job uint32
			if value == "" {
				return nil
			}
			if err := number(text, &job); err != nil {
				return err
			}
			*v = append(*v, job)
		}
	}
	return nil
}

func number(text string, to *uint32) error {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return kb.ErrInvalid
	}
	*to = uint32(n)
	return nil
}

// Read loads the file. A missing file and a damaged one both count as absent:
// present is false and err is nil for the first.
func Read(path string) (state State, present bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, err
	}
	state, err = Parse(string(raw))
	if err != nil {
		return State{}, false, fmt.Errorf("file %q: %w", path, err)
	}
	return state, true, nil
}

// Write puts the state at path, whole.
func Write(path string, state State) error {
	return atomicfile.Write(path, []byte(state.String()), 0o644)
}
