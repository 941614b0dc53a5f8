package fuzz

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

// Entry is what a target has had so far. Seconds, Processor, Execs and New are
// of the code as it is: when that changes they begin anew, and what there was
// goes to the sums behind.
type Entry struct {
	// Code is a digest of what the target runs, Commit where it last ran.
	Code   string `json:"code"`
	Commit string `json:"commit"`
	Last   string `json:"last"`
	Runs   int    `json:"runs"`
	// Seconds passed, of which the target had Processor: on a busy machine that
	// is far less, and it alone says how much was tried.
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor_seconds"`
	Execs     uint64  `json:"execs"`
	New       int     `json:"new"`
	// Quiet are the last of the seconds, in which nothing new was found.
	Quiet float64 `json:"quiet_seconds"`
	Kept  int     `json:"kept"`
	// Of code that was; the corpus is of all.
	EarlierSeconds   float64 `json:"earlier_seconds,omitempty"`
	EarlierProcessor float64 `json:"earlier_processor_seconds,omitempty"`
	EarlierExecs     uint64  `json:"earlier_execs,omitempty"`
	// Findings are the inputs that failed, of any code.
	Findings []string `json:"findings,omitempty"`
}

// Ledger has an entry for each target that ever ran, by its name.
type Ledger map[string]Entry

// ReadLedger reads one; a file that is not there is an empty one.
func ReadLedger(path string) (Ledger, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Ledger{}, nil
	}
	if err != nil {
		return nil, err
	}
	l := Ledger{}
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	return l, nil
}

// update changes the file, of which other processes may have written since it
// was read.
func update(path string, change func(Ledger)) (Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer folder.Close() // and with it the lock
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	l, err := ReadLedger(path)
	if err != nil {
		return nil, err
	}
	change(l)
	return l, l.Write(path)
}

// Write replaces the file as a whole: a run may be ended at any time.
func (l Ledger) Write(path string) error { return jsonfile.Write(path, l) }

// add takes in a run.
func (l Ledger) add(r Result, code, commit string, when time.Time) {
	e := l[r.String()]
	if e.Code != code {
		e = Entry{
			Code: code, Findings: e.Findings,
			EarlierSeconds: tenths(e.EarlierSeconds + e.Seconds), EarlierProcessor: tenths(e.EarlierProcessor + e.Processor),
			EarlierExecs: e.EarlierExecs + e.Execs,
		}
	}
	e.Commit, e.Last = commit, when.UTC().Format(time.DateOnly)
	e.Runs++
	e.Seconds, e.Processor = tenths(e.Seconds+r.Seconds), tenths(e.Processor+r.Processor)
	e.Execs += r.Execs
	e.New += r.New
	e.Quiet = tenths(quiet(e.Quiet, r))
	e.Kept = r.Kept
	if r.Failed != "" && !slices.Contains(e.Findings, r.Input) {
		e.Findings = append(slices.Clone(e.Findings), r.Input)
	}
	l[r.String()] = e
}

func tenths(seconds float64) float64 { return float64(int(seconds*10+0.5)) / 10 }

// quiet is for how long nothing new was found when a run comes behind others.
func quiet(before float64, one Result) float64 {
	if one.New == 0 {
		return before + one.Seconds
	}
	return one.Quiet
}

// Clock says which time counts.
type Clock bool

// Passed is the time of the day, Processor that of a processor: on a busy
// machine, or with other targets beside it, a target gets far less of that.
const (
	Passed    Clock = false
	Processor Clock = true
)

// had is the time that counts. Of many processors at once it is no more than has
// passed.
func (c Clock) had(seconds, processor float64) time.Duration {
	if c == Processor {
		seconds = min(seconds, processor)
	}
	return time.Duration(seconds * float64(time.Second))
}

// ever is what it had with any code.
func (e Entry) ever(clock Clock) time.Duration {
	return clock.had(e.Seconds, e.Processor) + clock.had(e.EarlierSeconds, e.EarlierProcessor)
}

// Missing is the time that a target still needs to have had this much of it with
// this code.
func (l Ledger) Missing(t Target, code string, wanted time.Duration, clock Clock) time.Duration {
	e := l[t.String()]
	if e.Code != code {
		return wanted
	}
	return max(0, wanted-clock.had(e.Seconds, e.Processor))
}

// Enough counts the targets that had this much with their code.
func (l Ledger) Enough(targets []Target, codes map[string]string, wanted time.Duration, clock Clock) (enough int) {
	for _, t := range targets {
		if l.Missing(t, codes[t.String()], wanted, clock) == 0 {
			enough++
		}
	}
	return enough
}

// Table prints what each target has had, and what it lacks by that clock.
func (l Ledger) Table(out io.Writer, targets []Target, codes map[string]string, wanted time.Duration, clock Clock) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	ever := 0
	_, _ = fmt.Fprintln(w, "TARGET\tSECONDS\tPROCESSOR\tEXECS\tNEW\tQUIET\tKEPT\tLAST\tFINDINGS\tSTATE")
	for _, t := range targets {
		e, code := l[t.String()], codes[t.String()]
		if e.ever(clock) >= wanted {
			ever++
		}
		state := "enough"
		if left := l.Missing(t, code, wanted, clock); left > 0 {
			state = fmt.Sprintf("%.0f s missing", left.Seconds())
		}
		if e.Code != code && e.Code != "" {
			state += ", its code has changed"
			e = Entry{Last: e.Last, Findings: e.Findings}
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%d\t%d\t%.0f\t%d\t%s\t%d\t%s\n",
			t, e.Seconds, e.Processor, e.Execs, e.New, e.Quiet, e.Kept, or(e.Last, "never"), len(e.Findings), state)
	}
	_ = w.Flush() // to a terminal
	_, _ = fmt.Fprintf(out, "%d of %d targets ran for %v with their code as it is, %d of them on a processor for as long; %d with this or earlier code\n",
		l.Enough(targets, codes, wanted, Passed), len(targets), wanted, l.Enough(targets, codes, wanted, Processor), ever)
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
