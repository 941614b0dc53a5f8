// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

const (
	// checkEvery is the interval between checks for the job.
	checkEvery = 20 * time.Millisecond
	// leaveLimit is how long an ended job may take to leave its cgroup: slurmd kills its processes after KillWait, by
	// default 30 s.
	leaveLimit = time.Minute
)

// whyStays: a process outlived Slurm's kill.
const whyStays = "processes of the job were still on this node a minute after its end: what they did from then on is missing"

// whyAgent: the agent ends while the job runs, such as for an update.
const whyAgent = "the agent was stopped before the job ended"

// run is the state of one desired run.
type run struct {
	k      *Keeper
	id     uint64
	log    *slog.Logger
	folder folder
	// ctx ends with errOver when the broker no longer wants the run, and with errLeft when the agent ends.
	ctx  context.Context
	end  context.CancelCauseFunc
	news chan struct{}
	// notes list what is incomplete beyond the results; only the run's own goroutine uses them.
	notes []string

	mu      sync.Mutex
	desired kb.DesiredRun
	state   kb.RunNodeState
	reason  string
	// sending: some data has not reached the broker.
	sending bool
}

func newRun(k *Keeper, desired kb.DesiredRun) *run {
	ctx, end := context.WithCancelCause(context.Background())
	return &run{
		k: k, id: desired.Run, desired: desired, log: k.o.Log.With("run", desired.Run, "job", desired.Job.String()),
		folder: folder(filepath.Join(k.o.Dir, strconv.FormatUint(desired.Run, 10))),
		ctx:    ctx, end: end, news: make(chan struct{}, 1),
	}
}

// wanted updates the desired run and repeats its state: the broker may be a new one.
func (r *run) wanted(desired kb.DesiredRun) {
	r.mu.Lock()
	r.desired = desired
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *run) now() kb.DesiredRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.desired
}

// busy: a boot would lose data.
func (r *run) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sending || r.state == kb.RunNodeLooking
}

// enter changes and reports the state.
func (r *run) enter(state kb.RunNodeState, reason string) {
	r.mu.Lock()
	r.state, r.reason = state, reason
	r.mu.Unlock()
	r.log.Info("profiling run", "state", string(state), "reason", reason)
	r.report()
}

// reportLimit: a blocked stream is soon replaced.
const reportLimit = 2 * time.Second

func (r *run) report() {
	r.mu.Lock()
	state, reason := r.state, r.reason
	r.mu.Unlock()
	if state == "" {
		return
	}
	ctx, cancel := context.WithTimeout(r.k.ctx, reportLimit)
	defer cancel()
	if err := r.k.o.Broker.ReportRun(ctx, r.id, state, reason, nil); err != nil {
		r.log.Debug("state of the run not reported, the next stream has it", "error", err)
	}
}

// live runs until the broker no longer wants the run, or the agent ends and the next one continues.
func (r *run) live() {
	result, err := r.profile()
	r.k.freePlace(r)
	switch {
	case errors.Is(err, errOver), errors.Is(err, errLeft):
	case err != nil:
		r.fail(err)
	default:
		r.deliver(result)
	}
	r.linger()
	if errors.Is(context.Cause(r.ctx), errOver) {
		r.k.forget(r)
	}
}

// linger repeats a failure to each new broker.
func (r *run) linger() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.news:
			r.report()
		}
	}
}

func (r *run) fail(err error) {
	r.mu.Lock()
	r.sending = false
	r.mu.Unlock()
	r.enter(kb.RunNodeFailed, oneLine(err))
}

// Ends of a run without a result to deliver.
var (
	errOver = errors.New("the broker no longer wants the run")
	errLeft = errors.New("the agent ends")
	// errNobody: only an earlier agent may have left results.
	errNobody = errors.New("no process of the job was seen on this node; if it ran one, Slurm does not keep jobs in cgroups of version 2: " +
		"set ProctrackType=proctrack/cgroup in slurm.conf and CgroupPlugin=cgroup/v2 in cgroup.conf")
	errKilled = errors.New("the agent was killed while profiling, and the job ended before it restarted")
	// errUnused: Slurm removed the cgroup before the job used it, such as after the step before.
	errUnused = errors.New("the job's cgroup was removed before a process came into it")
)

