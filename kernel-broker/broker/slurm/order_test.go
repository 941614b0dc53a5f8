// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// A job that begins during a poll, whose nodes Slurm then boots, never leaves a node that waits for a boot and has no job.
func TestJobThatBeginsDuringAPoll(t *testing.T) {
	began := row("7", "7", "N/A", "N/A", "N/A", "0", "CONFIGURING", "1000", "alice", "1", "9", "p", "None", "1", "1", "n1")
	// Whichever program is asked first makes the job begin.
	begin := `began=$(dirname "$0")/began`
	client, log := fake(t, begin+`
case "$*" in
*"show node"*) if [ -e "$began" ]; then state=ALLOCATED+POWERING_UP; else state=IDLE; fi; : >"$began"
	echo "NodeName=n1 State=$state" ;;
*"show reservation"*) ;;
*) exit 1 ;;
esac`, begin+`
[ ! -e "$began" ] || cat <<'END'
`+began+`END
: >"$began"`)
	view, err := client.View(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if n := view.Nodes["n1"]; n.Waiting() && len(view.Jobs) == 0 || len(view.Jobs) == 1 && n.Free() {
		t.Errorf("n1 is %s%v with %d jobs, of the questions\n%s", n.State, n.Flags, len(view.Jobs), log())
	}
	if len(view.Jobs) != 1 {
		t.Errorf("the job is not seen, of the questions\n%s", log())
	}
}

// Nodes are free for none of the jobs that begin, but for those that Slurm suspends or whose node is lost.
func TestNodesOfJobsThatBegan(t *testing.T) {
	view := kb.SlurmView{
		Nodes: map[string]kb.SlurmNode{
			"n1": {State: "IDLE"}, "n2": {State: "ALLOCATED"}, "n3": {State: "DRAINED"}, "n4": {State: "DOWN"}, "n5": {State: "IDLE"}, "n6": {State: "IDLE", Flags: []string{"COMPLETING"}},
		},
		Jobs: map[uint32]kb.SlurmJob{
			1: {State: "CONFIGURING", Nodes: []string{"n3", "n1", "gone"}}, 2: {State: "RUNNING", Nodes: []string{"n1", "n2", "n4", "n6"}}, 3: {State: "SUSPENDED", Nodes: []string{"n5"}},
		},
	}
	if got := view.Begun(); !slices.Equal(got, []string{"n1", "n3"}) {
		t.Errorf("%v", got)
	}
}

// A site writes as much into an AdminComment as it likes: the product's part is behind it. One that nothing can hold costs
// its own job alone.
func TestLongComment(t *testing.T) {
	ours := "kernel-broker: mitgcm requested; norequeue"
	script := `width=${*##*admin_comment:}; width=${width%% *}
print() { printf '%-12s' "$1"; printf "%-$width.${width}s\n" "$2"; }
case "$*" in
*admin_comment*) case "$*" in *--jobs=*15*) print 15 "` + ours + `";; esac
case "$*" in *--jobs=*14*) print 14 "$(head -c LENGTH /dev/zero | tr '\0' x) | ` + ours + `";; esac ;;
*--jobs*) ;;
*) cat <<'END'
` + row("14", "14", "N/A", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "9", "p", "Resources", "1", "1", "") +
		row("15", "15", "N/A", "N/A", "N/A", "0", "PENDING", "1000", "alice", "1", "8", "p", "Resources", "1", "1", "") + "END\n;; esac"
	for length, read := range map[string]bool{"10": true, "1060": true, "1061": true, "60000": true, "70000": false} {
		client, _ := fake(t, viewScontrol, strings.ReplaceAll(script, "LENGTH", length))
		view, err := client.View(t.Context(), true)
		if err != nil || len(view.Queue) != 2 {
			t.Fatalf("%s bytes: %d in the queue, %v", length, len(view.Queue), err)
		}
		if got := view.Queue[0].SaidNoRequeue(); got != read {
			t.Errorf("%s bytes: read %v, want %v", length, got, read)
		}
		if !view.Queue[1].SaidNoRequeue() {
			t.Errorf("%s bytes: the other job lost its part: %q", length, view.Queue[1].AdminComment)
		}
		if comment, err := client.AdminComment(t.Context(), 14); (err == nil) != read || read && !strings.HasSuffix(comment, " | "+ours) {
			t.Errorf("%s bytes: %.40q, %v", length, comment, err)
		}
	}
	if scontrol.LongText < 1<<16 {
		t.Error("slurmdbd stores 64 KiB")
	}
}
