// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Runs is what RunService serves.
type Runs interface {
	RequestRun(ctx context.Context, q controller.RunRequest) (*kb.Run, error)
	CancelRun(ctx context.Context, id uint64, by string) (*kb.Run, error)
	BeginRun(ctx context.Context, id kb.JobID) (*kb.Run, error)
	ProfilingRun(ctx context.Context, id uint64) (*kb.Run, error)
	ProfilingRuns(ctx context.Context, limit int, job uint32, of *uint32) ([]*kb.Run, error)
	WatchRun(ctx context.Context, id uint64) (<-chan controller.Figures, error)
	AwaitsRun(node string, id uint64) error
	// MakeRoom is called before a file is stored, with the bytes of all that are not delivered.
	MakeRoom(ctx context.Context, bytes uint64) error
	Deliver(ctx context.Context, d controller.Delivery) error
}

// RunOptions of the service.
type RunOptions struct {
	Runs      Runs
	Artifacts Artifacts
	// MaxBytes of one file that a node delivers.
	MaxBytes uint64
	// Uploads of all nodes at a time; 0: as many as there are nodes.
	Uploads int
	// Administrator tells who sees what belongs to others, besides administrators
	// by the policy; nil: root and the broker's own user, on its host.
	Administrator func(Caller) bool
}

// NewRunService serves profiling runs.
func NewRunService(o RunOptions) api.RunServiceServer {
	if o.Administrator == nil {
		o.Administrator = func(c Caller) bool { return c.Local && (c.UID == 0 || c.UID == uint32(os.Geteuid())) }
	}
	return &runService{o: o, files: newRunFiles(o.MaxBytes, o.Uploads, o.Runs.AwaitsRun), watches: limit.NewSemaphore(maxWatches)}
}

type runService struct {
	api.UnimplementedRunServiceServer
	o       RunOptions
	files   *runFiles
	watches *limit.Semaphore
}

// maxWatches of runs at a time, and watchesOf one caller. A watch reads its run once a second, which the store notices at
// some thousands; it shares the nodes' figures with the other watches of its run. So the total leaves a share to 64 users.
const (
	maxWatches = 512
	watchesOf  = 8
	watchWait  = 5 * time.Second
)

// RequestRun implements api.RunServiceServer.
func (s *runService) RequestRun(ctx context.Context, r *api.RequestRunRequest) (*api.RequestRunResponse, error) {
	run, err := s.o.Runs.RequestRun(ctx, controller.RunRequest{RequestID: r.GetRequestId(), Application: r.GetApplication(), Profile: r.GetProfile(),
		Collectors: slices.Clone(r.GetCollectors()), By: CallerOf(ctx).String()})
	if err != nil {
		return nil, err
	}
	return &api.RequestRunResponse{Run: convert.RunToProto(run, true)}, nil
}

// CancelRun implements api.RunServiceServer.
func (s *runService) CancelRun(ctx context.Context, r *api.CancelRunRequest) (*api.CancelRunResponse, error) {
	run, err := s.o.Runs.CancelRun(ctx, r.GetId(), CallerOf(ctx).String())
	if err != nil {
		return nil, err
	}
	return &api.CancelRunResponse{Run: convert.RunToProto(run, true)}, nil
}

// BeginRun implements api.RunServiceServer.
func (s *runService) BeginRun(ctx context.Context, r *api.BeginRunRequest) (*api.BeginRunResponse, error) {
	run, err := s.o.Runs.BeginRun(ctx, kb.JobID{Job: r.GetJobId(), Restart: r.GetRestartCount()})
	if err != nil || run == nil {
		return &api.BeginRunResponse{}, err
	}
	return &api.BeginRunResponse{Run: convert.RunToProto(run, false)}, nil
}

// ListRuns implements api.RunServiceServer.
func (s *runService) ListRuns(ctx context.Context, r *api.ListRunsRequest) (*api.ListRunsResponse, error) {
	runs, err := s.o.Runs.ProfilingRuns(ctx, int(cmp.Or(r.GetLimit(), defaultListed)), r.GetJobId(), visibilityOf(ctx).whose(ctx))
	if err != nil {
		return nil, err
	}
	response := &api.ListRunsResponse{}
	for _, run := range runs {
		response.Runs = append(response.Runs, convert.RunToProto(run, false))
	}
	return response, nil
}

