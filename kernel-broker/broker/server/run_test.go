// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// oneRun is Runs with run 7 of uid 1000 on n1.
type oneRun struct {
	Runs
	delivered []controller.Delivery
	begun     *kb.Run
	last      kb.RunState // what a watch sees last; empty: the run is complete
	rooms     []uint64    // what MakeRoom was asked for
	full      error
}

var someFile = kb.Document{Name: kb.ResultFile, Digest: digestOfText("abcdef"), Size: 6}

func (*oneRun) ProfilingRun(_ context.Context, id uint64) (*kb.Run, error) {
	if id != 7 {
		return nil, kb.ErrNotFound
	}
	return &kb.Run{ID: 7, State: kb.RunComplete, Job: kb.JobID{Job: 12, Restart: 1}, UID: 1000,
		Kernel: kb.Ref{Profile: "mitgcm", Version: 3},
		Nodes:  []kb.RunNode{{Name: "n1", State: kb.RunNodeDelivered, Files: []kb.Document{someFile}}}}, nil
}

func (r *oneRun) ProfilingRuns(ctx context.Context, _ int, _ uint32, _ *uint32) ([]*kb.Run, error) {
	run, err := r.ProfilingRun(ctx, 7)
	return []*kb.Run{run}, err
}

func (r *oneRun) BeginRun(context.Context, kb.JobID) (*kb.Run, error) {
	return r.begun, nil
}

func (r *oneRun) WatchRun(context.Context, uint64) (<-chan controller.Figures, error) {
	figures := make(chan controller.Figures, 1)
	figures <- controller.Figures{Run: &kb.Run{ID: 7, State: cmp.Or(r.last, kb.RunComplete)}, Node: "n1", JSON: []byte("{}")}
	close(figures)
	return figures, nil
}

func (*oneRun) AwaitsRun(node string, id uint64) error {
	if node != "n1" || id != 7 {
		return kb.ErrNotFound
	}
	return nil
}

func (r *oneRun) MakeRoom(_ context.Context, bytes uint64) error {
	r.rooms = append(r.rooms, bytes)
	return r.full
}

func (r *oneRun) Deliver(_ context.Context, d controller.Delivery) error {
	r.delivered = append(r.delivered, d)
	return nil
}

