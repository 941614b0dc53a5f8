// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Check is what Verify looks at, and what it is told beforehand.
type Check struct {
	// Path of a log's folder, or of one of its files.
	Path string
	// After is the last record that is not there any more, where older files
	// were moved away. Without it the log has to begin with record 1.
	After *Head
	// Until is a record that must be there, as a head that was kept elsewhere
	// knows it.
	Until *Head
}

// Problem is a place where the log is not as it was written.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

func (p Problem) String() string {
	if p.File == "" {
		return p.What
	}
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.What)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.What)
}

// Report is what Verify found.
type Report struct {
	Files   int    `json:"files"`
	Records uint64 `json:"records"`
	First   uint64 `json:"first"`
	// Last is the head to keep elsewhere.
	Last     string    `json:"last"`
	Begin    time.Time `json:"begin"`
	End      time.Time `json:"end"`
	Problems []Problem `json:"problems"`
	// Notes are what was found and is no problem.
	Notes []string `json:"notes"`
}

// Sound reports whether the log is as it was written.
func (r Report) Sound() bool { return len(r.Problems) == 0 }

// Verify reads a log and compares each line with what the next one and the head
// know of it. An error means that it could not be read.
func Verify(c Check) (Report, error) {
	info, err := os.Stat(c.Path)
	if err != nil {
		return Report{}, fmt.Errorf("audit log: %w", err)
	}
	v := &verifier{check: c, untilOpen: c.Until != nil}
	paths := []string{c.Path}
	if info.IsDir() {
		// The head first: a broker may be writing behind it.
		v.head, v.headErr = readHead(c.Path)
		if paths, err = logFiles(c.Path); err != nil {
			return Report{}, err
		}
		if len(paths) == 0 {
			return Report{}, fmt.Errorf("audit log %q: there is no audit-*.log in it", c.Path)
		}
	}
	v.begin(info.IsDir(), paths[0])
	for i, path := range paths {
		if err := v.file(path, i == len(paths)-1); err != nil {
			return Report{}, err
		}
	}
	v.report.Files = len(paths)
	if info.IsDir() {
		v.compareHead()
	}
	if v.untilOpen {
		v.problem(fmt.Sprintf("record %d with digest %.12s... is not in it", c.Until.Seq, c.Until.Digest))
	}
	v.report.Last = v.last.String()
	return v.report, nil
}

type verifier struct {
	check  Check
	report Report
	path   string
	line   int

	last      Head
	chained   bool // the digest before the next line is known
	strange   int  // lines since the last record that no writer leaves
	untilOpen bool
	head      *Head
	headErr   error
	headSeen  *Head // the head's record as the files have it
}

func (v *verifier) problem(what string) {
	v.report.Problems = append(v.report.Problems, Problem{File: v.path, Line: v.line, What: what})
}

func (v *verifier) note(what string) {
	v.report.Notes = append(v.report.Notes, fmt.Sprintf("%s:%d: %s", v.path, v.line, what))
}

// begin settles which record has to be the first.
func (v *verifier) begin(dir bool, first string) {
	v.last, v.chained = Head{Digest: genesis}, true
	if v.check.After != nil {
		v.last = *v.check.After
		return
	}
	if dir {
		return
	}
	if n, named := firstOf(first); named && n > 1 {
		v.last, v.chained = Head{Seq: n - 1}, false
		v.report.Notes = append(v.report.Notes, "only one file was checked: its link to the previous file and the end of the log were not")
		return
	}
	v.report.Notes = append(v.report.Notes, "only one file was checked: the end of the log was not")
}

func (v *verifier) file(path string, lastFile bool) error {
	v.path, v.line = filepath.Base(path), 0
	first := true
	err := scan(path, func(line []byte, whole bool, r *record) {
		v.line++
		if r == nil {
			v.noRecord(line, !whole && lastFile)
			return
		}
		if named, ok := firstOf(path); first && ok && named != r.Seq {
			v.problem(fmt.Sprintf("the file is named for record %d and begins with record %d", named, r.Seq))
		}
		first = false
		v.record(*r, line)
	})
	if v.strange > 0 {
		v.problem(fmt.Sprintf("%d lines at its end are no records", v.strange))
	}
	v.strange = 0
	return err
}

// noRecord judges a line that is no record.
func (v *verifier) noRecord(line []byte, last bool) {
	switch {
	case bytes.HasSuffix(line, []byte(tornEnd)):
		v.note("this line was torn when a writer ended or the disk was full")
	case last:
		v.note("the last line is torn: its writer was killed while it wrote, and the next one will end it")
	default:
		v.strange++
	}
}

func (v *verifier) record(r record, line []byte) {
	v.remark(r)
	switch expected := v.last.Seq + 1; {
	case r.Seq > expected:
		v.problem(fmt.Sprintf("records %d to %d are missing before this one", expected, r.Seq-1))
	case r.Seq < expected:
		v.problem(fmt.Sprintf("record %d stands behind record %d", r.Seq, v.last.Seq))
	case v.chained && r.Prev != v.last.Digest && r.Seq == 1:
		v.problem("the first record does not begin a log")
	case v.chained && r.Prev != v.last.Digest:
		v.problem(fmt.Sprintf("record %d was changed after it was written, or this one was: it was written behind another line", r.Seq-1))
	}
	v.last, v.chained = Head{Seq: r.Seq, Digest: digest(line)}, true
	if until := v.check.Until; until != nil && *until == v.last {
		v.untilOpen = false
	}
	if v.head != nil && v.head.Seq == r.Seq {
		v.headSeen = new(v.last)
	}
	if v.report.Records == 0 {
		v.report.First, v.report.Begin = r.Seq, r.At
	}
	v.report.Records++
	v.report.End = r.At
}

// remark says what a record tells of the log itself, and of the lines before it.
func (v *verifier) remark(r record) {
	switch {
	case v.strange > len(r.Torn):
		v.problem(fmt.Sprintf("%d lines before this one are no records", v.strange))
	case r.Kind == KindUnsynced, r.Kind == KindRecovered && len(r.Torn) > 0:
		v.note(r.Reason)
	case r.Kind == KindRecovered:
		v.problem("the broker found: " + r.Reason)
	}
	v.strange = 0
}

// compareHead looks for a tail that was cut off.
func (v *verifier) compareHead() {
	v.path, v.line = headName, 0
	head := v.head
	switch {
	case v.headErr != nil:
		v.problem(v.headErr.Error())
	case head == nil:
		v.problem("there is no head: whether the log's end was cut off cannot be checked")
	case head.Seq > v.last.Seq:
		v.problem(fmt.Sprintf("the log ends with record %d, and the head knows record %d: its end was cut off", v.last.Seq, head.Seq))
	case *head == Head{Digest: genesis}: // nothing was known to be on disk yet
	case v.headSeen == nil:
		v.problem(fmt.Sprintf("record %d, which the head knows, is not in the log", head.Seq))
	case v.headSeen.Digest != head.Digest:
		v.problem(fmt.Sprintf("record %d was changed: the head knows it with another digest", head.Seq))
	}
}
