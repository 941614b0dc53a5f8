// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Session is the profiling of one job; *collect.Run is one.
type Session interface {
	// Ended is closed when everything is detached and the result is written.
	Ended() <-chan struct{}
	// Stop ends it; an empty why is the job's proper end.
	Stop(why string)
	Result(ctx context.Context) (profiling.Result, error)
	// Watch hands over each line of live figures until the context or the session ends. Without watchers the collectors
	// produce none.
	Watch(ctx context.Context, hand func(line []byte))
}

// Request says what to collect and where to store the result.
type Request struct {
	Job        kb.JobID
	UID        uint32
	Collectors []string
	Cgroup     string
	Folder     string
	// Socket for live figures.
	Socket string
}

// Collectors of this node; package cmd puts them behind it.
type Collectors interface {
	// Check returns the reasons of collectors that cannot work on this kernel; it attaches nothing.
	Check(collectors []string) []error
	// Begin attaches them to the job's existing cgroup.
	Begin(r Request) (Session, error)
}

// Broker is where runs are reported and delivered; *link.Link is one.
type Broker interface {
	ReportRun(ctx context.Context, run uint64, state kb.RunNodeState, reason string, figures []byte) error
	DeliverRun(ctx context.Context, node string, run uint64, files []link.RunFile, partial string) error
}

// Options of a keeper.
type Options struct {
	Node       string
	Collectors Collectors
	Broker     Broker
	// Dir has a folder for each run, Sockets one for each job's figures.
	Dir, Sockets string
	// Cgroups are patterns of the directories that hold job cgroups; the first existing one counts.
	Cgroups []string
	// SlurmLimit is how long to wait for one of them.
	SlurmLimit time.Duration
	// MaxBytes of a run's result; 0: any number.
	MaxBytes int
	// MaxRuns at a time; 0: any number.
	MaxRuns int
	Log     *slog.Logger
}

// Keeper has the runs of this node.
type Keeper struct {
	o Options

	mu sync.Mutex
	// desired is the broker's last list.
	desired []kb.DesiredRun
	runs    map[uint64]*run
	// placed are the runs that profile a job.
	placed map[*run]bool
	closed bool
	all    sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// New returns a keeper without runs.
func New(o Options) *Keeper {
	k := &Keeper{o: o, runs: map[uint64]*run{}, placed: map[*run]bool{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Desire replaces the desired runs. It returns at once.
func (k *Keeper) Desire(desired []kb.DesiredRun) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.desired = desired
	named := map[uint64]bool{}
	for _, one := range desired {
		// A request whose job left before it began comes again with the next job.
		if r := k.runs[one.Run]; r != nil && r.ctx.Err() == nil && r.now().Job == one.Job {
			named[one.Run] = true
			r.wanted(one)
		}
	}
	for id, r := range k.runs {
		if !named[id] {
			r.end(errOver)
		}
	}
	k.start()
	k.sweep()
}

// start begins the desired runs. One whose number another run still has waits until that is forgotten.
func (k *Keeper) start() {
	for _, one := range k.desired {
		if k.runs[one.Run] == nil {
			r := newRun(k, one)
			k.runs[one.Run] = r
			k.all.Go(r.live)
		}
	}
}

// forget is the end of a run that the broker names no more.
func (k *Keeper) forget(r *run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.runs, r.id)
	k.sweep()
	if !k.closed {
		k.start()
	}
}

// alone reports whether no other run profiles the same job: a requeued job has the same cgroup.
func (k *Keeper) alone(r *run) bool {
	job := r.now().Job.Job
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, other := range k.runs {
		if other != r && other.now().Job.Job == job {
			return false
		}
	}
	return true
}

// sweep removes the directories of finished runs: the broker has their results or no longer wants them.
func (k *Keeper) sweep() {
	entries, err := os.ReadDir(k.o.Dir)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			k.o.Log.Warn("folders of profiling runs not listed", "error", err)
		}
		return
	}
	for _, entry := range entries {
		id, err := strconv.ParseUint(entry.Name(), 10, 64)
		if err != nil || k.runs[id] != nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(k.o.Dir, entry.Name())); err != nil {
			k.o.Log.Warn("folder of a profiling run not removed", "run", id, "error", err)
		}
	}
}

// Settle waits, at most for the limit, until the results of ended jobs are uploaded: a boot may clear their disk.
func (k *Keeper) Settle(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for begun := time.Now(); ; {
		left := k.busy()
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			k.o.Log.Warn("boot with profiling results not delivered", "runs", left, "waited", time.Since(begun).Round(time.Millisecond))
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (k *Keeper) busy() (runs []uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, r := range k.runs {
		if r.busy() {
			runs = append(runs, id)
		}
	}
	return runs
}

// Close detaches all collectors; results stay in the directories.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	for _, r := range k.runs {
		r.end(errLeft)
	}
	k.mu.Unlock()
	k.cancel()
	k.all.Wait()
}
