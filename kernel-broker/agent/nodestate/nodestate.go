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
	"slices"
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

// Equal compares two states.
func (s State) Equal(other State) bool {
	return s.BootID == other.BootID && s.BuildID == other.BuildID && s.Release == other.Release &&
		s.Profile == other.Profile && s.Version == other.Version && s.Attested == other.Attested &&
		slices.Equal(s.Jobs, other.Jobs) && slices.Equal(s.Lost, other.Lost)
}

// String is the file's content, with a line for lost jobs only if there are any.
func (s State) String() string {
	lost := ""
	if len(s.Lost) > 0 {
		lost = "lost=" + list(s.Lost) + "\n"
	}
	attested := "0"
	if s.Attested {
		attested = "1"
	}
	return "format=" + format +
		"\nboot_id=" + s.BootID +
		"\nbuild_id=" + s.BuildID +
		"\nrelease=" + s.Release +
		"\nprofile=" + s.Profile +
		"\nversion=" + strconv.FormatUint(uint64(s.Version), 10) +
		"\njob=" + list(s.Jobs) +
		"\nattested=" + attested + "\n" + lost
}

func list(jobs []uint32) string {
	texts := make([]string, len(jobs))
	for i, job := range jobs {
		texts[i] = strconv.FormatUint(uint64(job), 10)
	}
	return strings.Join(texts, ",")
}

// Parse reads the content; unknown keys are ignored, a known one that is twice
// there, wrong or missing spoils the file.
func Parse(text string) (State, error) {
	if len(text) > maxSize {
		return State{}, fmt.Errorf("node state has %d bytes: %w", len(text), kb.ErrInvalid)
	}
	var s State
	seen := map[string]bool{}
	for text != "" {
		line, rest, whole := strings.Cut(text, "\n")
		key, value, has := strings.Cut(line, "=")
		if !whole || !has || seen[key] {
			return State{}, fmt.Errorf("node state line %q: %w", line, kb.ErrInvalid)
		}
		if err := s.set(key, value); err != nil {
			return State{}, fmt.Errorf("node state line %q: %w", line, err)
		}
		seen[key] = true
		text = rest
	}
	for _, key := range []string{"format", "boot_id", "build_id", "release", "profile", "version", "attested"} {
		if !seen[key] {
			return State{}, fmt.Errorf("node state has no %s: %w", key, kb.ErrInvalid)
		}
	}
	return s, nil
}

func (s *State) set(key, value string) error {
	switch key {
	case "format":
		if value != format {
			return kb.ErrInvalid
		}
	case "boot_id":
		s.BootID = value
	case "build_id":
		s.BuildID = value
	case "release":
		s.Release = value
	case "profile":
		s.Profile = value
	case "version":
		return number(value, &s.Version)
	case "job":
		return numbers(value, &s.Jobs)
	case "lost":
		return numbers(value, &s.Lost)
	case "attested":
		s.Attested = value == "1"
		if !s.Attested && value != "0" {
			return kb.ErrInvalid
		}
	}
	return nil
}

func numbers(value string, to *[]uint32) error {
	if value == "" {
		return nil
	}
	for _, text := range strings.Split(value, ",") {
		var job uint32
		if err := number(text, &job); err != nil {
			return err
		}
		*to = append(*to, job)
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
