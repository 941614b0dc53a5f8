// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// RunLimits bound profiling runs.
type RunLimits struct {
	// Standby is how long a job without a profile may wait for its nodes.
	Standby time.Duration `yaml:"standby"`
	// MaxBytes of what one node delivers.
	MaxBytes uint64 `yaml:"max_bytes"`
	// Keep is how many runs that are over are remembered.
	Keep int `yaml:"keep"`
}

// DefaultRunLimits are those of a broker that was told nothing.
func DefaultRunLimits() RunLimits {
	return RunLimits{Standby: 5 * time.Second, MaxBytes: 256 << 20, Keep: 1000}
}

// RunRequest asks for a run of the next job of an application or a profile.
type RunRequest struct {
	RequestID            string
	Application, Profile string
	Collectors           []string
	By                   string
}

// maxApplication bounds an application's name.
const maxApplication = 100

// RequestRun records a request, once.
func (c *Controller) RequestRun(ctx context.Context, q RunRequest) (*kb.Run, error) {
	collectors, err := c.requested(ctx, q)
	if err != nil {
		return nil, err
	}
	var before *kb.Run
	err = runKind.Each(ctx, c.o.Store, func(r *kb.Run, _ store.Record) {
		if q.RequestID != "" && r.RequestID == q.RequestID {
			before = r
		}
	})
	if err != nil || before != nil {
		return before, err
	}
	now := c.clock.Now()
	return c.recordRun(ctx, &kb.Run{State: kb.RunRequested, Since: now, Collectors: collectors, RequestID: q.RequestID,
		RequestedBy: q.By, Requested: now, Application: q.Application, Profile: q.Profile})
}

func (c *Controller) requested(ctx context.Context, q RunRequest) ([]string, error) {
	if (q.Application == "") == (q.Profile == "") {
		return nil, fmt.Errorf("a run is for an application or for a profile, and this is for application %q and profile %q: %w",
			q.Application, q.Profile, kb.ErrInvalid)
	}
	if q.Application != kb.OneLine(q.Application) || len(q.Application) > maxApplication {
		return nil, fmt.Errorf("application %q is not one short line: %w", q.Application, kb.ErrInvalid)
	}
	if q.Profile != "" {
		if _, err := c.o.Catalog.Get(ctx, q.Profile); err != nil {
			return nil, err
		}
	}
	collectors, err := collectorsOf(q.Collectors)
	if err != nil {
		return nil, err
	}
	if slices.Contains(collectors, string(profiling.CollectPGO)) {
		return nil, fmt.Errorf("pgo needs the job to boot another kernel, which its user has to ask for: "+
			"sbatch --kernel-profiling=pgo: %w", kb.ErrFailedPrecondition)
	}
	return collectors, nil
}

// collectorsOf checks names and puts them in order; none are the default set.
func collectorsOf(names []string) ([]string, error) {
	list := ""
	for i, name := range names {
		if list += name; i < len(names)-1 {
			list += ","
		}
	}
	parsed, err := profiling.ParseCollectors(list)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kb.ErrInvalid, err)
	}
	out := make([]string, len(parsed))
	for i, collector := range parsed {
		out[i] = string(collector)
	}
	return out, nil
}

// collectorsFor is what a job asked for at submit. A list that is none is
// logged, and the job runs without: profiling harms no job.
func (c *Controller) collectorsFor(job kb.SlurmJob) []string {
	list, asked := job.Profiling()
	if !asked {
		return nil
	}
	collectors, err := collectorsOf([]string{list})
	if err != nil {
		c.log.Warn("job is not profiled", "job", job.Reference, "user", job.User, "error", err)
		return nil
	}
	return collectors
}