// whyLate is noted if the job started before its collectors: the node was slow, an agent was killed, or a step started
// on a node without other processes of the job.
const whyLate = "the job had started when the collectors were attached: its activity before that is missing"

// profile waits for the job, profiles it, and returns the directory's content. An error is the reason for no result.
func (r *run) profile() (found, error) {
	before, err := r.folder.open()
	if err != nil {
		return found{}, fmt.Errorf("folder of the run: %w", err)
	}
	group, err := r.group()
	if errors.Is(err, errOver) || errors.Is(err, errLeft) {
		return found{}, err
	}
	if err != nil {
		return r.gather(true, err)
	}
	if r.now().Ended && !group.populated() {
		if before {
			return r.gather(true, errKilled)
		}
		return r.gather(true, errNobody)
	}
	err = r.place()
	if errors.Is(err, errOver) || errors.Is(err, errLeft) {
		return found{}, err
	}
	if err != nil {
		r.note(err.Error())
		return r.gather(true, err)
	}
	if err := group.prepare(); err != nil {
		return r.gather(true, err)
	}
	for {
		session, reason, err := r.begin(group)
		if err != nil {
			return r.gather(true, err)
		}
		err = r.follow(session, group, reason)
		unused := errors.Is(err, errUnused)
		switch {
		case errors.Is(err, errNobody):
			return r.gather(false, err)
		case err != nil && !unused:
			return found{}, err
		}
		last := errNobody // the next result replaces that of an unused session
		if !unused {
			last = r.ended(session)
			if err := r.endStep(); err != nil {
				return r.gather(true, err)
			}
		}
		if more, err := r.again(&group); err != nil {
			return found{}, err
		} else if !more {
			return r.gather(false, last)
		}
	}
}

// endStep keeps the result of a step with those of the steps before, or beside them if there is no space to merge them.
func (r *run) endStep() error {
	if err := r.folder.mergeSteps(r.k.o.Node, r.k.o.MaxBytes); err != nil {
		r.log.Warn("results of the job's steps not merged yet", "error", err)
	}
	return r.folder.keepEarlier()
}

// gather returns what is in the folder, with the latest result or without it.
func (r *run) gather(latest bool, why error) (found, error) {
	return r.folder.gather(r.k.o.Node, r.k.o.MaxBytes, latest, why, r.notes)
}

// note something that is not whole, once.
func (r *run) note(why string) {
	if !slices.Contains(r.notes, why) {
		r.log.Warn("profiling run is not whole", "why", why)
		r.notes = append(r.notes, why)
	}
}

// stepLimit is how long a job without processes on the node may take to end in slurmctld.
const stepLimit = 3 * time.Second

// again reports whether the job continues without a process on this node: between two steps, without a batch script or
// PrologFlags=Contain.
func (r *run) again(group *group) (bool, error) {
	r.enter(kb.RunNodeReady, "the job's processes have left this node")
	for limit := time.Now().Add(stepLimit); ; {
		if r.now().Ended {
			return false, nil
		}
		if group.populated() || time.Now().After(limit) {
			return true, group.prepare()
		}
		select {
		case <-r.ctx.Done():
			return false, context.Cause(r.ctx)
		case <-r.news:
			r.report()
		case <-time.After(checkEvery):
		}
	}
}

// group waits for the directory of job cgroups: after a boot slurmd, which creates it, may start late.
func (r *run) group() (group, error) {
	limit := time.Now().Add(r.k.o.SlurmLimit)
	for {
		desired := r.now()
		g, err := findGroup(r.k.o.Cgroups, desired)
		if err == nil || desired.Ended || time.Now().After(limit) {
			return g, err
		}
		select {
		case <-r.ctx.Done():
			return group{}, context.Cause(r.ctx)
		case <-time.After(checkEvery):
		}
	}
}

