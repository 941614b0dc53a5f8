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
	Kept      int     `json:"kept"`
	// Of code that was; the corpus is of all.
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
func (l Ledger) Write(path string) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replaceFile(path, append(text, '\n'))
}

func replaceFile(path string, text []byte) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// add takes in a run.
func (l Ledger) add(r Result, code, commit string, when time.Time) {
	e := l[r.String()]
	if e.Code != code {
		e = Entry{
			Code: code, Findings: e.Findings,
			EarlierProcessor: e.EarlierProcessor + e.Processor, EarlierExecs: e.EarlierExecs + e.Execs,
		}
	}
	e.Commit, e.Last = commit, when.UTC().Format(time.DateOnly)
	e.Runs++
	e.Seconds, e.Processor = tenths(e.Seconds+r.Seconds), tenths(e.Processor+r.Processor)
	e.Execs += r.Execs
	e.New += r.New
	e.Kept = r.Kept
	if r.Failed != "" && !slices.Contains(e.Findings, r.Input) {
		e.Findings = append(slices.Clone(e.Findings), r.Input)
	}
	l[r.String()] = e
}

func tenths(seconds float64) float64 { return float64(int(seconds*10+0.5)) / 10 }

// had is the time that counts: of a processor, but with many of them no more
// than has passed.
func had(seconds, processor float64) time.Duration {
	return time.Duration(min(seconds, processor) * float64(time.Second))
}

// ever is what it had of a processor with any code.
func (e Entry) ever() time.Duration {
	return had(e.Seconds, e.Processor) + time.Duration(e.EarlierProcessor*float64(time.Second))
}

// Missing is the time that a target still needs to have had this much of it with
// this code.
func (l Ledger) Missing(t Target, code string, wanted time.Duration) time.Duration {
	e := l[t.String()]
	if e.Code != code {
		return wanted
	}
	return max(0, wanted-had(e.Seconds, e.Processor))
}

// Table prints what each target has had, and returns how many need more.
func (l Ledger) Table(out io.Writer, targets []Target, codes map[string]string, wanted time.Duration) (missing int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TARGET\tPROCESSOR\tSECONDS\tEXECS\tNEW\tKEPT\tLAST\tFINDINGS\tSTATE")
	ever := 0
	for _, t := range targets {
		e, code := l[t.String()], codes[t.String()]
		if e.ever() >= wanted {
			ever++
		}
		state := "enough"
		if left := l.Missing(t, code, wanted); left > 0 {
			missing++
			state = fmt.Sprintf("%.0f s missing", left.Seconds())
		}
		if e.Code != code && e.Code != "" {
			state += ", its code has changed"
			e = Entry{Last: e.Last, Findings: e.Findings}
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%d\t%d\t%d\t%s\t%d\t%s\n", t, e.Processor, e.Seconds, e.Execs, e.New, e.Kept, or(e.Last, "never"), len(e.Findings), state)
	}
	_ = w.Flush() // to a terminal
	_, _ = fmt.Fprintf(out, "%d of %d targets have had %v of a processor's time with the code as it is, %d with this or earlier code\n",
		len(targets)-missing, len(targets), wanted, ever)
	return missing
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
