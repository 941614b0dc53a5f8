// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// Intervals between maintenance of the collectors, checks for the job's end, and checkpoints in case the agent dies.
const (
	tendEvery  = time.Second
	pollEvery  = 200 * time.Millisecond
	writeEvery = 30 * time.Second
)

// Why a result is partial.
const (
	WhyDied  = "the agent ended, or the node booted, before the result was whole"
	WhySpace = "no space for the whole result: lists were left out"
	WhyBound = "the result exceeded its size limit: lists were left out"
)

// Request describes a run.
type Request struct {
	Job     uint32
	Restart uint32
	Node    string
	Kernel  profiling.Kernel
	// Cgroup is the job's folder in the unified hierarchy.
	Cgroup string
	// Folder of the run, for the result and the archives; it is made.
	Folder string
	// Overhead is the limit of the job's CPU time that the collectors may use. Above it they pause, and the result
	// contains estimates. 0 means no limit: everything is counted.
	Overhead float64
	// MostBytes of the result, 0 for DefaultBytes.
	MostBytes int
	// Socket for live figures; empty for none. Owner may connect, besides root.
	Socket string
	Owner  int
}

// Run is a set of collectors at work on one job.
type Run struct {
	request  Request
	log      *slog.Logger
	target   Target
	sessions []working
	meter    *meter
	pace     *pace
	server   *liveServer
	stop     chan string
	ended    chan struct{}
	once     sync.Once

	// Only the run's own goroutine touches these until ended is closed.
	result profiling.Result
	began  cgroup.CPUTime
	latest cgroup.CPUTime
	err    error
}

type working struct {
	name    profiling.Collector
	session Session
}

// tender is a Session that has something to do now and then.
type tender interface{ Tend() error }

// Start checks and starts the collectors. The result lists those that cannot work as refused; a run without any still
// takes place, so that the user gets the reason. The only error is a missing folder for results.
func Start(request Request, collectors []Collector, log *slog.Logger) (*Run, error) {
	r, err := prepare(request, log)
	if err != nil {
		return nil, err
	}
	r.startAll(collectors)
	go r.work()
	return r, nil
}

// prepare returns a run without collectors that is not started.
func prepare(request Request, log *slog.Logger) (*Run, error) {
	if err := os.MkdirAll(request.Folder, 0o755); err != nil {
		return nil, fmt.Errorf("profiling run of job %d: %w", request.Job, err)
	}
	r := &Run{
		request: request, log: log.With("job", request.Job), server: newLiveServer(), stop: make(chan string, 1), ended: make(chan struct{}),
		result: profiling.Result{
			Format: profiling.Format, Job: request.Job, Restart: request.Restart,
			Nodes: []profiling.Node{{
				Name: request.Node, Kernel: request.Kernel, CPUs: nodeCPUs(), Begin: time.Now().UTC(),
			}},
		},
	}
	r.meter = newMeter(func() uint64 {
		r.poll()
		return r.latest.AllNS
	})
	r.pace = newPace(request.Overhead, r.meter, r.meter.jobNS)
	if request.Socket == "" {
		return r, nil
	}
	if err := r.server.listen(request.Socket, request.Owner, r.log); err != nil {
		// Figures meanwhile are a comfort; the run is worth having without.
		r.log.Error("no live figures", "error", err)
		r.partial("", "no live figures: "+err.Error())
	}
	return r, nil
}

// Watch hands over each line of live figures until the context or the run ends.
func (r *Run) Watch(ctx context.Context, hand func(line []byte)) { r.server.watch(ctx, hand) }

func (r *Run) startAll(collectors []Collector) {
	group, err := cgroup.Open(r.request.Cgroup)
	if err == nil {
		r.target = Target{Node: r.request.Node, Cgroup: group, Began: r.result.Nodes[0].Begin, Folder: r.request.Folder}
		r.poll()
		r.began = r.latest
	}
	for _, c := range collectors {
		r.result.Collectors = append(r.result.Collectors, c.Name())
		if err != nil {
			r.refused(c.Name(), "", &profiling.Unsupported{
				Collector: c.Name(), Reason: profiling.NoCgroup2, Detail: err.Error(),
				Remedy: "mount cgroup2 and let Slurm track jobs with it (CgroupPlugin=cgroup/v2)",
			})
		} else if err := r.startOne(c); err != nil {
			r.refused(c.Name(), "", err)
		}
	}
}

func (r *Run) startOne(c Collector) error {
	if err := c.Check(); err != nil {
		return err
	}
	session, err := c.Start(r.target)
	if err != nil {
		return err
	}
	r.sessions = append(r.sessions, working{c.Name(), session})
	for _, missing := range session.Missing() {
		r.refused(c.Name(), missing.Part, missing.Why)
	}
	r.log.Info("collector started", "collector", c.Name())
	return nil
}

