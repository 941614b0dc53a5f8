// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// checkRecords judges what the jobs' processes have written since the last look.
func (r *run) checkRecords() error {
	for _, user := range users {
		text, err := os.ReadFile(filepath.Join(r.c.Home(user), "model-record"))
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("records: %w", err)
		}
		fresh := string(text[r.judged[user]:])
		// A line that is not whole yet is judged the next time.
		fresh = fresh[:strings.LastIndex(fresh, "\n")+1]
		r.judged[user] += len(fresh)
		for line := range strings.Lines(fresh) {
			if err := r.judge(strings.TrimSpace(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) judge(line string) error {
	r.note("  record: %s", line)
	what, rest, _ := strings.Cut(line, " ")
	field := map[string]string{}
	for _, f := range strings.Fields(rest) {
		k, v, _ := strings.Cut(f, "=")
		field[k] = v
	}
	j := r.jobNamed(field["name"])
	if j == nil {
		return violated("nobody submitted it: %s", line)
	}
	if field["release"] != j.release() {
		return violated("job %s asked for %s and ran on %s: %s", j.name, j.release(), field["release"], line)
	}
	j.ran = true
	key := j.name + "/" + field["task"]
	switch what {
	case "start":
		r.starts[key]++
		if j.noRequeue && r.starts[key] > 1 && j.twice == "" {
			return violated("job %s has --no-requeue and ran twice: %s", j.name, line)
		}
	case "end":
		r.ends[key] = true
	}
	return nil
}

// wordGrace is how long a word may be missing in mid-switch: Slurm has one field
// for the reason of a drain and of a boot.
const wordGrace = 10 * time.Second

// checkWords compares the nodes with what their administrators said.
func (r *run) checkWords() error {
	for _, n := range r.nodes {
		seen := r.seen.nodes[n.name]
		w := n.word
		if w != nil && w.armed && time.Since(w.at) < lookTime && has(seen["State"], "REBOOT_ISSUED") {
			w.unseen = true // the broker need not have looked before Slurm issued the boot
		}
		switch {
		case w == nil:
		case w.stands(seen):
			w.missing, w.stood = time.Time{}, true
			if !rebooting(seen) {
				w.boot = ""
			}
		case w.down && r.scenario.ReturnToService == 2 && (!has(seen["State"], "DOWN", "DRAIN") || armedByBroker(seen)):
			// Slurm takes it back at the node's next registration. Where the broker
			// said it again, or is about to, it is drained.
			r.note("  %s: ReturnToService=2 took back %q", n.name, w.reason)
			n.word, n.resaid = nil, w.reason
		case w.down && r.scenario.ReturnToService == 2 && strings.HasPrefix(seen["Reason"], w.reason) && has(seen["State"], "DRAIN") &&
			!w.missing.IsZero() && time.Since(w.missing) > wordGrace/2:
			// It takes back the down alone of what the broker said again, a drain and a down.
			r.note("  %s: ReturnToService=2 left a drain of %q", n.name, w.reason)
			w.unseen = true
		case w.boot != "" && w.boot != r.c.Node(n.name).BootID() && (!rebooting(seen) || forAJob(seen)):
			r.note("  %s: the reboot that was asked for before took back %q", n.name, w.reason)
			n.word = nil
		case w.unheard && r.registered(n, w.at):
			// A broker that looked in that moment says it again.
			r.note("  %s: said while its slurmd registered: %q", n.name, w.reason)
			n.word, n.resaid = nil, w.reason
		case w.between && !w.stood:
			// In that millisecond the broker may have given the node to the next job,
			// which Slurm does together with the drain (_undo_reboot_asap), or its own
			// reason to the boot, after it had looked: Slurm compares nothing.
			r.note("  %s: said while the broker gave the node another reason: %q", n.name, w.reason)
			n.word, n.resaid = nil, w.reason
		case w.dropped:
			r.note("  %s: Slurm returned it to service: %q", n.name, w.reason)
			n.word, n.resaid = nil, w.reason
		case w.missing.IsZero():
			w.missing = time.Now()
		case time.Since(w.missing) > wordGrace:
			return violated("node %s: an administrator said %q, and it is %s [%s] for %v",
				n.name, w.reason, seen["State"], seen["Reason"], time.Since(w.missing).Round(time.Second))
		}
	}
	return nil
}

// armedByBroker says whether the node has a job, and the drain is that of its return.
func armedByBroker(seen map[string]string) bool {
	return has(seen["State"], "REBOOT_REQUESTED") && has(seen["State"], "ALLOCATED", "MIXED") && strings.HasPrefix(seen["Reason"], "kprof:")
}

// forAJob says whether a node is to be booted for a job, or armed for the return from one.
func forAJob(seen map[string]string) bool {
	return has(seen["State"], "POWERING_UP") || strings.HasPrefix(seen["Reason"], "kprof:")
}

// lostWords is how soon before a registration words may be lost: the broker looks
// at Slurm once more before slurmd starts, and not while it does (ADR 0027).
const lostWords = time.Second

// registered says whether slurmctld took a node's boot for done just after a moment.
// While slurmctld is away neither the broker sees what was said nor slurmd registers.
func (r *run) registered(n *node, moment time.Time) bool {
	text, err := os.ReadFile(r.c.Slurmctld().Log())
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		stamp, said, _ := strings.Cut(strings.TrimPrefix(line, "["), "] ")
		if strings.TrimSpace(said) != "node "+n.name+" returned to service" {
			continue
		}
		at, err := time.ParseInLocation("2006-01-02T15:04:05.000", stamp, time.Local)
		if err != nil || !at.After(moment) {
			continue
		}
		for _, away := range r.reloads {
			if away[0].After(moment) && away[0].Before(at) {
				at = away[0]
			}
		}
		if at.Sub(moment) < lostWords {
			return true
		}
	}
	return false
}
