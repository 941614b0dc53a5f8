// SPDX-License-Identifier: Apache-2.0

package scontrol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Widths of squeue's columns. All records have one length, whatever line breaks they contain. Slurm limits accounts to
// 1024 bytes, so none is cut to look like another one. It does not limit an AdminComment: one that fills a column of
// TextWidth is asked for once more, in one of LongText.
const (
	IDWidth   = 12
	TextWidth = 1100
	LongText  = 1 << 16
)

// AskText are squeue's arguments for one field of jobs in any state, in a column of a width. Jobs are named as scontrol
// names them, with commas between.
func AskText(field, jobs string, width int) []string {
	return []string{"--noheader", "--all", "--states=all", "--jobs=" + jobs, fmt.Sprintf("--Format=JobID:%d,%s:%d", IDWidth, field, width)}
}

// CommentField is squeue's name for the AdminComment.
const CommentField = "admin_comment"

// Comments reads the AdminComment in each of a job's records, also one in which others have written much. ask runs squeue.
func Comments(job uint32, ask func(arguments ...string) (string, error)) (comments []string, err error) {
	for _, width := range []int{TextWidth, LongText} {
		var out string
		if out, err = ask(AskText(CommentField, strconv.FormatUint(uint64(job), 10), width)...); err != nil {
			return nil, err
		}
		if comments, err = Texts(out, job, width); !errors.Is(err, ErrCut) {
			break
		}
	}
	return comments, err
}

// ErrNotThere is returned for a job that slurmctld does not have.
var ErrNotThere = errors.New("is not in slurmctld")

// ErrCut is returned for a text that fills its column: its end may be missing.
var ErrCut = errors.New("has a longer text than its column")

// Texts reads the records of a job among those of its array or heterogeneous job. At least one exists.
func Texts(out string, job uint32, width int) (texts []string, err error) {
	recordWidth := IDWidth + width + len("\n")
	for len(out) > 0 {
		if len(out) < recordWidth || out[recordWidth-1] != '\n' {
			return nil, fmt.Errorf("job %d: squeue printed %.80q: %w", job, out, kb.ErrUnavailable)
		}
		record := out[:recordWidth-1]
		out = out[recordWidth:]
		id, err := strconv.ParseUint(strings.TrimSpace(record[:IDWidth]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("job %d: squeue printed %.80q: %w", job, record, kb.ErrUnavailable)
		}
		if uint32(id) != job {
			continue
		}
		text := strings.TrimRight(record[IDWidth:], " ")
		if len(text) == width {
			return nil, fmt.Errorf("job %d %w of %d bytes: %w", job, ErrCut, width, kb.ErrUnavailable)
		}
		if text == "(null)" {
			text = ""
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("job %d %w: %w", job, ErrNotThere, kb.ErrUnavailable)
	}
	return texts, nil
}
