package gcov

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
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

// Complaints are what the compiler said about the profile.
type Complaints struct {
	// Mismatched functions, as "source file: function": their flow is not
	// the one that was counted, and they are compiled without counters.
	Mismatched []string `json:"mismatched"`
	// Moved functions stand in another line or file than when they were
	// counted. Their counters are used all the same.
	Moved []string `json:"moved"`
	// Missing are files without a profile.
	Missing []string `json:"missing"`
}

// The compiler's words. The function stands in a line of its own before.
var (
	mismatch = regexp.MustCompile(`^(\S+?):\d+:\d+: warning: (?:profile for function|the control flow of function|number of counters in profile data for function|coverage mismatch for function) ['‘"]?([^'’"\s]+)`)
	moved    = regexp.MustCompile(`^(\S+?):\d+:\d+: warning: source locations for function ['‘"]?([^'’"\s]+)['’"]? have changed`)
	corrupt  = regexp.MustCompile(`^(\S+?):\d+:\d+: warning: corrupted profile info`)
	missing  = regexp.MustCompile(`warning: ['‘"]?([^'’"\s]+)['’"]? profile count data file not found`)
)

// ReadLog collects the complaints from a build's log. One function may be
// complained of several times.
func ReadLog(log io.Reader) (Complaints, error) {
	mismatched, elsewhere, absent := map[string]bool{}, map[string]bool{}, map[string]bool{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		if found := mismatch.FindStringSubmatch(text); found != nil {
			mismatched[found[1]+": "+found[2]] = true
		} else if found := moved.FindStringSubmatch(text); found != nil {
			elsewhere[found[1]+": "+found[2]] = true
		} else if found := corrupt.FindStringSubmatch(text); found != nil {
			mismatched[found[1]+": corrupted"] = true
		} else if found := missing.FindStringSubmatch(text); found != nil {
			name, _ := object(found[1][strings.LastIndex(found[1], "/")+1:])
			absent[name] = true
		}
	}
	if err := lines.Err(); err != nil {
		return Complaints{}, fmt.Errorf("build log: %w", err)
	}
	return Complaints{Mismatched: sorted(mismatched), Moved: sorted(elsewhere), Missing: sorted(absent)}, nil
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

// DefaultLimits: a profile of the same configuration gives about one mismatch
// and six missing files (the code of the vDSO and some of lib/); one that was
// ignored changes the share of unlikely text by less than a percent.
var DefaultLimits = Limits{Mismatched: 20, Missing: 25, Unlikely: 10}

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
