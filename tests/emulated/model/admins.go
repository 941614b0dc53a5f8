// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

var adminKinds = []kind{
	{"drain", 2, (*run).drain},
	{"down", 1, (*run).setDown},
	{"take back", 3, (*run).takeBack},
	{"resume node", 1, (*run).resumeNode},
	{"reconfigure", 2, (*run).reconfigure},
	{"reboot", 1, (*run).reboot},
	{"cancel reboot", 1, (*run).cancelReboot},
	{"reserve", 1, (*run).reserve},
	{"delete reservation", 1, (*run).deleteReservation},
	{"power down", 1, (*run).powerDown},
	{"power up", 1, (*run).powerUp},
}

func (r *run) node(pick int) *node { return r.nodes[pick%len(r.nodes)] }

func (r *run) say(n *node, state string) (bool, string, error) {
	reason := fmt.Sprintf("%s of #%d, bad DIMM", state, r.number)
	seen := r.seen.nodes[n.name]
	said := &word{
		down: state == "down", reason: reason, boot: r.toReboot(n), at: time.Now(),
		unheard: has(seen["State"], "REBOOT_ISSUED"), armed: rebooting(seen),
		unseen:  has(seen["State"], "DOWN") && has(seen["State"], "REBOOT_ISSUED"),
		between: has(seen["State"], "REBOOT_REQUESTED") && (!has(seen["State"], "ALLOCATED", "MIXED") || strings.HasPrefix(seen["Reason"], unlabelled)),
	}
	ok, told, err := r.ask("root", "scontrol", "update", "nodename="+n.name, "state="+state, "reason="+reason)
	if ok {
		n.word = said
		n.rebootFrom = ""
	}
	return ok, told, err
}

// unlabelled is the reason of an armed boot to which the broker has not given its own.
const unlabelled = "Reboot ASAP"

// toReboot is the boot of a node that an administrator's reboot is to end, "" if
// there is none.
func (r *run) toReboot(n *node) string {
	seen := r.seen.nodes[n.name]
	switch {
	case !rebooting(seen):
		return ""
	case n.word != nil:
		return n.word.boot
	case !strings.HasPrefix(seen["Reason"], rebootReason):
		return "" // it is the broker's
	case n.rebootFrom != "":
		return n.rebootFrom
	}
	return r.c.Node(n.name).BootID()
}

// rebooting says whether Slurm is to boot a node on its own account.
func rebooting(seen map[string]string) bool {
	return has(seen["State"], "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED")
}

func (r *run) drain(pick [4]int) (string, error) {
	n := r.node(pick[0])
	// From 24.11 on that ends the job of a node that it powers up and has not armed.
	if has(r.seen.nodes[n.name]["State"], "POWERING_UP") {
		n.downs++
	}
	_, told, err := r.say(n, "drain")
	return told, err
}

func (r *run) setDown(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if n.word != nil {
		return "", nil // one word at a time
	}
	ok, told, err := r.say(n, "down")
	if ok {
		n.downs++
	}
	return told, err
}

// takeBack resumes a node that an administrator drained or set down.
func (r *run) takeBack(pick [4]int) (string, error) {
	var said []*node
	for _, n := range r.nodes {
		if n.word != nil {
			said = append(said, n)
		}
	}
	if len(said) == 0 {
		return "", nil
	}
	return r.resume(said[pick[0]%len(said)])
}

func (r *run) resume(n *node) (string, error) {
	if rebooting(r.seen.nodes[n.name]) {
		n.disarmed = time.Now()
	}
	// Newer Slurm refuses it for a node that no longer needs it, and for one that has
	// not registered since slurmctld started: there it takes the drain and leaves the
	// reason, as a boot does, after which the broker says the drain again.
	ok, told, err := r.ask("root", "scontrol", "update", "nodename="+n.name, "state=resume")
	if w := n.word; w != nil {
		n.taken, n.takenAt = w.reason, time.Now()
		// Of a node that is to boot, and was not told to yet, the broker says it again as soon as it has heard it: Slurm takes
		// that of the moment after the resume.
		if !ok || w.armed && time.Since(w.at) < lookTime {
			n.resaid = n.taken
		}
	}
	n.word, n.rebootFrom = nil, ""
	return told, err
}

// resumeNode resumes a node of which no administrator said anything, as one does
// who sees "draining" and does not know why.
func (r *run) resumeNode(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if n.word != nil || !has(r.seen.nodes[n.name]["State"], "DRAIN", "DOWN") && !rebooting(r.seen.nodes[n.name]) {
		return "", nil
	}
	return r.resume(n)
}

// readState notes what a slurmctld that reads its saved state does to nodes that are set down while they boot for a job: from
// 26.05 on such a boot is one that ends in service, and those are free for jobs at once (_build_bitmaps).
func (r *run) readState() {
	for _, n := range r.nodes {
		state := r.seen.nodes[n.name]["State"]
		if w := n.word; w != nil && w.down && r.c.Options().Slurm == "26.05" && has(state, "REBOOT_ISSUED") && !has(state, "DRAIN") {
			w.dropped = true
		}
	}
}

