// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// violation is something that must not be; other errors are the harness's.
type violation struct{ what string }

func (v violation) Error() string { return "violation: " + v.what }

func violated(format string, args ...any) error { return violation{fmt.Sprintf(format, args...)} }

// run is one scenario on its cluster.
type run struct {
	ctx      context.Context
	c        *emulated.Cluster
	scenario Scenario
	begun    time.Time
	settling time.Time
	// log is the course, which the course's file has as well.
	log  *os.File
	jobs []*job
	// nodes by name, in order.
	nodes []*node
	seen  view
	shown string
	// steps were done, repairs an administrator had to make.
	steps, repairs int
	// faults is how many there were of those that end or fail jobs anywhere.
	faults int
	// suspends is how many jobs were suspended.
	suspends int
	// stalled is since when jobs wait for idle nodes, unstalled that slurmctld was restarted for it.
	stalled   time.Time
	unstalled bool
	// reservations of the administrator's own, by name.
	reservations []string
	// reloads are the times in which slurmctld was reconfigured or restarted.
	reloads [][2]time.Time
	// said is when slurmctld last acknowledged or showed something new, killed when
	// it was killed last.
	said, killed time.Time
	// restored waits for what comes back by itself: a broker, a client.
	restored sync.WaitGroup
	// returning says that the broker does.
	returning atomic.Bool
	lock      sync.Mutex
	// failed is an error of what runs beside the steps.
	failed error
	number int
	// records that were judged.
	judged map[string]int
	starts map[string]int
	ends   map[string]bool
}

// Result is what a scenario came to.
type Result struct {
	Steps, Jobs, Repairs int
	// Course is the file with what happened.
	Course string
}

// Run runs a scenario on a cluster in a folder of its own, and returns an error
// where something was not as it must be; the folder then keeps the logs.
func Run(ctx context.Context, s Scenario, dir string) (Result, error) {
	o, err := emulated.Defaults()
	if err != nil {
		return Result{}, err
	}
	o.Dir = dir
	o.ReturnToService, o.BootTime = s.ReturnToService, s.BootTime
	o.Lines = []string{}
	if s.PowerSaving {
		o.PowerSaving = 2 * time.Second
		// From 26.05 on a job with a profile has its nodes' power switched on so.
		o.Client = map[string]any{"reboot_program": "/emulated/resume"}
	}
	if s.ResetCommand {
		o.Broker = map[string]any{"reset_command": []string{"/emulated/bmc", "reset", "{node}"}}
	}
	c, err := emulated.Up(ctx, o)
	if err != nil {
		return Result{}, err
	}
	r := &run{ctx: ctx, c: c, scenario: s, begun: time.Now(), judged: map[string]int{}, starts: map[string]int{}, ends: map[string]bool{}}
	for _, n := range c.Nodes() {
		r.nodes = append(r.nodes, &node{name: n.Name()})
	}
	course := filepath.Join(dir, "course.log")
	if r.log, err = os.Create(course); err == nil {
		err = r.all()
	}
	if err != nil {
		r.note("%v", err)
		r.describe()
	}
	down := c.Down(context.WithoutCancel(ctx), err != nil)
	r.restored.Wait()
	return Result{Steps: r.steps, Jobs: len(r.jobs), Repairs: r.repairs, Course: course}, errors.Join(err, down)
}

func (r *run) all() error {
	defer r.log.Close()
	if err := r.writeScripts(); err != nil {
		return err
	}
	r.note("Slurm %s, ReturnToService=%d, reset command %t, power saving %t, boots take %v",
		r.c.Options().Slurm, r.scenario.ReturnToService, r.scenario.ResetCommand, r.scenario.PowerSaving, r.scenario.BootTime)
	if err := r.look(); err != nil {
		return err
	}
	for i, a := range r.scenario.Actions {
		if err := r.step(i, a); err != nil {
			return err
		}
	}
	return r.settle()
}

func (r *run) step(i int, a Action) error {
	k, ok := kindNamed(a.Do)
	if !ok {
		return fmt.Errorf("action %q: there is none", a.Do)
	}
	r.number = i
	did, err := k.do(r, a.Pick)
	if did != "" {
		r.steps++
		r.note("#%d %s: %s", i, a.Do, did)
	}
	if err != nil {
		return err
	}
	if did == "" {
		return nil
	}
	r.pause(a.Pause)
	return r.check()
}

// check looks and compares.
func (r *run) check() error {
	if err := r.look(); err != nil {
		return err
	}
	r.lock.Lock()
	err := r.failed
	r.lock.Unlock()
	return errors.Join(err, r.checkRecords(), r.checkWords())
}

