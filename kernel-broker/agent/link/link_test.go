// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// server hands every stream to the test, and serves no health checks: an agent
// has to do with a broker that knows none.
type server struct {
	api.UnimplementedNodeServiceServer
	api.UnimplementedCatalogServiceServer
	streams chan *stream
	fetch   func(*api.FetchArtifactRequest, api.CatalogService_FetchArtifactServer) error
	end     chan error
	// hello is held by a test that wants no further stream.
	hello sync.Mutex
}

type stream struct {
	api.NodeService_ConnectServer
	hello *api.Hello
}

// Recv leaves out the heartbeats that come at an interval.
func (c *stream) Recv() (*api.ConnectRequest, error) {
	for {
		m, err := c.NodeService_ConnectServer.Recv()
		if err != nil || m.GetHeartbeat() == nil || m.GetHeartbeat().GetNumber() != 0 {
			return m, err
		}
	}
}

func (s *server) Connect(c api.NodeService_ConnectServer) error {
	first, err := c.Recv()
	if err != nil {
		return err
	}
	s.streams <- &stream{c, first.GetHello()}
	select {
	case err := <-s.end:
		return err
	case <-c.Context().Done():
		return nil
	}
}

func (s *server) FetchArtifact(r *api.FetchArtifactRequest, c api.CatalogService_FetchArtifactServer) error {
	return s.fetch(r, c)
}

const anyPort = "127.0.0.1:0"

// listen serves a broker at an address until stop is called.
func listen(t *testing.T, at string) (s *server, address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s = &server{streams: make(chan *stream, 10), end: make(chan error)}
	g := grpc.NewServer()
	api.RegisterNodeServiceServer(g, s)
	api.RegisterCatalogServiceServer(g, s)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { g.Stop(); serving.Wait() })
	t.Cleanup(stop)
	return s, listener.Addr().String(), stop
}

// pair is a running link and the server it dials.
func pair(t *testing.T) (*Link, *server) {
	t.Helper()
	s, address, _ := listen(t, anyPort)
	return linkTo(t, address, &s.hello), s
}

