// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// askAs makes the test program report the end of a job under its own uid.
const askAs = "KERNEL_BROKER_TEST_ASK"

func TestMain(m *testing.M) {
	socket := os.Getenv(askAs)
	if socket == "" {
		goleak.VerifyTestMain(m)
		return
	}
	answer, err := Ask(context.Background(), socket, Request{Op: JobEnding, Job: 1})
	fmt.Println(answer.Kept, answer.Error, err)
}

type fakeAgent struct {
	mu    sync.Mutex
	asked []uint32
	left  time.Duration // time left for the last request
	ready chan struct{}
	waits chan struct{}
	gone  chan struct{}
}

func (f *fakeAgent) JobEnding(ctx context.Context, job uint32) (bool, error) {
	f.mu.Lock()
	f.asked = append(f.asked, job)
	deadline, _ := ctx.Deadline()
	f.left = time.Until(deadline)
	f.mu.Unlock()
	if job == 99 {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return job == 12, nil
}

func (f *fakeAgent) Status() NodeStatus { return NodeStatus{Node: "n1"} }

func (f *fakeAgent) WaitReady(ctx context.Context) error {
	f.waits <- struct{}{}
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		f.gone <- struct{}{}
		return ctx.Err()
	}
}

func serve(t *testing.T) (socket string, f *fakeAgent) {
	t.Helper()
	// The folder is open to other users, as /run/kernel-broker is.
	dir, err := os.MkdirTemp("", "local")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	f = &fakeAgent{ready: make(chan struct{}), waits: make(chan struct{}, 1), gone: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	server, err := NewServer(socket, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return socket, f
}

func TestAsk(t *testing.T) {
	socket, f := serve(t)
	for job, want := range map[uint32]bool{12: true, 13: false} {
		if a, err := Ask(t.Context(), socket, Request{Op: JobEnding, Job: job}); err != nil || a.Kept != want || a.Error != "" {
			t.Errorf("job %d: %+v, %v", job, a, err)
		}
	}
	if a, err := Ask(t.Context(), socket, Request{Op: Status}); err != nil || a.Status == nil || a.Status.Node != "n1" {
		t.Errorf("status: %+v, %v", a, err)
	}
	a, err := Ask(t.Context(), socket, Request{Op: JobEnding, Job: 99})
	if err != nil || a.Kept || a.Error == "" || f.left > JobEndingTimeout {
		t.Errorf("no answer: %+v, %v, and %v to wait for it", a, err, f.left)
	}
	if len(f.asked) != 3 {
		t.Errorf("asked %v", f.asked)
	}
}

func TestWaitReady(t *testing.T) {
	socket, f := serve(t)
	if a, err := Ask(t.Context(), socket, Request{Op: WaitReady, TimeoutMS: 100}); err != nil || a.Ready || a.Error == "" {
		t.Errorf("in vain: %+v, %v", a, err)
	}
	<-f.waits
	<-f.gone
	// The agent stops waiting when a client disconnects.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() {
		_, err := Ask(ctx, socket, Request{Op: WaitReady, TimeoutMS: 3_600_000})
		gaveUp <- err
	}()
	<-f.waits
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("gave up: %v", err)
	}
	select {
	case <-f.gone:
	case <-time.After(time.Minute):
		t.Error("the agent still waits for a disconnected client")
	}
	close(f.ready)
	if a, err := Ask(t.Context(), socket, Request{Op: WaitReady, TimeoutMS: 60_000}); err != nil || !a.Ready || a.Error != "" {
		t.Errorf("ready: %+v, %v", a, err)
	}
}

func TestOnlyRootEndsJobs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to connect as another user")
	}
	socket, f := serve(t)
	// The test program is in a folder of root's alone.
	program := filepath.Join(filepath.Dir(socket), "ask")
	raw, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(program, raw, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Dir = append(os.Environ(), askAs+"="+socket), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "requires root") || len(f.asked) > 0 {
		t.Errorf("plain user: %s, %v, asked %v", out, err, f.asked)
	}
}

func TestBadRequests(t *testing.T) {
	socket, f := serve(t)
	for _, line := range []string{"", "{}", "[]", "nonsense", `{"op":"reboot"}`, `{"op":"job_ending"}`, `{"op":"job_ending","job":-1}`,
		`{"op":"status"}{"op":"status"}`, `{"op":"status","x":1}`, `{"op":"wait_ready","timeout_ms":-1}`, strings.Repeat("x", maxLine+1)} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Write([]byte(line + "\n")) }() // the server may close first
		var a Answer
		raw, err := bufio.NewReader(conn).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(raw, &a)
		}
		// A flood ends in an answer or in a reset.
		if len(line) <= maxLine && (err != nil || a.Error == "") {
			t.Errorf("%.40q: %+v, %v", line, a, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(f.asked) > 0 {
		t.Errorf("asked %v", f.asked)
	}
}

func TestNoAgent(t *testing.T) {
	if _, err := Ask(t.Context(), "/nonexistent/socket", Request{Op: Status}); err == nil {
		t.Error("an answer without an agent")
	}
}

func TestSocketTakeover(t *testing.T) {
	socket, _ := serve(t)
	server, err := NewServer(socket, &fakeAgent{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.socket.listener.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"op":"job_ending","job":123}`))
	f.Add([]byte(`{"op":"wait_ready","timeout_ms":5}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseRequest(line)
		if err != nil {
			if !errors.Is(err, kb.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseRequest(raw); err != nil || again != r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}
