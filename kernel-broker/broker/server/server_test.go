// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// fixture is a served broker without nodes and jobs.
type fixture struct {
	socket, address string
	store           *memstore.Store
	files           *artifact.Store
	log             *lockedBuffer
	components      []server.Component
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// keep stores a file.
func (f *fixture) keep(t *testing.T, content []byte) {
	t.Helper()
	if _, err := f.files.Put(t.Context(), digestOf(content), uint64(len(content)), bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

// storesNothing checks that no upload was taken.
func (f *fixture) storesNothing(t *testing.T) {
	t.Helper()
	if files, _, _, err := f.files.List(t.Context()); err != nil || len(files) != 0 {
		t.Errorf("stored: %v, %v", files, err)
	}
}

func serve(t testing.TB, change func(*server.Options), register func(*server.Server)) *fixture {
	t.Helper()
	f := &fixture{
		socket: filepath.Join(t.TempDir(), "broker.sock"), store: memstore.New(),
		log:        &lockedBuffer{},
		components: []server.Component{{Name: "store", Healthy: true}, {Name: "slurm", Healthy: true, Detail: "22.05.8"}},
	}
	var err error
	if f.files, err = artifact.OpenStore(t.TempDir(), artifact.StoreOptions{Limit: 1 << 30, Log: slog.New(slog.DiscardHandler),
		Needed: func(context.Context) (map[string][]string, error) {
			return map[string][]string{digestOf([]byte("needed")): {"mitgcm@1"}}, nil
		}}); err != nil {
		t.Fatal(err)
	}
	o := server.Options{
		Catalog: catalog.New(catalog.Options{Store: f.store, Log: slog.New(slog.DiscardHandler)}), Artifacts: f.files,
		Health: func(context.Context) []server.Component { return f.components }, Version: "1.2.3",
		Log: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	server := server.NewServer(o)
	if register != nil {
		register(server)
	}
	local, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	remote, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = remote.Addr().String()
	var serving sync.WaitGroup
	for _, listener := range []net.Listener{local, remote} {
		serving.Go(func() {
			if err := server.Serve(o.Listener(listener)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		if err := f.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func dial(t testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func (f *fixture) local(t testing.TB) *grpc.ClientConn  { return dial(t, "unix:"+f.socket) }
func (f *fixture) remote(t testing.TB) *grpc.ClientConn { return dial(t, f.address) }

// as dials the socket with another effective uid, which only this thread has
// and only while it connects.
func (f *fixture) as(t *testing.T, uid int) *grpc.ClientConn {
	t.Helper()
	f.openTo(t)
	return dial(t, "passthrough:user", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		return dialAs(uid, f.socket)
	}))
}

// openTo opens the way to the socket, through folders that are closed to others.
func (f *fixture) openTo(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can dial as another user")
	}
	for dir := filepath.Dir(f.socket); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		conn, err := connectAs(uid, path)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func connectAs(uid int, path string) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }()
	// The raw call changes this thread, not the process.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
		return nil, errno
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

func apiProfile(name string, digest string, size int) *api.Profile {
	return convert.ProfileToProto(kb.Profile{
		Name: name, Application: "MITgcm", Description: "an ocean model", DefaultVersion: 1,
		Reuse: kb.ReuseSameProfile, Fallback: kb.FallbackHold,
		BootAttempts: 2, BootTimeout: time.Minute,
		Versions: []kb.ProfileVersion{{Kernel: kb.Kernel{
			Profile: name, Version: 1, ImageDigest: digest, ImageSize: uint64(size),
			BuildID: strings.Repeat("ab", 20), Release: "6.1.0-" + name, Architecture: "x86_64",
		}}},
	})
}

// want fails unless err has the code and its text the words.
func want(t *testing.T, what string, err error, code codes.Code, words string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), words) {
		t.Errorf("%s = %v, want %v with %q", what, err, code, words)
	}
}

// say sends, and is false once the server ended the stream. It may end it before
// it reads, and then only what is received says why.
func say[M any](t *testing.T, stream interface{ Send(M) error }, message M) bool {
	t.Helper()
	err := stream.Send(message)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return err == nil
}

// privileged dials from a port that only root may use.
func (f *fixture) privileged(t *testing.T) *grpc.ClientConn {
	return dial(t, f.address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		var err error
		for port := 1023; port > 600; port-- {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
			var conn net.Conn
			if conn, err = dialer.DialContext(ctx, "tcp", address); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}))
}