// BeginRun records the run of a job without a profile, if it asked for one, and
// waits until its nodes stand by or time is up.
func (c *Controller) BeginRun(ctx context.Context, id kb.JobID) (*kb.Run, error) {
	job, _, err := c.job(ctx, id)
	if err != nil {
		return nil, err
	}
	if job.AdminComment, err = c.o.Slurm.AdminComment(ctx, job.ID); err != nil {
		return nil, err
	}
	collectors := c.collectorsFor(job)
	if len(collectors) == 0 {
		return nil, nil
	}
	cgroup, err := c.o.Slurm.Cgroup(ctx, job.ID)
	if err != nil {
		return nil, err
	}
	r, err := c.beginRun(ctx, id, job, cgroup, collectors)
	if err != nil {
		return nil, err
	}
	return c.standBy(ctx, r)
}

func (c *Controller) beginRun(ctx context.Context, id kb.JobID, job kb.SlurmJob, cgroup string, collectors []string) (*kb.Run, error) {
	r := c.runOf(id, job, cgroup, kb.Ref{Profile: kb.StockProfile}, collectors)
	r.Claim(r.Since, job.Nodes)
	if have, err := c.runOfJob(ctx, id, job.UID); err != nil || have != nil {
		return have, err
	}
	if err := c.mayProfile(ctx, job, r.Kernel); err != nil {
		refuseRun(r, "not profiled: "+err.Error())
	}
	return c.recordRun(ctx, r)
}

// recordRun commits a new run under the next number.
func (c *Controller) recordRun(ctx context.Context, r *kb.Run) (*kb.Run, error) {
	defer c.toWrite()()
	if c.stale {
		if err := c.loadLocked(ctx); err != nil {
			return nil, fmt.Errorf("run: %w: %w", kb.ErrUnavailable, err)
		}
		c.stale = false
	}
	for _, have := range c.records.runs.open {
		// The hook, or who requests a run, asked twice at once.
		if !r.Job.IsZero() && have.Job == r.Job || r.RequestID != "" && have.RequestID == r.RequestID {
			return have.Clone(), nil
		}
	}
	if reason := plan.TooManyRuns(c.records.runs.open, r.User, r.UID, c.o.Plan.RunsOfUser); reason != "" && !r.Job.IsZero() && !r.Over() {
		refuseRun(r, reason)
	}
	r.ID = c.records.runs.next
	if err := c.commitRunLocked(ctx, r); err != nil {
		return nil, err
	}
	c.log.Info("profiling run recorded", "run", r.ID, "job", r.Job.String(), "by", r.RequestedBy, "collectors", r.Collectors,
		"application", r.Application, "profile", r.Profile, "state", string(r.State), "reason", r.Reason)
	return r.Clone(), nil
}

// commitRunLocked writes one run and wakes the passes. Somebody who was faster
// has to be read first, and the call be made again.
func (c *Controller) commitRunLocked(ctx context.Context, r *kb.Run) error {
	if err := c.records.commit(ctx, nil, nil, r); err != nil {
		c.stale = true
		if errors.Is(err, store.ErrFull) {
			return fmt.Errorf("run %d: %w: %w", r.ID, kb.ErrExhausted, err)
		}
		return fmt.Errorf("run %d: %w: %w", r.ID, kb.ErrUnavailable, err)
	}
	if r.Job.IsZero() { // the next job that fits has it, or one that runs
		c.markAllLocked()
		return nil
	}
	c.marks.job(r.Job)
	for _, n := range r.Nodes {
		c.marks.node(n.Name)
	}
	c.kickLocked()
	return nil
}

// standBy waits until every node of the run has said something.
func (c *Controller) standBy(ctx context.Context, r *kb.Run) (*kb.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Runs.Standby)
	defer cancel()
	wake := make(chan struct{}, 1)
	c.mu.Lock()
	c.watchers[r.Job] = append(c.watchers[r.Job], wake)
	c.mu.Unlock()
	defer c.unwatch(r.Job, wake)
	for {
		c.mu.Lock()
		now := c.records.runs.open[r.ID]
		c.mu.Unlock()
		if now == nil {
			return r, nil // it is over already
		}
		r = now.Clone()
		if !r.Awaits() {
			return r, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return r, nil
		}
	}
}