// opened is a store of files.
func opened(t *testing.T) *artifact.Store {
	t.Helper()
	store, err := artifact.OpenStore(t.TempDir(), artifact.StoreOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// What a run found is its user's, and administrators'.
func TestWhoSeesARun(t *testing.T) {
	s := NewRunService(RunOptions{Runs: &oneRun{}, Administrator: func(c Caller) bool { return c.UID == 5 }})
	for _, c := range []struct {
		name   string
		caller Caller
		sees   bool
	}{
		{"the user", Caller{Local: true, UID: 1000}, true},
		{"the user, over the network", Caller{Verified: true, UID: 1000}, true},
		{"who only seems to be the user", Caller{Claimed: true, UID: 1000}, false},
		{"another user", Caller{Local: true, UID: 1001}, false},
		{"an administrator", Caller{Local: true, UID: 5}, true},
	} {
		ctx := withCaller(t.Context(), c.caller)
		got, err := s.GetRun(ctx, &api.GetRunRequest{Id: 7})
		if err != nil || (len(got.GetRun().GetNodes()[0].GetFiles()) == 1) != c.sees {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if err := s.WatchRun(&api.WatchRunRequest{Id: 7}, &watching{ctx: ctx}); (err == nil) != c.sees || !c.sees && !errors.Is(err, kb.ErrDenied) {
			t.Errorf("%s watches: %v", c.name, err)
		}
		list, err := s.ListRuns(ctx, &api.ListRunsRequest{})
		if err != nil || len(list.GetRuns()[0].GetNodes()[0].GetFiles()) != 0 {
			t.Errorf("%s: a list has no files: %v, %v", c.name, list, err)
		}
	}
}

// A watch that ends before the run does is no success: the run could not be read.
func TestWatchThatBreaksOff(t *testing.T) {
	ctx := withCaller(t.Context(), Caller{Local: true, UID: 1000})
	for last, broken := range map[kb.RunState]bool{kb.RunRunning: true, kb.RunRequested: true, kb.RunComplete: false, kb.RunFailed: false} {
		s := NewRunService(RunOptions{Runs: &oneRun{last: last}})
		err := s.WatchRun(&api.WatchRunRequest{Id: 7}, &watching{ctx: ctx})
		if broken != errors.Is(err, kb.ErrUnavailable) || !broken && err != nil {
			t.Errorf("the run was %s at last: %v", last, err)
		}
	}
}

// One user's watches leave places for others', and a place is free when its watch ends.
func TestWatchesOfAUser(t *testing.T) {
	runs := &endlessRun{}
	s := NewRunService(RunOptions{Runs: runs, Administrator: func(c Caller) bool { return c.UID == 5 }})
	begin := func(caller Caller) (end func() error, err error) {
		ctx, cancel := context.WithCancel(withCaller(t.Context(), caller))
		ended, before := make(chan error, 1), runs.begun.Load()
		go func() { ended <- s.WatchRun(&api.WatchRunRequest{Id: 7}, &watching{ctx: ctx}) }()
		for runs.begun.Load() == before {
			select {
			case err := <-ended:
				cancel()
				return nil, err
			case <-time.After(time.Millisecond):
			}
		}
		return func() error { cancel(); return <-ended }, nil
	}
	alice := Caller{Local: true, UID: 1000}
	var ends []func() error
	for n := range watchesOf {
		end, err := begin(alice)
		if err != nil {
			t.Fatalf("watch %d: %v", n+1, err)
		}
		ends = append(ends, end)
	}
	if _, err := begin(alice); !errors.Is(err, kb.ErrExhausted) || !strings.Contains(err.Error(), "watches 8 runs, at most 8") {
		t.Errorf("one more: %v", err)
	}
	other, err := begin(Caller{Local: true, UID: 5})
	if err != nil {
		t.Fatalf("another user: %v", err)
	}
	ends = append(ends, other)
	if err := ends[0](); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	again, err := begin(alice)
	if err != nil {
		t.Fatalf("after one ended: %v", err)
	}
	for _, end := range append(ends[1:], again) {
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// endlessRun is watched until the watch is cancelled.
type endlessRun struct {
	oneRun
	begun atomic.Int64
}

func (r *endlessRun) WatchRun(ctx context.Context, _ uint64) (<-chan controller.Figures, error) {
	figures := make(chan controller.Figures)
	go func() {
		<-ctx.Done()
		close(figures)
	}()
	r.begun.Add(1)
	return figures, nil
}

type watching struct {
	grpc.ServerStream
	ctx context.Context
}

func (w *watching) Context() context.Context         { return w.ctx }
func (w *watching) Send(*api.WatchRunResponse) error { return nil }

// uploading is a client's stream.
type uploading struct {
	grpc.ServerStream
	ctx      context.Context
	messages []*api.UploadRunFileRequest
}

func (u *uploading) Context() context.Context                      { return u.ctx }
func (u *uploading) SendAndClose(*api.UploadRunFileResponse) error { return nil }
func (u *uploading) Recv() (*api.UploadRunFileRequest, error) {
	if len(u.messages) == 0 {
		return nil, io.EOF
	}
	m := u.messages[0]
	u.messages = u.messages[1:]
	return m, nil
}

func TestUploadRunFile(t *testing.T) {
	file := &api.RunFile{Name: someFile.Name, Digest: someFile.Digest, Size: someFile.Size}
	first := func(change func(*api.UploadRunFileRequest)) []*api.UploadRunFileRequest {
		m := &api.UploadRunFileRequest{Node: "n1", RunId: 7, File: file, Data: []byte("abc")}
		change(m)
		return []*api.UploadRunFileRequest{m, {Data: []byte("d")}, {Data: []byte("ef")}}
	}
	for _, c := range []struct {
		name     string
		messages []*api.UploadRunFileRequest
		code     codes.Code
	}{
		{"whole", first(func(*api.UploadRunFileRequest) {}), codes.OK},
		{"the rest", first(func(m *api.UploadRunFileRequest) { m.Offset, m.Data = 3, nil }), codes.Aborted},
		{"another node's", first(func(m *api.UploadRunFileRequest) { m.Node = "n2" }), codes.NotFound},
		{"more than announced", first(func(m *api.UploadRunFileRequest) { m.Data = []byte("abcdef") }), codes.InvalidArgument},
		{"too large", first(func(m *api.UploadRunFileRequest) { m.File = &api.RunFile{Digest: file.Digest, Size: 11} }), codes.ResourceExhausted},
		{"no digest", first(func(m *api.UploadRunFileRequest) { m.File = &api.RunFile{} }), codes.InvalidArgument},
		{"two files", append(first(func(*api.UploadRunFileRequest) {})[:1], &api.UploadRunFileRequest{File: file}), codes.InvalidArgument},
		{"nothing", nil, codes.InvalidArgument},
	} {
		files := opened(t)
		s := NewRunService(RunOptions{Runs: &oneRun{}, Artifacts: files, MaxBytes: 10})
		err := statusOf(s.UploadRunFile(&uploading{ctx: t.Context(), messages: c.messages}))
		stored, missing := files.Stat(someFile.Digest)
		if status.Code(err) != c.code || c.code == codes.OK && stored.Size != 6 || c.code != codes.OK && !errors.Is(missing, kb.ErrNotFound) {
			t.Errorf("%s: %v, stored: %v, %v", c.name, err, stored, missing)
		}
	}
}

func TestDeliverRun(t *testing.T) {
	runs := &oneRun{}
	s := NewRunService(RunOptions{Runs: runs, Artifacts: opened(t)})
	request := &api.DeliverRunRequest{Node: "n1", RunId: 7, Partial: "disk\nfull",
		Files: []*api.RunFile{{Name: someFile.Name, Digest: someFile.Digest, Size: someFile.Size}}}
	other := Caller{Node: mtls.Peer{Name: mtls.Name{Role: mtls.Node, Name: "n2"}}}
	g, _ := recording(t)
	for method, message := range map[string]any{
		api.RunService_DeliverRun_FullMethodName: request,
		api.RunService_GetRunFile_FullMethodName: &api.GetRunFileRequest{Node: "n1", RunId: 7, Digest: someFile.Digest},
	} {
		_, err := g.unary(withCaller(t.Context(), other), message, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, errors.New("called") })
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: n2 in n1's name: %v", method, err)
		}
	}
	if _, err := s.DeliverRun(t.Context(), request); err != nil || len(runs.delivered) != 1 ||
		runs.delivered[0].Partial != "disk full" || runs.delivered[0].Files[0] != someFile {
		t.Errorf("%+v, %v", runs.delivered, err)
	}
	have, err := s.GetRunFile(t.Context(), &api.GetRunFileRequest{Node: "n1", RunId: 7, Digest: someFile.Digest})
	if err != nil || have.GetStored() || have.GetSize() != 0 {
		t.Errorf("%v, %v", have, err)
	}
}

func TestBeginRun(t *testing.T) {
	runs := &oneRun{}
	s := NewRunService(RunOptions{Runs: runs})
	if got, err := s.BeginRun(t.Context(), &api.BeginRunRequest{JobId: 12}); err != nil || got.GetRun() != nil {
		t.Errorf("a job that asked for none: %v, %v", got, err)
	}
	runs.begun = &kb.Run{ID: 9}
	if got, err := s.BeginRun(t.Context(), &api.BeginRunRequest{JobId: 12}); err != nil || got.GetRun().GetId() != 9 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRunReports(t *testing.T) {
	for state, good := range map[api.RunNodeState]bool{
		api.RunNodeState_RUN_NODE_STATE_UNSPECIFIED: true, api.RunNodeState_RUN_NODE_STATE_READY: true,
		api.RunNodeState_RUN_NODE_STATE_LOOKING: true, api.RunNodeState_RUN_NODE_STATE_FAILED: true,
		api.RunNodeState_RUN_NODE_STATE_DELIVERED: false, api.RunNodeState_RUN_NODE_STATE_LOST: false, 99: false,
	} {
		if _, err := convert.RunReportFromProto(&api.RunReport{State: state}); (err == nil) != good {
			t.Errorf("%v: %v", state, err)
		}
	}
}
