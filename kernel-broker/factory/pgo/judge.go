// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Sections are the sizes of a kernel's function text before it is linked,
// where what the compiler set apart can still be told from the rest.
type Sections struct {
	Text     int64 `json:"text"`
	Unlikely int64 `json:"text_unlikely"`
	Hot      int64 `json:"text_hot"`
	// Others are .init.text, .noinstr.text and further code.
	Others int64 `json:"text_others"`
}

// All text of functions that stays in memory after boot.
func (s Sections) All() int64 { return s.Text + s.Unlikely + s.Hot }

// Complaints are what the compiler said about the profile, each with the object
// that it was compiling.
type Complaints struct {
	// Mismatched functions ("fs/namei.o: path_openat") have another flow than
	// the one that was counted, and are compiled without counters.
	Mismatched []string `json:"mismatched"`
	// Moved functions stand in another line or file than when they were
	// counted. Their counters are used all the same.
	Moved []string `json:"moved"`
	// Missing are objects without a profile ("lib/crc32.o").
	Missing []string `json:"missing"`
}

// The compiler's words, and kbuild's before it starts one.
var (
	unit     = regexp.MustCompile(`^\s+CC(?: \[M\])?\s+(\S+\.o)$`)
	mismatch = regexp.MustCompile(`^(\S+?):\d+:\d+: warning: (?:profile for function|the control flow of function|number of counters in profile data for function|coverage mismatch for function) ['‘"]?([^'’"\s]+)`)
	moved    = regexp.MustCompile(`^(\S+?):\d+:\d+: warning: source locations for function ['‘"]?([^'’"\s]+)['’"]? have changed`)
	corrupt  = regexp.MustCompile(`^(\S+?):\d+:\d+: warning: corrupted profile info`)
	missing  = regexp.MustCompile(`warning: ['‘"]?([^'’"\s]+)['’"]? profile count data file not found`)
)

// ReadLog collects the complaints from a build's log, and the objects that were
// compiled. When several compilers ran at once the log must have been written
// object by object (make -Otarget).
func ReadLog(log io.Reader) (complaints Complaints, compiled []string, err error) {
	mismatched, elsewhere, absent := map[string]bool{}, map[string]bool{}, map[string]bool{}
	object := ""
	// function names what was complained of. A function from a header has the
	// header's place in its complaint, so that the place cannot say it.
	function := func(found []string) string {
		what := "profile corrupted"
		if len(found) > 2 {
			what = found[2]
		}
		if object == "" {
			return found[1] + ": " + what
		}
		return object + ": " + what
	}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		if found := unit.FindStringSubmatch(text); found != nil {
			object = found[1]
			compiled = append(compiled, object)
		} else if found := mismatch.FindStringSubmatch(text); found != nil {
			mismatched[function(found)] = true
		} else if found := moved.FindStringSubmatch(text); found != nil {
			elsewhere[function(found)] = true
		} else if found := corrupt.FindStringSubmatch(text); found != nil {
			mismatched[function(found)] = true
		} else if found := missing.FindStringSubmatch(text); found != nil {
			absent[objectOf(found[1])] = true
		}
	}
	if err := lines.Err(); err != nil {
		return Complaints{}, nil, fmt.Errorf("build log: %w", err)
	}
	return Complaints{Mismatched: sorted(mismatched), Moved: sorted(elsewhere), Missing: sorted(absent)}, compiled, nil
}

// objectOf is the object that a file of a profile is for.
func objectOf(path string) string {
	name, _ := object(path[strings.LastIndex(path, "/")+1:])
	return name + ".o"
}

// Again replaces what was said of objects by what was said when they were
// compiled again. The complaints about a whole kernel are thus the same,
// whatever part of it the last build had to compile.
func (c Complaints) Again(fresh Complaints, compiled []string) Complaints {
	again := map[string]bool{}
	for _, object := range compiled {
		again[object] = true
	}
	replace := func(old, fresh []string) []string {
		all := map[string]bool{}
		for _, name := range old {
			if object, _, _ := strings.Cut(name, ": "); !again[object] {
				all[name] = true
			}
		}
		for _, name := range fresh {
			all[name] = true
		}
		return sorted(all)
	}
	return Complaints{
		Mismatched: replace(c.Mismatched, fresh.Mismatched),
		Moved:      replace(c.Moved, fresh.Moved),
		Missing:    replace(c.Missing, fresh.Missing),
	}
}

// Of are the complaints about these objects.
func (c Complaints) Of(objects map[string]bool) Complaints {
	among := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			object, _, _ := strings.Cut(name, ": ")
			return !objects[object]
		})
	}
	return Complaints{Mismatched: among(c.Mismatched), Moved: among(c.Moved), Missing: among(c.Missing)}
}

func sorted(set map[string]bool) []string {
	names := []string{}
	for name := range set {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Limits of what a build may complain of, and what it must show.
type Limits struct {
	Mismatched int
	Missing    int
	// Set apart as unlikely must be at least so much more of the text, in
	// percent of all text.
	Unlikely float64
}

// DefaultLimits: a profile of the same configuration gives about four missing
// files (the vDSO's), and some mismatches
// in functions that set up debugfs, which only the counting kernel has; one of
// another configuration gives a thousand. A profile that was ignored changes the
// share of unlikely text by less than a percent.
var DefaultLimits = Limits{Mismatched: 60, Missing: 25, Unlikely: 10}

// Unprofiled stands for the same build without a profile where that was not
// made: no such kernel sets a larger share apart.
var Unprofiled = Sections{Text: 95, Unlikely: 5}

// ErrUnfit is in the error about a profile that the build could not use.
var ErrUnfit = errors.New("the profile does not fit")

// Judge compares a build with a profile with the same build without one.
func (l Limits) Judge(complaints Complaints, without, with Sections) error {
	var wrong []error
	if n := len(complaints.Mismatched); n > l.Mismatched {
		wrong = append(wrong, fmt.Errorf("%d functions do not match their profile, at most %d may (%s): %w",
			n, l.Mismatched, some(complaints.Mismatched), ErrUnfit))
	}
	if n := len(complaints.Missing); n > l.Missing {
		wrong = append(wrong, fmt.Errorf("%d files have no profile, at most %d may (%s): %w",
			n, l.Missing, some(complaints.Missing), ErrUnfit))
	}
	before, after := share(without), share(with)
	if after-before < l.Unlikely {
		wrong = append(wrong, fmt.Errorf(".text.unlikely is %.1f %% of the text and was %.1f %% without a profile, which is less than %.0f more: "+
			"the compiler ignored the profile: %w", after, before, l.Unlikely, ErrUnfit))
	}
	return errors.Join(wrong...)
}

func share(s Sections) float64 {
	if s.All() == 0 {
		return 0
	}
	return 100 * float64(s.Unlikely) / float64(s.All())
}

// some of the names, for an error that can be read.
func some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shown], ", ") + ", ..."
}
