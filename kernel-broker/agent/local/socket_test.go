// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// failingListener fails a number of times, as the kernel does, before it accepts.
type failingListener struct {
	*net.UnixListener
	errs []error
}

func (l *failingListener) AcceptUnix() (*net.UnixConn, error) {
	if len(l.errs) == 0 {
		return l.UnixListener.AcceptUnix()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
}

// uidInName parses the number at the end of the name of a client's socket as the user.
func uidInName(conn *net.UnixConn) (uid uint32, err error) {
	name := conn.RemoteAddr().String()
	_, err = fmt.Sscan(name[strings.LastIndex(name, "-")+1:], &uid)
	return uid, err
}

func listen(t *testing.T) (s *Socket, l *net.UnixListener, path string, log *bytes.Buffer) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "run", "s"), &bytes.Buffer{}
	s, err := Listen(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.listener.Close() })
	return s, s.listener.(*net.UnixListener), path, log
}

func dial(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
}

func TestTemporaryErrors(t *testing.T) {
	s, l, path, log := listen(t)
	dial(t, path)
	s.listener = &failingListener{UnixListener: l, errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM}}
	conn, err := s.accept()
	if err != nil || strings.Count(log.String(), "clients of the agent's socket wait") != 1 {
		t.Fatalf("%v: %s", err, log)
	}
	if uid, err := s.PeerUID(conn); err != nil || int(uid) != os.Getuid() {
		t.Errorf("user %d, %v", uid, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	s.listener = &failingListener{UnixListener: l, errs: []error{syscall.EINVAL}}
	if _, err := s.accept(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("broken: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.listener = &failingListener{UnixListener: l, errs: []error{syscall.EMFILE}}
	if _, err := s.accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// restoring is a log that ends the shortage of descriptors that it reads of.
type restoring struct {
	t     *testing.T
	limit unix.Rlimit
	lines int
}

func (r *restoring) Write(line []byte) (int, error) {
	if r.lines++; !strings.Contains(string(line), syscall.EMFILE.Error()) {
		r.t.Errorf("%s", line)
	}
	return len(line), unix.Setrlimit(unix.RLIMIT_NOFILE, &r.limit)
}

func TestNoDescriptorLeft(t *testing.T) {
	s, _, path, _ := listen(t)
	dial(t, path)
	r := &restoring{t: t}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r.limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &r.limit) })
	s.log = slog.New(slog.NewTextHandler(r, nil))
	none := r.limit
	none.Cur = 0 // those that are open stay so
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	conn, err := s.accept()
	if err != nil || r.lines != 1 {
		t.Fatalf("%v, %d errors reported", err, r.lines)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	_, dead, path, log := listen(t)
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	dial(t, path)
	if err := s.listener.Close(); err != nil {
		t.Fatal(err)
	}
}