func (r *run) reconfigure([4]int) (string, error) {
	if r.c.Options().Slurm == "22.05" && slices.ContainsFunc(r.jobs, func(j *job) bool { return j.suspended }) {
		return "", nil // slurmctld would count it twice on its nodes (_sync_nodes_to_suspended_job), and never boot or switch off those
	}
	for _, n := range r.nodes {
		n.unresumed = n.unresumed || n.rebootFrom != ""
		if w := n.word; w != nil && w.down && r.c.Options().Slurm == "22.05" && !r.c.Broker().Running() && has(r.seen.nodes[n.name]["State"], "POWERING_UP") {
			w.dropped = true
		}
	}
	r.readState()
	defer r.reloading(time.Now())
	r.blind()
	r.loseHooks()
	ok, told, err := r.ask("root", "scontrol", "reconfigure")
	if err != nil || ok || !r.crashed() {
		return told, err
	}
	// It has saved all before, and nobody but its administrator starts it again.
	r.faults++
	for _, j := range r.justStarted() {
		j.twice = fmt.Sprintf("slurmctld crashed in a reconfigure (#%d)", r.number)
	}
	return told + "; it crashed, and is started", r.c.Slurmctld().Start(r.ctx)
}

// epilogKilled is what slurmctld says before it crashes in a reconfigure: 24.11
// kills an EpilogSlurmctld that runs, and if its job was requeued asks a plugin
// for the priority that it has closed already.
const epilogKilled = "EpilogSlurmctld killed by signal"

// crashed says whether slurmctld is gone, and over that fault of its own.
func (r *run) crashed() bool {
	d := r.c.Slurmctld()
	for end := time.Now().Add(5 * time.Second); d.Running(); r.pause(100 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	text, err := os.ReadFile(d.Log())
	last := text[max(0, len(text)-2000):]
	return err == nil && strings.Contains(string(last), epilogKilled)
}

// rebootReason is how the reason of an administrator's reboot begins.
const rebootReason = "kernel update"

// reboot asks for a boot of a node that is in service.
func (r *run) reboot(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if n.word != nil || n.off || n.rebootFrom != "" {
		return "", nil
	}
	from := r.c.Node(n.name).BootID()
	reason := fmt.Sprintf("%s #%d", rebootReason, r.number)
	ok, told, err := r.ask("root", "scontrol", "reboot", "ASAP", "nextstate=resume", "reason="+reason, n.name)
	if ok {
		boots := len(r.c.BootsOf(n.name))
		if err = r.look(); err != nil {
			return told, err
		}
		n.rebootFrom, n.bootsBefore = from, 0
		if strings.Contains(r.seen.nodes[n.name]["Reason"], reason) {
			n.bootsBefore = boots
		}
		// The broker, which did not see its own boot go, takes this for a drain under it; so it does where it has not armed yet a
		// node that boots for a job.
		n.unresumed = n.unresumed || time.Since(n.disarmed) < lookTime || has(r.seen.nodes[n.name]["State"], "POWERING_UP")
	}
	return told, err
}

func (r *run) cancelReboot(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if !strings.Contains(r.seen.nodes[n.name]["State"], "REBOOT") && n.rebootFrom == "" {
		return "", nil
	}
	ok, told, err := r.ask("root", "scontrol", "cancel_reboot", n.name)
	n.rebootFrom = ""
	n.switched++
	if err != nil || !ok || n.word == nil {
		return told, err
	}
	// With the boot Slurm takes back a drain that was said after it was asked for, and
	// the reason of a node that was set down, which so looks like one that crashed.
	if err = r.look(); err == nil && !n.word.stands(r.seen.nodes[n.name]) {
		r.note("  %s: cancel_reboot took back %q", n.name, n.word.reason)
		n.unreasoned = n.word.down
		n.word = nil
	}
	return told, err
}

// reserve makes a reservation of the administrator's own, which is hers to delete.
func (r *run) reserve(pick [4]int) (string, error) {
	if len(r.reservations) > 1 {
		return "", nil
	}
	name := fmt.Sprintf("own%d", r.number)
	ok, told, err := r.ask("root", "scontrol", "create", "reservation="+name, "nodes="+r.node(pick[0]).name, "users=root",
		"starttime=now", "duration=60", "flags=ignore_jobs")
	if ok {
		r.reservations = append(r.reservations, name)
	}
	return told, err
}

func (r *run) deleteReservation(pick [4]int) (string, error) {
	if len(r.reservations) == 0 {
		return "", nil
	}
	i := pick[0] % len(r.reservations)
	ok, told, err := r.ask("root", "scontrol", "delete", "reservation="+r.reservations[i])
	if err == nil && !ok {
		err = violated("an administrator's reservation is lost: %s", told)
	}
	r.reservations = slices.Delete(r.reservations, i, i+1)
	return told, err
}

func (r *run) powerDown(pick [4]int) (string, error) { return r.power(pick, "power_down") }
func (r *run) powerUp(pick [4]int) (string, error)   { return r.power(pick, "power_up") }

func (r *run) power(pick [4]int, state string) (string, error) {
	n := r.node(pick[0])
	if !r.scenario.PowerSaving || n.word != nil || n.off {
		return "", nil
	}
	_, told, err := r.ask("root", "scontrol", "update", "nodename="+n.name, "state="+state)
	// A boot by power is one too, and power takes a reboot's place.
	n.rebootFrom = ""
	n.switched++
	return told, err
}
