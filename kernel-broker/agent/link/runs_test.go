// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// keeper is RunService that keeps what comes, and breaks off where a test says.
type keeper struct {
	api.UnimplementedRunServiceServer
	mu      sync.Mutex
	have    map[string]string
	whole   map[string]uint64
	breakAt int // bytes after which the next upload breaks off; 0: never
	deliver error
	last    *api.DeliverRunRequest
}

func (k *keeper) GetRunFile(_ context.Context, r *api.GetRunFileRequest) (*api.GetRunFileResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	size := uint64(len(k.have[r.GetDigest()]))
	whole, known := k.whole[r.GetDigest()]
	return &api.GetRunFileResponse{Stored: known && whole == size, Size: size}, nil
}

func (k *keeper) UploadRunFile(stream api.RunService_UploadRunFileServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	digest := first.GetFile().GetDigest()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.whole[digest] = first.GetFile().GetSize()
	k.have[digest] = k.have[digest][:first.GetOffset()]
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&api.UploadRunFileResponse{})
		}
		if err != nil {
			return err
		}
		k.have[digest] += string(m.GetData())
		if k.breakAt > 0 && len(k.have[digest]) >= k.breakAt {
			k.breakAt = 0
			return status.Error(codes.Unavailable, "broken off")
		}
	}
}

func (k *keeper) DeliverRun(_ context.Context, r *api.DeliverRunRequest) (*api.DeliverRunResponse, error) {
	k.last = r
	return &api.DeliverRunResponse{}, k.deliver
}

func serveRuns(t *testing.T, k *keeper) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterRunServiceServer(server, k)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	l, err := New(Options{Broker: listener.Addr().String(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		serving.Wait()
	})
	return l
}

// A file that broke off is sent again, also to a broker that kept a part of it, and one that is there is not sent.
func TestDeliverRun(t *testing.T) {
	k := &keeper{have: map[string]string{}, whole: map[string]uint64{}, breakAt: 300 << 10}
	l := serveRuns(t, k)
	text := strings.Repeat("0123456789abcdef", 40<<10)
	path := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	file := RunFile{Path: path, Document: kb.Document{Name: "result.json", Digest: "sha256:x", Size: uint64(len(text))}}
	if err := l.DeliverRun(t.Context(), "n1", 3, []RunFile{file}, "why"); !errors.Is(err, kb.ErrUnavailable) {
		t.Fatalf("the first time: %v", err)
	}
	if n := len(k.have["sha256:x"]); n < 300<<10 || n >= len(text) {
		t.Fatalf("%d bytes arrived", n)
	}
	for range 2 {
		if err := l.DeliverRun(t.Context(), "n1", 3, []RunFile{file}, "why"); err != nil {
			t.Fatal(err)
		}
		if k.have["sha256:x"] != text || k.last.GetPartial() != "why" || k.last.GetNode() != "n1" || len(k.last.GetFiles()) != 1 {
			t.Errorf("%d bytes, %v", len(k.have["sha256:x"]), k.last)
		}
	}
	for code, kind := range map[codes.Code]error{
		codes.FailedPrecondition: kb.ErrFailedPrecondition, codes.NotFound: kb.ErrFailedPrecondition, codes.InvalidArgument: kb.ErrFailedPrecondition,
		codes.ResourceExhausted: kb.ErrUnavailable, codes.DeadlineExceeded: kb.ErrUnavailable,
	} {
		k.deliver = status.Error(code, "x")
		if err := l.DeliverRun(t.Context(), "n1", 3, []RunFile{file}, ""); !errors.Is(err, kind) {
			t.Errorf("%v: %v", code, err)
		}
	}
	file.Path, file.Digest = "/nowhere", "sha256:y"
	if err := l.DeliverRun(t.Context(), "n1", 3, []RunFile{file}, ""); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("a file that is gone: %v", err)
	}
}
