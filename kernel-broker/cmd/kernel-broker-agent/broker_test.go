// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

const patience = 20 * time.Second

// fakeBroker is a real gRPC server with answers chosen by the test; it records reports. Its address stays the same over
// stop and start.
type fakeBroker struct {
	api.UnimplementedNodeServiceServer
	api.UnimplementedCatalogServiceServer
	t       *testing.T
	address string
	server  *grpc.Server

	mu      sync.Mutex
	change  chan struct{}
	said    []*api.ConnectRequest
	hellos  []*api.Hello
	desired *api.Desired
	push    chan *api.ConnectResponse
	files   map[string][]byte
	// chunk, when set, is called after each message of a fetch.
	chunk func(digest string, sent int) error
	// fetched counts requests for artifacts.
	fetched int
	// keep is the answer to ending jobs; nil for no answer.
	keep *bool
	// receipts, when set, holds health checks back until it is closed.
	receipts chan struct{}
}

// healthServer answers the check that the agent uses as a receipt.
type healthServer struct {
	healthpb.UnimplementedHealthServer
	broker *fakeBroker
}

func (h healthServer) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.broker.mu.Lock()
	receipts := h.broker.receipts
	h.broker.mu.Unlock()
	if receipts != nil {
		select {
		case <-receipts:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func newFakeBroker(t *testing.T) *fakeBroker {
	b := &fakeBroker{t: t, address: keptAddress(t), change: make(chan struct{}), files: map[string][]byte{}}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *fakeBroker) start() {
	b.t.Helper()
	listener, err := net.Listen("tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	api.RegisterNodeServiceServer(server, b)
	api.RegisterCatalogServiceServer(server, b)
	healthpb.RegisterHealthServer(server, healthServer{broker: b})
	b.server = server
	go func() { _ = server.Serve(listener) }() // ends with stop
}

// keptAddress is one that no other program gets while the broker is stopped: a
// socket has it that does not listen.
func keptAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) }) // nothing was written to it
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

func (b *fakeBroker) stop() {
	if b.server != nil {
		b.server.Stop()
		b.server = nil
	}
}

// with changes the broker's behaviour.
func (b *fakeBroker) with(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *fakeBroker) changed() {
	close(b.change)
	b.change = make(chan struct{})
}

// setDesired sets the desired state and sends it to agents; the generation grows.
func (b *fakeBroker) setDesired(d *api.Desired) *api.Desired {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.Generation = 1
	if b.desired != nil {
		d.Generation = b.desired.Generation + 1
	}
	b.desired = d
	if b.push != nil {
		b.push <- desiredMessage(d)
	}
	return d
}

func desiredMessage(d *api.Desired) *api.ConnectResponse {
	return &api.ConnectResponse{Message: &api.ConnectResponse_Desired{Desired: d}}
}

func (b *fakeBroker) Connect(stream api.NodeService_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetHello() == nil {
		return status.Error(codes.InvalidArgument, "no hello")
	}
	push := make(chan *api.ConnectResponse, 100)
	b.mu.Lock()
	b.hellos = append(b.hellos, first.GetHello())
	b.push = push
	if b.desired != nil {
		push <- desiredMessage(b.desired)
	}
	b.changed()
	b.mu.Unlock()
	go func() {
		for {
			select {
			case m := <-push:
				if stream.Send(m) != nil {
					return
				}
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		b.receive(m, push)
	}
}

func (b *fakeBroker) receive(m *api.ConnectRequest, push chan *api.ConnectResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, m)
	if ending := m.GetJobEnding(); ending != nil && b.keep != nil {
		push <- &api.ConnectResponse{Message: &api.ConnectResponse_JobEnding{
			JobEnding: &api.JobEndingAnswer{Query: ending.Query, Kept: *b.keep},
		}}
	}
	b.changed()
}

func (b *fakeBroker) FetchArtifact(r *api.FetchArtifactRequest, stream api.CatalogService_FetchArtifactServer) error {
	b.mu.Lock()
	content, ok := b.files[r.Digest]
	chunk := b.chunk
	b.fetched++
	b.changed()
	b.mu.Unlock()
	if !ok {
		return status.Errorf(codes.NotFound, "artifact %s", r.Digest)
	}
	for sent := 0; sent < len(content); {
		n := min(4096, len(content)-sent)
		if err := stream.Send(&api.FetchArtifactResponse{Data: content[sent : sent+n]}); err != nil {
			return err
		}
		sent += n
		if chunk != nil {
			if err := chunk(r.Digest, sent); err != nil {
				return err
			}
		}
	}
	return nil
}

// until waits for a condition on the recorded reports.
func (b *fakeBroker) until(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		b.mu.Lock()
		is, change := ok(), b.change
		b.mu.Unlock()
		if is {
			return
		}
		select {
		case <-change:
		case <-deadline:
			b.t.Fatalf("waited in vain for %s; heard:\n%s", what, b.transcript())
		}
	}
}

func (b *fakeBroker) transcript() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := ""
	for _, m := range b.said {
		text += fmt.Sprintln(m)
	}
	return text
}

// report waits for a switch report of this generation and state.
func (b *fakeBroker) report(generation uint64, state api.SwitchState) *api.SwitchReport {
	b.t.Helper()
	var found *api.SwitchReport
	b.until(fmt.Sprintf("%v of generation %d", state, generation), func() bool {
		found = b.reported(generation, state)
		return found != nil
	})
	return found
}

// reported needs the lock.
func (b *fakeBroker) reported(generation uint64, state api.SwitchState) *api.SwitchReport {
	for _, m := range b.said {
		if r := m.GetReport(); r != nil && r.Generation == generation && r.State == state {
			return r
		}
	}
	return nil
}

// never fails the test if such a report was recorded.
func (b *fakeBroker) never(state api.SwitchState) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.said {
		if r := m.GetReport(); r != nil && r.State == state {
			b.t.Errorf("reported: %v", r)
		}
	}
}

// slurmd waits until this is the latest report on slurmd.
func (b *fakeBroker) slurmd(running bool, start uint64) {
	b.t.Helper()
	b.until(fmt.Sprintf("slurmd running=%v start=%d", running, start), func() bool {
		for i := len(b.said) - 1; i >= 0; i-- {
			if s := b.said[i].GetSlurmd(); s != nil {
				return s.Running == running && s.SlurmdStart == start
			}
		}
		return false
	})
}

// hello waits for the nth hello.
func (b *fakeBroker) hello(n int) *api.Hello {
	b.t.Helper()
	var h *api.Hello
	b.until(fmt.Sprintf("hello %d", n), func() bool {
		if len(b.hellos) >= n {
			h = b.hellos[n-1]
		}
		return h != nil
	})
	return h
}