func (r *Run) refused(name profiling.Collector, part string, err error) {
	var why *profiling.Unsupported
	if !errors.As(err, &why) {
		why = &profiling.Unsupported{Collector: name, Reason: profiling.BrokenStart, Detail: err.Error()}
	}
	r.log.Warn("collector cannot work here", "collector", name, "part", part, "reason", why.Reason, "error", why.Detail, "remedy", why.Remedy)
	r.result.Refused = append(r.result.Refused, profiling.Refusal{Node: r.request.Node, Unsupported: *why, Part: part})
}

func (r *Run) partial(name profiling.Collector, why string) {
	r.result.Partial = append(r.result.Partial, profiling.Partial{Node: r.request.Node, Collector: name, Why: why})
}

// Ended is closed when everything is detached and the result is written.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// Stop ends the run. An empty why is the job's proper end; any other marks the
// result partial. It does not wait; see Ended.
func (r *Run) Stop(why string) {
	r.once.Do(func() { r.stop <- why })
}

// Result waits for the end. An error means that the result is missing or incomplete in the folder; the returned one is
// as complete as possible.
func (r *Run) Result(ctx context.Context) (profiling.Result, error) {
	select {
	case <-r.ended:
		return r.result, r.err
	case <-ctx.Done():
		return profiling.Result{}, fmt.Errorf("profiling run of job %d: %w", r.request.Job, ctx.Err())
	}
}

// work is the run's main loop until it is stopped, the job's last process has ended, or its cgroup was removed.
func (r *Run) work() {
	defer close(r.ended)
	poll, tend, write := time.NewTicker(pollEvery), time.NewTicker(tendEvery), time.NewTicker(writeEvery)
	defer poll.Stop()
	defer tend.Stop()
	defer write.Stop()
	lived := false
	r.meter.turn(r.sessions)
	if err := r.pace.start(r.sessions); err != nil {
		r.log.Error("events of collectors not counted", "error", err)
	}
	for {
		select {
		case why := <-r.stop:
			r.finish(why)
			return
		case <-r.meter.due():
			// Events cost more in a window than outside of it.
			r.wrong(r.pace.account())
			r.meter.turn(r.sessions)
		case <-r.pace.due():
			r.wrong(r.pace.ask())
		case <-poll.C:
			alive := r.poll()
			// A job shorter than the interval between two checks still has its CPU time.
			lived = lived || alive || r.latest.AllNS > r.began.AllNS
			// In another cgroup of that name the collectors see nothing.
			if !alive && (lived || r.target.Cgroup.Gone()) {
				r.finish("")
				return
			}
		case <-tend.C:
			r.tend()
			r.publish(false)
		case <-write.C:
			r.checkpoint()
		}
	}
}

// poll reads the job's CPU time and reports whether processes are left.
func (r *Run) poll() (alive bool) {
	if r.target.Cgroup == nil {
		return true
	}
	used, err := r.target.Cgroup.CPUTime()
	if err == nil {
		r.latest = used
	} else if !errors.Is(err, os.ErrNotExist) {
		r.log.Debug("CPU time of the job not readable", "error", err)
	}
	alive, err = r.target.Cgroup.Populated()
	if err != nil {
		r.log.Warn("cannot see whether the job lives", "error", err)
		return true
	}
	return alive
}

// wrong records failures of collectors, each once.
func (r *Run) wrong(all []profiling.Partial) {
	for _, p := range all {
		p.Node = r.request.Node
		if slices.Contains(r.result.Partial, p) {
			continue
		}
		r.log.Error("collector", "collector", p.Collector, "error", p.Why)
		r.result.Partial = append(r.result.Partial, p)
	}
}

func (r *Run) tend() {
	for _, w := range r.sessions {
		t, ok := w.session.(tender)
		if !ok {
			continue
		}
		if err := t.Tend(); err != nil {
			r.log.Warn("collector not tended", "collector", w.name, "error", err)
		}
	}
}