// begin attaches the collectors; reason names those that cannot work here.
func (r *run) begin(group group) (session Session, reason string, err error) {
	desired := r.now()
	if refusals := r.k.o.Collectors.Check(desired.Collectors); len(refusals) > 0 {
		reason = oneLine(errors.Join(refusals...))
	}
	socket := ""
	if r.k.o.Sockets != "" {
		socket = filepath.Join(r.k.o.Sockets, strconv.FormatUint(uint64(desired.Job.Job), 10)+".sock")
	}
	session, err = r.k.o.Collectors.Begin(Request{Job: desired.Job, UID: desired.UID, Collectors: desired.Collectors,
		Cgroup: group.path, Folder: string(r.folder), Socket: socket})
	if err != nil {
		return nil, reason, err
	}
	// Checked after the last one is attached: activity in between is missing too.
	if group.populated() {
		r.note(whyLate)
	}
	r.enter(kb.RunNodeReady, reason)
	return session, reason, nil
}

// follow waits for the job and for its end.
func (r *run) follow(session Session, group group, reason string) error {
	figures := &figures{r: r, session: session}
	defer figures.stop()
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var late <-chan time.Time
	seen := false
	for {
		select {
		case <-r.ctx.Done():
			err, why := context.Cause(r.ctx), ""
			if errors.Is(err, errLeft) {
				why = whyAgent
			}
			session.Stop(why)
			<-session.Ended()
			if !seen && errors.Is(err, errOver) {
				r.discard(group)
			}
			return err
		case <-session.Ended():
			if !seen && idle(r.k.ctx, session) {
				return errUnused
			}
			return nil
		case <-late:
			late = nil
			if group.populated() {
				session.Stop(whyStays)
			}
		case <-r.news:
			r.report()
		case <-check.C:
			if !seen && group.populated() {
				seen = true
				check.Reset(time.Second)
				r.enter(kb.RunNodeLooking, reason)
			}
		}
		desired := r.now()
		figures.set(desired.Watched && seen)
		if desired.Ended && late == nil {
			late = time.After(leaveLimit)
		}
		if !desired.Ended || group.populated() {
			continue
		}
		session.Stop("")
		if !seen {
			<-session.Ended()
			r.discard(group)
			return errNobody
		}
	}
}

// idle reports whether the session saw no process of the job. One that came and left between two polls used CPU time.
func idle(ctx context.Context, session Session) bool {
	result, err := session.Result(ctx)
	return err == nil && !slices.ContainsFunc(result.Nodes, func(n profiling.Node) bool { return n.JobNS > 0 })
}

// discard removes a cgroup created for a job that never started. A used one belongs to Slurm, which may be creating a
// step in it.
func (r *run) discard(group group) {
	if group.made && r.k.alone(r) {
		// In use or gone: both are fine.
		_ = os.Remove(group.path)
	}
}

// ended waits for the session's result and returns an error if that fails; existing data is still uploaded.
func (r *run) ended(session Session) error {
	r.mu.Lock()
	r.sending = true
	r.mu.Unlock()
	if _, err := session.Result(r.k.ctx); err != nil {
		r.log.Warn("result not whole", "error", err)
		return err
	}
	return errors.New("no result was written")
}

// How often a delivery is tried again.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 30 * time.Second
)

// deliver uploads until the broker has it, no longer wants the run, or refuses it.
func (r *run) deliver(f found) {
	r.mu.Lock()
	r.sending = true
	r.mu.Unlock()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		err := r.k.o.Broker.DeliverRun(r.k.ctx, r.k.o.Node, r.id, f.files, f.partial)
		if err == nil {
			r.log.Info("profiling result delivered", "files", len(f.files), "partial", f.partial)
			r.mu.Lock()
			r.sending, r.state = false, "" // the broker is aware of it
			r.mu.Unlock()
			return
		}
		if !errors.Is(err, kb.ErrUnavailable) {
			r.log.Error("profiling result refused", "error", err)
			r.fail(err)
			return
		}
		r.log.Warn("profiling result not delivered, trying again", "error", err)
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func oneLine(err error) string {
	return kb.OneLine(strings.ReplaceAll(err.Error(), "\n", "; "))
}