// GetRun implements api.RunServiceServer.
func (s *runService) GetRun(ctx context.Context, r *api.GetRunRequest) (*api.GetRunResponse, error) {
	run, err := s.run(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &api.GetRunResponse{Run: convert.RunToProto(run, s.owns(ctx, run))}, nil
}

// run is a run that the caller may see.
func (s *runService) run(ctx context.Context, id uint64) (*kb.Run, error) {
	run, err := s.o.Runs.ProfilingRun(ctx, id)
	of := visibilityOf(ctx)
	switch {
	case err != nil:
		return nil, of.hidden(ctx, fmt.Sprintf("run %d", id), 0, err)
	case s.owns(ctx, run):
		return run, nil
	case run.Job.IsZero() && of.whose(ctx) != nil: // of nobody yet
		return nil, of.hidden(ctx, fmt.Sprintf("run %d", id), 0, kb.ErrNotFound)
	}
	return run, of.hidden(ctx, fmt.Sprintf("run %d", id), run.UID, nil)
}

// owns reports whether the caller may see what a run found: names of files,
// programs and what they did are the user's own.
func (s *runService) owns(ctx context.Context, run *kb.Run) bool {
	caller := CallerOf(ctx)
	return caller.Known() && !run.Job.IsZero() && caller.UID == run.UID || s.o.Administrator(caller) || visibilityOf(ctx).allowed(ctx, authz.Administer)
}

// WatchRun implements api.RunServiceServer.
func (s *runService) WatchRun(r *api.WatchRunRequest, stream api.RunService_WatchRunServer) error {
	ctx := stream.Context()
	run, err := s.run(ctx, r.GetId())
	if err != nil {
		return err
	}
	if !s.owns(ctx, run) {
		return fmt.Errorf("run %d is of user %s, and you are %s: %w", run.ID, run.User, CallerOf(ctx), kb.ErrDenied)
	}
	free, err := s.watch(CallerOf(ctx))
	if err != nil {
		return err
	}
	defer free()
	figures, err := s.o.Runs.WatchRun(ctx, r.GetId())
	if err != nil {
		return err
	}
	over := false
	for f := range figures {
		over = f.Run.Over()
		if err := stream.Send(&api.WatchRunResponse{Run: convert.RunToProto(f.Run, false), Node: f.Node, Figures: f.JSON}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil || over {
		return err
	}
	return fmt.Errorf("run %d could not be read, and it may not be over; watch it again: %w", run.ID, kb.ErrUnavailable)
}

// watch takes a place for one watch of the caller.
func (s *runService) watch(caller Caller) (free func(), err error) {
	if free = s.watches.TryAcquire(caller.holder(), watchesOf); free == nil {
		own, all := s.watches.Held(caller.holder())
		return nil, retryIn(watchWait, "%s watches %d runs, at most %d; all users watch %d, at most %d", caller, own, watchesOf, all, maxWatches)
	}
	return free, nil
}

// UploadRunFile implements api.RunServiceServer.
func (s *runService) UploadRunFile(stream api.RunService_UploadRunFileServer) error {
	first, err := firstOf(stream.Recv)
	if err != nil {
		return err
	}
	file, run := first.GetFile(), first.GetRunId()
	u := upload{what: fmt.Sprintf("run %d: file %q", run, file.GetName()), digest: file.GetDigest(), size: file.GetSize(), offset: first.GetOffset()}
	if err := s.o.Runs.AwaitsRun(first.GetNode(), run); err != nil {
		return err
	}
	if err := u.check(s.o.MaxBytes); err != nil {
		return err
	}
	free, err := s.files.take(run, first.GetNode(), u.digest, u.size)
	if err != nil {
		return err
	}
	defer free()
	if err := s.o.Runs.MakeRoom(stream.Context(), s.files.pending()); err != nil {
		return fmt.Errorf("%s: %w", u.what, err)
	}
	_, err = s.o.Artifacts.Put(stream.Context(), u.digest, u.size, &chunkReader{rest: first.GetData(), next: func() ([]byte, error) {
		message, err := stream.Recv()
		if err == nil && message.GetFile() != nil {
			err = fmt.Errorf("upload names a file after its first message: %w", kb.ErrInvalid)
		}
		return message.GetData(), err
	}})
	if err != nil {
		return fmt.Errorf("%s: %w", u.what, err)
	}
	return stream.SendAndClose(&api.UploadRunFileResponse{})
}

// GetRunFile implements api.RunServiceServer.
func (s *runService) GetRunFile(_ context.Context, r *api.GetRunFileRequest) (*api.GetRunFileResponse, error) {
	if err := s.o.Runs.AwaitsRun(r.GetNode(), r.GetRunId()); err != nil {
		return nil, err
	}
	stored, size, err := stat(s.o.Artifacts, r.GetDigest())
	return &api.GetRunFileResponse{Stored: stored, Size: size}, err
}

// DeliverRun implements api.RunServiceServer.
func (s *runService) DeliverRun(ctx context.Context, r *api.DeliverRunRequest) (*api.DeliverRunResponse, error) {
	d := controller.Delivery{Run: r.GetRunId(), Node: r.GetNode(), Partial: convert.Text(r.GetPartial())}
	for _, f := range r.GetFiles() {
		d.Files = append(d.Files, kb.Document{Name: f.GetName(), Digest: f.GetDigest(), Size: f.GetSize()})
	}
	if err := s.o.Runs.Deliver(ctx, d); err != nil {
		return nil, err
	}
	s.files.delivered(d.Run, d.Node)
	return &api.DeliverRunResponse{}, nil
}

// What one node may put into the store for one run. A delivery is at most four
// files and MaxBytes; an agent that was restarted may make them once more.
const (
	maxRunUploads = 8
	runTimes      = 2
	// uploadsOfNode at a time: an agent sends one file after the other. Two runs
	// that end together take turns.
	uploadsOfNode = 1
	runUploadWait = 5 * time.Second
)

// runFiles counts what nodes upload before they deliver it: the files of a
// delivery are checked as a whole only then, and a node may never come to it.
type runFiles struct {
	most    uint64 // bytes of one node in one run
	awaits  func(node string, run uint64) error
	uploads *limit.Semaphore

	mu sync.Mutex
	of map[runNode]map[string]uint64 // sizes, by digest
}

type runNode struct {
	run  uint64
	node string
}

// newRunFiles lets a delivery have maxBytes, and nodes so many uploads at a time
// in all; 0 stands for no end of them.
func newRunFiles(maxBytes uint64, uploads int, awaits func(node string, run uint64) error) *runFiles {
	return &runFiles{most: maxBytes * runTimes, awaits: awaits, uploads: limit.NewSemaphore(uploads), of: map[runNode]map[string]uint64{}}
}

// take counts a file and takes a place for its upload. The same file again, as
// after a break, is counted once.
func (f *runFiles) take(run uint64, node, digest string, size uint64) (free func(), err error) {
	if err := f.count(runNode{run, node}, digest, size); err != nil {
		return nil, err
	}
	if free = f.uploads.TryAcquire(node, uploadsOfNode); free == nil {
		own, all := f.uploads.Held(node)
		return nil, retryIn(runUploadWait, "run %d: node %q has %d uploads under way and all nodes have %d, the limit", run, node, own, all)
	}
	return free, nil
}

func (f *runFiles) count(key runNode, digest string, size uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := f.of[key]
	if files == nil {
		f.forgetLocked()
		files = map[string]uint64{}
		f.of[key] = files
	}
	_, again := files[digest]
	if !again && len(files) == maxRunUploads {
		return fmt.Errorf("run %d: node %q has uploaded %d files already, the limit of one run: %w", key.run, key.node, len(files), kb.ErrFailedPrecondition)
	}
	total := max(size, files[digest])
	for other, bytes := range files {
		if other != digest {
			total += bytes
		}
	}
	if total > f.most {
		return fmt.Errorf("run %d: the files of node %q would have %d bytes, at most %d are allowed in one run: %w", key.run, key.node, total, f.most, kb.ErrFailedPrecondition)
	}
	files[digest] = max(size, files[digest])
	return nil
}

// pending is how many bytes are or are about to be stored and not delivered yet.
func (f *runFiles) pending() (bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetLocked()
	for _, files := range f.of {
		for _, size := range files {
			bytes += size
		}
	}
	return bytes
}

// forgetLocked drops what is of nodes and runs of which nothing is awaited any more.
func (f *runFiles) forgetLocked() {
	for key := range f.of {
		if f.awaits(key.node, key.run) != nil {
			delete(f.of, key)
		}
	}
}

// delivered ends the count: what is stored is the run's now.
func (f *runFiles) delivered(run uint64, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, runNode{run, node})
}