func (r *run) pause(d time.Duration) {
	select {
	case <-r.ctx.Done():
	case <-time.After(d):
	}
}

// note writes a line of the course.
func (r *run) note(format string, args ...any) {
	r.lock.Lock()
	defer r.lock.Unlock()
	// A course that cannot be written is missed by who reads it.
	_, _ = fmt.Fprintf(r.log, "%s %7.2f "+format+"\n", append([]any{time.Now().Format("15:04:05.000"), time.Since(r.begun).Seconds()}, args...)...)
}

// describe adds what a person would look at first.
func (r *run) describe() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), 30*time.Second)
	defer cancel()
	log, err := os.OpenFile(r.log.Name(), os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer log.Close()
	for _, argv := range [][]string{
		{"scontrol", "show", "node"}, {"scontrol", "show", "job"}, {"scontrol", "show", "reservation"},
		{"kernelctl", "node", "list", "-o", "wide"}, {"kernelctl", "job", "list", "-o", "wide"}, {"cat", "/home/alice/model-record", "/home/bob/model-record"},
	} {
		res, err := r.c.Exec(ctx, "root", argv...)
		fmt.Fprintf(log, "\n$ %s: exit %d %v\n%s%s", strings.Join(argv, " "), res.Exit, err, res.Stdout, res.Stderr)
	}
	for _, b := range r.c.Boots() {
		fmt.Fprintln(log, b)
	}
}

// exec runs a command on the front-end.
func (r *run) exec(user string, argv ...string) (emulated.Result, error) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, commandLimit, violated("a command takes more than %v: %s", commandLimit, strings.Join(argv, " ")))
	defer cancel()
	res, err := r.c.Exec(ctx, user, argv...)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return res, err
}

// commandLimit bounds each command of a user's or an administrator's.
const commandLimit = 90 * time.Second

// ask runs a command that may be refused and tells how it went.
func (r *run) ask(user string, argv ...string) (ok bool, told string, err error) {
	res, err := r.exec(user, argv...)
	told = user + ": " + strings.Join(argv, " ")
	if err == nil && res.Exit == 0 && strings.TrimSpace(res.Stderr) == "" {
		r.said = time.Now()
		return true, told, nil
	}
	return false, fmt.Sprintf("%s -> %d %s", told, res.Exit, strings.TrimSpace(res.Stderr+res.Stdout)), err
}

// look reads Slurm's view, and notes what changed.
func (r *run) look() error {
	nodes, err := r.show("node")
	if err != nil {
		return err
	}
	jobs, err := r.show("job")
	if err != nil {
		return err
	}
	r.seen = view{nodes: map[string]map[string]string{}}
	for _, n := range nodes {
		r.seen.nodes[n["NodeName"]] = n
	}
	for _, j := range jobs {
		if j["JobId"] != "" {
			r.seen.jobs = append(r.seen.jobs, j)
		}
	}
	if now := r.summary(); now != r.shown {
		r.shown, r.said = now, time.Now()
		r.note("  %s", now)
	}
	return nil
}

// show asks until slurmctld answers: a reconfigure of newer versions replaces it.
func (r *run) show(what string) ([]map[string]string, error) {
	for end := time.Now().Add(time.Minute); ; r.pause(200 * time.Millisecond) {
		res, err := r.exec("root", "scontrol", "show", what)
		if err == nil && res.Exit == 0 {
			return emulated.Sections(res.Stdout), nil
		}
		if err != nil || time.Now().After(end) {
			return nil, fmt.Errorf("scontrol show %s: exit %d: %s: %w", what, res.Exit, res.Stderr, errors.Join(err, violated("slurmctld does not answer")))
		}
	}
}

func (r *run) summary() string {
	var b strings.Builder
	for _, n := range r.nodes {
		seen := r.seen.nodes[n.name]
		fmt.Fprintf(&b, "%s %s %s", n.name, strings.TrimPrefix(r.c.Node(n.name).Kernel(), "6.1.0-"), seen["State"])
		if reason, _, _ := strings.Cut(seen["Reason"], " ["); reason != "" {
			fmt.Fprintf(&b, " [%s]", reason)
		}
		b.WriteString(" | ")
	}
	for _, j := range r.seen.jobs {
		if !over(j["JobState"]) {
			where := j["NodeList"]
			if where == "(null)" || where == "" {
				where, _, _ = strings.Cut(j["Reason"], ",")
			}
			fmt.Fprintf(&b, "%s=%s %s %s; ", j["JobName"], j["JobId"], j["JobState"], where)
		}
	}
	return b.String()
}
