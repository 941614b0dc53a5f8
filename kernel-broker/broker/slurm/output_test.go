// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A command that prints without end is ended before it fills the broker's memory.
func TestOutputIsBounded(t *testing.T) {
	for _, c := range []struct{ name, scontrol, squeue, says string }{
		{"jobs", viewScontrol, "exec yes", `squeue --noheader --array printed more than the limit of 65536 bytes`},
		{"nodes", "exec yes", viewSqueue, `scontrol --oneliner --all printed more than the limit of 65536 bytes`},
		{"errors", "exec yes >&2", viewSqueue, `scontrol --oneliner --all printed more than the limit of 65536 bytes`},
	} {
		client, _ := fake(t, c.scontrol, c.squeue)
		client.runner.MaxOutput = 64 << 10
		if _, err := client.View(t.Context(), false); !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	client, _ := fake(t, viewScontrol, viewSqueue)
	client.runner.MaxOutput = 64 << 10
	if _, err := client.View(t.Context(), false); err != nil {
		t.Errorf("what is below the bound: %v", err)
	}
}

// squeue prints one comment for each pending task of an array; one query reads it.
func TestArrayCommentIsQueriedOnce(t *testing.T) {
	lines := ""
	for _, task := range []string{"1", "2", "3"} {
		lines += row("14", "14", task, "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "9", "p", "Resources", "1", "1", "")
	}
	client, log := fake(t, viewScontrol, `case "$*" in *admin_comment*) printf '%-12s%-1100s\n' 14 'kernel-broker: mitgcm requested' ;; *--jobs*) ;; *) cat <<'END'
`+lines+"END\n;; esac")
	view, err := client.View(t.Context(), true)
	if err != nil || len(view.Queue) != 3 {
		t.Fatalf("%d in the queue, %v", len(view.Queue), err)
	}
	for _, job := range view.Queue {
		if ref, ok := job.Requested(); !ok || ref.Profile != "mitgcm" {
			t.Errorf("%+v", job)
		}
	}
	if strings.Count(log(), "admin_comment") != 1 {
		t.Errorf("ran\n%s", log())
	}
}

// A task that begins between two questions has another id by then: the poll goes on without its comment.
func TestTaskThatBeginsMeanwhile(t *testing.T) {
	lines := row("14", "14", "1", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "9", "p", "Resources", "1", "1", "") +
		row("16", "16", "N/A", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "8", "p", "Resources", "1", "1", "")
	client, _ := fake(t, viewScontrol, `case "$*" in
*admin_comment*) printf '%-12s%-1100s\n' 15 'kernel-broker: lammps requested' 16 'kernel-broker: mitgcm requested' ;;
*--jobs*) ;;
*) cat <<'END'
`+lines+"END\n;; esac")
	view, err := client.View(t.Context(), true)
	if err != nil || len(view.Queue) != 2 {
		t.Fatalf("%+v, %v", view.Queue, err)
	}
	if gone := view.Queue[0]; gone.ID != 14 || gone.AdminComment != "" || gone.Demand != nil {
		t.Errorf("the task that began is %+v", gone)
	}
	if ref, ok := view.Queue[1].Requested(); !ok || ref.Profile != "mitgcm" {
		t.Errorf("the other job is %+v", view.Queue[1])
	}
}