func linkTo(t *testing.T, broker string, hello *sync.Mutex) *Link {
	t.Helper()
	l, err := New(Options{
		Broker: broker,
		Hello: func() kb.Hello {
			hello.Lock()
			defer hello.Unlock()
			return kb.Hello{Node: "n1", Boot: kb.Boot{BootID: "b1"}}
		},
		Snapshot: func(string) error { return errors.New("no disk") }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// turned says of each stream that it is refused, before it is read from.
func turned(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
	return status.Error(codes.PermissionDenied, "not this one")
}

// Whoever reads the log of a node that is refused learns why, also when the
// refusal is there before the hello is sent.
func TestWhyAStreamWasRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.StreamInterceptor(turned))
	api.RegisterNodeServiceServer(g, &server{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer g.Stop()
	l, err := New(Options{Broker: listener.Addr().String(), Log: slog.New(slog.DiscardHandler), Hello: func() kb.Hello {
		time.Sleep(100 * time.Millisecond) // the refusal is there, mostly
		return kb.Hello{Node: "n1"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.stream(t.Context()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("stream = %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func (s *server) next(t *testing.T) *stream {
	t.Helper()
	select {
	case c := <-s.streams:
		return c
	case <-time.After(patience):
		t.Fatal("nobody dialled")
		return nil
	}
}

func (c *stream) desire(t *testing.T, generation uint64) {
	t.Helper()
	m := &api.ConnectResponse{Message: &api.ConnectResponse_Desired{Desired: &api.Desired{Generation: generation}}}
	if err := c.Send(m); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, l *Link, what string, ok func(Status) bool) Status {
	t.Helper()
	deadline := time.After(patience)
	for {
		if s := l.Status(); ok(s) {
			return s
		}
		select {
		case <-l.Changed():
		case <-deadline:
			t.Fatalf("waited in vain for %s: %+v", what, l.Status())
		}
	}
}

func generation(n uint64) func(Status) bool {
	return func(s Status) bool { return s.Fresh && s.Desired.Generation == n }
}

func TestNewestDesiredStateOfAStream(t *testing.T) {
	l, s := pair(t)
	c := s.next(t)
	if c.hello.GetNode() != "n1" || c.hello.GetBootId() != "b1" {
		t.Errorf("hello: %v", c.hello)
	}
	if st := l.Status(); st.Desired != nil || st.Fresh {
		t.Errorf("a desired state out of nowhere: %+v", st)
	}
	c.desire(t, 7)
	c.desire(t, 6)
	c.desire(t, 8)
	until(t, l, "generation 8", generation(8))
	s.end <- status.Error(codes.Aborted, "a newer stream")
	// The next one is up soon, and a busy machine may miss the time between them.
	old := until(t, l, "the stream's end", func(s Status) bool { return !s.Connected || s.Session > 1 })
	if old.Fresh || old.Desired == nil || old.Desired.Generation != 8 {
		t.Errorf("without that stream: %+v", old)
	}
	// A broker that lost its state begins again at 1.
	s.next(t).desire(t, 1)
	if st := until(t, l, "generation 1", generation(1)); st.Session != 2 {
		t.Errorf("session %d", st.Session)
	}
}

// Of several brokers one listens; when another takes over, the agent finds it.
func TestSeveralBrokers(t *testing.T) {
	free, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	acts, address, stop := listen(t, anyPort)
	var hello sync.Mutex
	linkTo(t, free.Addr().String()+","+address, &hello)
	acts.next(t)
	other, _, _ := listen(t, free.Addr().String())
	stop()
	other.next(t)
}

// What has arrived may still be lost with the stream; what the broker answered a
// heartbeat after may not.
func TestFlushWaitsForTheBroker(t *testing.T) {
	l, s := pair(t)
	c := s.next(t)
	if err := c.Send(&api.ConnectResponse{Message: &api.ConnectResponse_Desired{Desired: &api.Desired{Generation: 1, AnswersHeartbeats: true}}}); err != nil {
		t.Fatal(err)
	}
	until(t, l, "the desired state", func(s Status) bool { return s.Fresh })
	if err := l.Send(t.Context(), convert.SwitchReportToProto(kb.SwitchReport{Generation: 1, Progress: kb.ProgressBooting})); err != nil {
		t.Fatal(err)
	}
	flushed := make(chan error, 1)
	go func() { flushed <- l.Flush(t.Context()) }()
	if m, err := c.Recv(); err != nil || m.GetReport() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	m, err := c.Recv()
	if err != nil || m.GetHeartbeat().GetNumber() == 0 {
		t.Fatalf("%v, %v", m, err)
	}
	select {
	case err := <-flushed:
		t.Fatalf("flushed before the answer: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := c.Send(&api.ConnectResponse{Message: &api.ConnectResponse_Heartbeat{Heartbeat: m.GetHeartbeat()}}); err != nil {
		t.Fatal(err)
	}
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	go func() { flushed <- l.Flush(t.Context()) }()
	if _, err := c.Recv(); err != nil {
		t.Fatal(err)
	}
	s.end <- nil
	if err := <-flushed; !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("flushed by a stream that broke: %v", err)
	}
}

// A broker of 0.1.0 answers no heartbeats.
func TestFlushFollowsWhatWasSent(t *testing.T) {
	l, s := pair(t)
	c := s.next(t)
	until(t, l, "the stream", func(s Status) bool { return s.Connected })
	for n := range uint64(50) {
		if err := l.Send(t.Context(), convert.SwitchReportToProto(kb.SwitchReport{Generation: n, Progress: kb.ProgressLoaded})); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(50) {
		m, err := c.Recv()
		if err != nil || m.GetReport().GetGeneration() != n || m.GetReport().GetState() != api.SwitchState_SWITCH_STATE_LOADED {
			t.Fatalf("message %d: %v, %v", n, m, err)
		}
	}
}

func TestNothingIsSentWithoutAStream(t *testing.T) {
	l, s := pair(t)
	s.next(t)
	until(t, l, "the stream", func(s Status) bool { return s.Connected })
	s.hello.Lock()
	defer s.hello.Unlock()
	s.end <- status.Error(codes.Unavailable, "gone")
	until(t, l, "the stream's end", func(s Status) bool { return !s.Connected })
	if err := l.Send(t.Context(), &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{}}}); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("send: %v", err)
	}
	if err := l.Flush(t.Context()); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("flush: %v", err)
	}
	if _, err := l.JobEnding(t.Context(), 1); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("job ending: %v", err)
	}
}

func TestJobEndingAnswers(t *testing.T) {
	l, s := pair(t)
	c := s.next(t)
	until(t, l, "the stream", func(s Status) bool { return s.Connected })
	type word struct {
		kept bool
		err  error
	}
	words := map[uint32]chan word{12: make(chan word, 1), 13: make(chan word, 1), 14: make(chan word, 1)}
	for job, to := range words {
		go func() {
			kept, err := l.JobEnding(t.Context(), job)
			to <- word{kept, err}
		}()
	}
	// 13 is kept, 12 is not, and 14 has no answer before the stream ends.
	for range words {
		m, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if job := m.GetJobEnding().GetJobId(); job != 14 {
			answer := &api.JobEndingAnswer{Query: m.GetJobEnding().GetQuery(), Kept: job == 13}
			if err := c.Send(&api.ConnectResponse{Message: &api.ConnectResponse_JobEnding{JobEnding: answer}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for job, want := range map[uint32]bool{12: false, 13: true} {
		if got := <-words[job]; got.err != nil || got.kept != want {
			t.Errorf("job %d: %+v", job, got)
		}
	}
	s.end <- nil
	if got := <-words[14]; !errors.Is(got.err, kb.ErrUnavailable) || got.kept {
		t.Errorf("job 14: %+v", got)
	}
}

func TestFetch(t *testing.T) {
	l, s := pair(t)
	content := bytes.Repeat([]byte("kernel"), 1000)
	for _, c := range []struct {
		name  string
		serve error
		want  error
	}{
		{"whole", nil, nil},
		{"unknown", status.Error(codes.NotFound, ""), kb.ErrNotFound},
		{"away", status.Error(codes.Unavailable, ""), kb.ErrUnavailable},
		{"refused", status.Error(codes.InvalidArgument, ""), kb.ErrFailedPrecondition},
	} {
		s.fetch = func(_ *api.FetchArtifactRequest, out api.CatalogService_FetchArtifactServer) error {
			if c.serve != nil {
				return c.serve
			}
			for rest := content; len(rest) > 0; rest = rest[min(1000, len(rest)):] {
				if err := out.Send(&api.FetchArtifactResponse{Data: rest[:min(1000, len(rest))]}); err != nil {
					return err
				}
			}
			return nil
		}
		body, err := l.Fetch(t.Context(), "sha256:x")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if !errors.Is(err, c.want) || err != nil && c.want == nil || err == nil && !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFetchThatBreaksOff(t *testing.T) {
	l, s := pair(t)
	s.fetch = func(_ *api.FetchArtifactRequest, out api.CatalogService_FetchArtifactServer) error {
		if err := out.Send(&api.FetchArtifactResponse{Data: []byte("some")}); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "restarting")
	}
	body, err := l.Fetch(t.Context(), "sha256:x")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if string(got) != "some" || !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("%q, %v", got, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

// A broker that another one has followed is not heard, whatever it says; one of before there were epochs is.
func TestOlderEpochIsRefused(t *testing.T) {
	l, s := pair(t)
	for _, c := range []struct{ epoch, generation, want uint64 }{{5, 1, 1}, {4, 2, 1}, {0, 3, 3}, {5, 4, 4}, {6, 5, 5}, {5, 6, 5}} {
		stream := <-s.streams
		response := convert.DesiredToProto(&kb.DesiredState{Generation: c.generation})
		response.Epoch = c.epoch
		if err := stream.Send(response); err != nil {
			t.Fatal(err)
		}
		if c.want != c.generation {
			<-stream.Context().Done() // the agent has ended it, and tries another broker
			if now := l.Status().Desired; now.Generation != c.want {
				t.Errorf("epoch %d: generation %d, want %d", c.epoch, now.Generation, c.want)
			}
			continue
		}
		until(t, l, "it is heard", generation(c.want))
		s.end <- nil
	}
}