// standsByLocked reports whether a job whose nodes run its kernel is to wait for the
// collectors on them. They begin when slurmd does, and so would the job: what
// it did before them would be missing.
func (c *Controller) standsByLocked(a *kb.Allocation) bool {
	r := c.records.runs.open[a.Run]
	return a.Run != 0 && r != nil && r.Awaits() && c.clock.Now().Sub(a.Since) < c.o.Runs.Standby
}

// CancelRun takes a request back that has no job.
func (c *Controller) CancelRun(ctx context.Context, id uint64, by string) (*kb.Run, error) {
	if _, err := c.records.profilingRun(ctx, id); err != nil {
		return nil, err
	}
	defer c.toWrite()()
	r := c.records.runs.open[id]
	if r == nil || !r.Job.IsZero() {
		return nil, fmt.Errorf("run %d has a job or is over, and cannot be taken back: %w", id, kb.ErrFailedPrecondition)
	}
	r = r.Clone()
	r.Enter(kb.RunFailed, c.clock.Now(), "taken back by "+by)
	return r, c.commitRunLocked(ctx, r)
}

// ProfilingRun returns one run.
func (c *Controller) ProfilingRun(ctx context.Context, id uint64) (*kb.Run, error) {
	return c.records.profilingRun(ctx, id)
}

// ProfilingRuns returns the newest runs: of one job if it is not 0, and of one
// user's jobs if of is not nil.
func (c *Controller) ProfilingRuns(ctx context.Context, limit int, job uint32, of *uint32) ([]*kb.Run, error) {
	return c.records.profilingRuns(ctx, limit, job, of)
}

// AwaitsRun returns nil while a run still awaits what a node delivers.
func (c *Controller) AwaitsRun(node string, id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records.runs.open[id]
	if r == nil {
		return fmt.Errorf("run %d is over: %w", id, kb.ErrFailedPrecondition)
	}
	return awaits(r, node)
}

func awaits(r *kb.Run, node string) error {
	n := r.Node(node)
	if n == nil {
		return fmt.Errorf("run %d is not on node %q: %w", r.ID, node, kb.ErrNotFound)
	}
	if n.Settled() {
		return fmt.Errorf("run %d: node %q is %s: %w", r.ID, node, n.State, kb.ErrFailedPrecondition)
	}
	return nil
}

// Delivery is all that a node found.
type Delivery struct {
	Run     uint64
	Node    string
	Files   []kb.Document
	Partial string
}

// Deliver records a node's files, which must be stored. The same delivery once
// more is none.
func (c *Controller) Deliver(ctx context.Context, d Delivery) error {
	if err := kb.ValidateRunFiles(d.Files, c.o.Runs.MaxBytes); err != nil {
		return err
	}
	for _, f := range d.Files {
		if has, err := c.o.HasArtifact(f.Digest, f.Size); err != nil {
			return fmt.Errorf("run %d: file %q: %w: %w", d.Run, f.Name, kb.ErrUnavailable, err)
		} else if !has {
			return fmt.Errorf("run %d: file %q is not stored: %w", d.Run, f.Name, kb.ErrNotFound)
		}
	}
	before, err := c.records.profilingRun(ctx, d.Run)
	if err != nil {
		return err
	}
	if n := before.Node(d.Node); n != nil && n.State == kb.RunNodeDelivered && slices.Equal(n.Files, d.Files) {
		return nil
	}
	defer c.toWrite()()
	r := c.records.runs.open[d.Run]
	if r == nil {
		return fmt.Errorf("run %d is over: %w", d.Run, kb.ErrFailedPrecondition)
	}
	if err := awaits(r, d.Node); err != nil {
		return err
	}
	r = r.Clone()
	n := r.Node(d.Node)
	n.State, n.Reason, n.Partial, n.Files, n.Since = kb.RunNodeDelivered, "", kb.OneLine(d.Partial), slices.Clone(d.Files), c.clock.Now()
	if err := c.commitRunLocked(ctx, r); err != nil {
		return err
	}
	c.log.Info("profiling result stored", "run", r.ID, "node", d.Node, "files", len(d.Files), "partial", n.Partial)
	return nil
}
