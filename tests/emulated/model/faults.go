// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

var faultKinds = []kind{
	{"reset", 2, (*run).reset},
	{"power off", 1, (*run).powerOff},
	{"power on", 2, (*run).powerOn},
	{"agent killed", 2, (*run).killAgent},
	{"broker killed", 2, (*run).killBroker},
	{"slurmctld killed", 1, (*run).killSlurmctld},
	{"slurmctld restarted", 2, (*run).restartSlurmctld},
	{"load fails", 1, (*run).failLoad},
	{"hook killed", 1, (*run).killHook},
}

func (r *run) reset(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if n.off {
		return "", nil
	}
	n.resets++
	n.rebootFrom = ""
	r.orphan()
	r.c.Node(n.name).Reset()
	return n.name, nil
}

// justNow is longer than Slurm forgives a job that its node does not know (its
// MessageTimeout and five seconds), and than slurmctld takes to save its state.
const justNow = 20 * time.Second

// orphan notes the jobs that may lose their processes.
func (r *run) orphan() {
	for _, j := range r.justStarted() {
		j.orphan = true
	}
}

// justStarted are the jobs that start or have just started, on whatever node, and
// may be over since.
func (r *run) justStarted() []*job {
	var list []*job
	for _, seen := range r.seen.jobs {
		j, state := r.jobNamed(seen["JobName"]), seen["JobState"]
		at, err := time.ParseInLocation("2006-01-02T15:04:05", seen["StartTime"], time.Local)
		recent := err == nil && time.Since(at) < justNow
		if j != nil && (recent || !over(state) && (state != "RUNNING" || err != nil)) {
			list = append(list, j)
		}
	}
	return list
}

func (r *run) powerOff(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if n.off || !r.powered(n) {
		return "", nil
	}
	n.off, n.rebootFrom = true, ""
	n.resets++
	r.orphan()
	r.c.Node(n.name).PowerOff()
	return n.name, nil
}

func (r *run) powerOn(pick [4]int) (string, error) {
	for i := range r.nodes {
		if did, err := r.light(r.node(pick[0] + i)); did || err != nil {
			return r.node(pick[0] + i).name, err
		}
	}
	return "", nil
}

// light gives a node its power back, unless Slurm has it switched off: a boot that
// Slurm did not ask for has it wait for its own for ever.
func (r *run) light(n *node) (bool, error) {
	if !n.off {
		return false, nil
	}
	if err := r.look(); err != nil {
		return false, err
	}
	n.off = false
	if !r.powered(n) {
		return false, nil
	}
	r.c.Node(n.name).PowerOn()
	return true, nil
}

// powered says whether Slurm has not switched a node's power off.
func (r *run) powered(n *node) bool {
	return !r.scenario.PowerSaving || !has(r.seen.nodes[n.name]["State"], "POWERED_DOWN", "POWERING_DOWN")
}

func (r *run) killAgent(pick [4]int) (string, error) {
	n := r.node(pick[0])
	if err := r.c.Node(n.name).KillAgent(r.ctx); err != nil {
		return "", nil //nolint:nilerr // it is not up, or between two boots
	}
	return n.name, nil
}

// killBroker has a broker away for some seconds.
func (r *run) killBroker(pick [4]int) (string, error) {
	b := r.c.Broker()
	if r.returning.Load() || !b.Running() {
		return "", nil
	}
	r.blind()
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[pick[1]%2]
	if err := b.Signal(r.ctx, sig); err != nil {
		return "", err
	}
	away := time.Duration(pick[0]%8) * time.Second
	r.restored.Add(1)
	r.returning.Store(true)
	go func() {
		defer r.restored.Done()
		defer r.returning.Store(false)
		for b.Running() {
			r.pause(100 * time.Millisecond)
		}
		r.pause(away)
		if err := b.Start(r.ctx); err != nil {
			r.lock.Lock()
			r.failed = fmt.Errorf("broker after %v: %w", sig, err)
			r.lock.Unlock()
		}
		r.note("  (broker is back)")
	}()
	return fmt.Sprintf("%v, away for %v", sig, away), nil
}

// killSlurmctld kills it once it has saved what it acknowledged: what it forgets
// otherwise is not the product's.
func (r *run) killSlurmctld(pick [4]int) (string, error) {
	dir := r.c.Path("var/lib/slurm/slurmctld")
	saved := func() bool {
		for _, file := range []string{"job_state", "node_state"} {
			info, err := os.Stat(dir + "/" + file)
			if err != nil || !info.ModTime().After(r.said.Add(100*time.Millisecond)) {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(8 * time.Second); ; r.pause(200 * time.Millisecond) {
		if err := r.look(); err != nil {
			return "", err
		}
		if saved() || time.Now().After(end) {
			break
		}
	}
	// Jobs that it has just started it starts once more, even if they are over.
	for _, j := range r.justStarted() {
		j.twice = fmt.Sprintf("slurmctld was killed (#%d)", r.number)
	}
	defer func() { r.killed = time.Now() }()
	return r.restart(pick, syscall.SIGKILL)
}

func (r *run) restartSlurmctld(pick [4]int) (string, error) { return r.restart(pick, syscall.SIGTERM) }

func (r *run) restart(pick [4]int, sig syscall.Signal) (string, error) {
	defer r.reloading(time.Now())
	r.blind()
	r.readState()
	d := r.c.Slurmctld()
	kill := d.Stop
	if sig == syscall.SIGKILL {
		kill = d.Kill
	}
	r.faults++
	r.loseHooks()
	away := time.Duration(pick[1]%4) * time.Second
	told := fmt.Sprintf("%v, away for %v", sig, away)
	if err := kill(r.ctx); err != nil {
		return told, err
	}
	r.pause(away)
	return told, d.Start(r.ctx)
}

// loseHooks notes the nodes that boot for jobs while there is no broker: slurmctld
// that ends kills the hooks that wait for one, and nobody boots those nodes, which
// docs/status.md says.
func (r *run) loseHooks() {
	for _, n := range r.nodes {
		if !r.c.Broker().Running() && has(r.seen.nodes[n.name]["State"], "POWERING_UP", "REBOOT_ISSUED") {
			n.switched++
		}
	}
}

func (r *run) failLoad(pick [4]int) (string, error) {
	n := r.node(pick[0])
	n.loadFails++
	kernel := []string{"mitgcm", "lammps", "stock"}[pick[1]%3]
	return n.name + " " + kernel, r.c.Node(n.name).FailNextLoad(kernel)
}

// hookScript kills a hook of slurmctld's, if one runs.
const hookScript = `for p in /proc/[0-9]*; do
	read -r name <"$p/comm" || continue
	case $name in prolog-slurmctl | epilog-slurmctl) kill -9 "${p#/proc/}" && echo "$name" ;; esac
done 2>/dev/null
:`

// killHook leaves out hooks that have no broker to talk to: nobody boots their jobs'
// nodes then, which docs/status.md says.
func (r *run) killHook([4]int) (string, error) {
	if !r.c.Broker().Running() {
		return "", nil
	}
	res, err := r.exec("root", "sh", "-c", hookScript)
	if err != nil || res.Stdout == "" {
		return "", err
	}
	r.faults++
	return strings.Join(strings.Fields(res.Stdout), " "), nil
}