// snapshot is the result as of now.
func (r *Run) snapshot() (profiling.Result, error) {
	r.wrong(r.pace.account())
	now := r.result
	node := r.result.Nodes[0]
	used := r.latest.Less(r.began)
	node.End, node.JobNS, node.UserNS, node.SystemNS = time.Now().UTC(), used.AllNS, used.UserNS, used.SystemNS
	now.Nodes = []profiling.Node{node}
	now.Overhead = r.meter.overhead(r.request.Node)
	now.Coverage = nil
	var all []error
	if r.meter.failed != nil {
		all = append(all, fmt.Errorf("overhead: %w", r.meter.failed))
	}
	for _, w := range r.sessions {
		if err := w.session.Read(&now); err != nil {
			all = append(all, fmt.Errorf("collector %q: %w", w.name, err))
		}
		if why := missed(w.session); why != "" {
			now.Partial = append(slices.Clone(now.Partial), profiling.Partial{Node: r.request.Node, Collector: w.name, Why: why})
		}
	}
	now.NameSlowCalls()
	for _, c := range r.pace.coverage(r.request.Node) {
		now.Cover(c)
	}
	if now.IO != nil {
		now.IO.Patterns = patterns.Advise(now.IO.Patterns)
	}
	return now, errors.Join(all...)
}

// missed says that the kernel skipped runs of a collector's programs, so that its counts are lower bounds; empty if it did not.
// A failure to ask is the meter's to report.
func missed(s Session) string {
	cost, err := s.Spent()
	if err != nil || cost.Missed == 0 {
		return ""
	}
	return fmt.Sprintf("the kernel skipped %d runs of the collector's programs: read each count as \"at least\"", cost.Missed)
}

// DefaultBytes limits the size of a result.
const DefaultBytes = 32 << 20

// finish detaches everything, then reads, writes and releases. An error in one step does not skip the next ones.
func (r *Run) finish(why string) {
	r.wrong(r.pace.account())
	r.meter.close(r.sessions)
	end := r.pace.moment()
	for _, w := range r.sessions {
		if err := w.session.Stop(); err != nil {
			r.log.Error("collector not stopped cleanly", "collector", w.name, "error", err)
			r.partial(w.name, err.Error())
		}
	}
	r.wrong(r.pace.end(end))
	if why != "" {
		r.partial("", why)
	}
	now, err := r.snapshot()
	if err != nil {
		r.log.Error("result not whole", "error", err)
		now.Partial = append(now.Partial, profiling.Partial{Node: r.request.Node, Why: err.Error()})
	}
	r.result, r.err = r.write(now)
	r.publish(true)
	for _, w := range r.sessions {
		if err := w.session.Close(); err != nil {
			r.log.Error("collector not closed", "collector", w.name, "error", err)
		}
	}
	if err := r.server.Close(); err != nil {
		r.log.Error("live figures not closed", "error", err)
	}
	r.log.Info("profiling ended", "partial", len(r.result.Partial) > 0, "error", r.err)
}

// checkpoint writes a result in case the agent is killed.
func (r *Run) checkpoint() {
	now, err := r.snapshot()
	if err == nil {
		now.Partial = append(slices.Clone(now.Partial), profiling.Partial{Node: r.request.Node, Why: WhyDied})
		_, err = r.write(now)
	}
	if err != nil {
		r.log.Warn("result so far not written", "error", err)
	}
}

// write stores the result in the folder. If it is too large or the disk is full, it drops the lists and notes that; the
// small sums stay.
func (r *Run) write(result profiling.Result) (profiling.Result, error) {
	most := r.request.MostBytes
	if most == 0 {
		most = DefaultBytes
	}
	path := filepath.Join(r.request.Folder, kb.ResultFile)
	content, err := result.JSON()
	if err == nil && len(content) <= most {
		if err = atomicfile.Write(path, content, 0o644); err == nil {
			return result, nil
		}
	}
	why := WhyBound
	if err != nil {
		why = WhySpace
		r.log.Warn("result not written whole", "error", err)
	}
	short := Short(result, 0)
	short.Partial = append(slices.Clone(result.Partial), profiling.Partial{Node: r.request.Node, Why: why})
	content, shortErr := short.JSON()
	if shortErr == nil {
		shortErr = atomicfile.Write(path, content, 0o644)
	}
	if shortErr != nil {
		return result, fmt.Errorf("result of job %d: %w", r.request.Job, errors.Join(err, shortErr))
	}
	return short, nil
}

// Short keeps only the most important entries of a result's long lists and counts the omitted ones where possible.
func Short(result profiling.Result, most int) profiling.Result {
	result.IO = bounded(result.IO, (*profiling.IO).Bound, most)
	result.Syscalls = bounded(result.Syscalls, (*profiling.Syscalls).Bound, most)
	result.CallGraph = bounded(result.CallGraph, (*profiling.CallGraph).Bound, most)
	result.CallCounts = bounded(result.CallCounts, (*profiling.CallCounts).Bound, most)
	return result
}

func bounded[T any](found *T, bound func(*T, int), most int) *T {
	if found == nil {
		return nil
	}
	short := *found
	bound(&short, most)
	return &short
}
