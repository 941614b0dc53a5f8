// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// commentColumns end in the comment, which is unbounded.
const commentColumns = "JobID:12,admin_comment:1100"

// commentFor returns a comment that keeps what the job requested at submit. If slurmctld does not answer, it returns the
// reason alone.
func (s scontrol) commentFor(ctx context.Context, j job, reason string) string {
	id := strconv.FormatUint(uint64(j.id.Job), 10)
	out, err := s.program(ctx, filepath.Join(filepath.Dir(s.path), "squeue"), "--noheader", "--array", "--all", "--states=all",
		"--jobs="+id, "--Format="+commentColumns)
	if err != nil {
		return reason
	}
	for line := range strings.Lines(out) {
		if has, comment, _ := strings.Cut(line, " "); has == id {
			return kb.SlurmJob{AdminComment: strings.TrimSpace(comment)}.Retell(reason)
		}
	}
	return reason
}
