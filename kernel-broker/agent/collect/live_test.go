// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T) (*liveServer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "s")
	s := newLiveServer()
	if err := s.listen(path, os.Getuid(), quiet); err != nil {
		t.Fatal(err)
	}
	return s, path
}

func dial(t *testing.T, s *liveServer, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for !s.HasClients() {
		time.Sleep(time.Millisecond)
	}
	return conn
}

func TestLinesReachListeners(t *testing.T) {
	s, path := listen(t)
	if s.HasClients() {
		t.Error("unexpected listener")
	}
	s.Publish([]byte("one\n"))
	conn := dial(t, s, path)
	s.Publish([]byte("two\n"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A watcher in the process gets the lines that clients of the socket get.
func TestWatch(t *testing.T) {
	s := newLiveServer()
	s.Publish([]byte("one\n"))
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := make(chan string), make(chan struct{})
	watch := func() {
		s.watch(ctx, func(line []byte) { lines <- string(line) })
		ended <- struct{}{}
	}
	go watch()
	if got := <-lines; got != "one" || !s.HasClients() {
		t.Errorf("got %q first", got)
	}
	s.Publish([]byte("two\n"))
	if got := <-lines; got != "two" {
		t.Errorf("got %q then", got)
	}
	cancel()
	<-ended
	if s.HasClients() {
		t.Error("a watcher that has ended is still there")
	}
	ctx = t.Context()
	go watch()
	for !s.HasClients() {
		time.Sleep(time.Millisecond)
	}
	s.Publish([]byte("three\n"))
	// Without listeners there were no figures: the last ones may be hours old.
	if got := <-lines; got != "three" {
		t.Errorf("got %q after a pause", got)
		<-lines
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// A client that does not read is disconnected and delays no other.
func TestSlowClientIsDisconnected(t *testing.T) {
	s, path := listen(t)
	dial(t, s, path)
	line := make([]byte, 1<<20)
	for s.HasClients() {
		s.Publish(line)
	}
	quick := dial(t, s, path)
	if first, err := bufio.NewReader(quick).ReadByte(); err != nil || first != 0 {
		t.Errorf("the other client got %v, %v", first, err)
	}
	quick.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// connectAs connects as another user, in a thread that ends with its identity.
func connectAs(t *testing.T, uid uintptr, path string) string {
	t.Helper()
	type answer struct {
		text string
		err  error
	}
	said := make(chan answer)
	go func() {
		runtime.LockOSThread() // never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			said <- answer{err: errno}
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			said <- answer{err: err}
			return
		}
		file := os.NewFile(uintptr(fd), path)
		defer file.Close()
		line, err := bufio.NewReader(file).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		said <- answer{line, err}
	}()
	a := <-said
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.text
}

// The agent cannot chown its socket (its unit lacks CAP_CHOWN), so all may connect, and the kernel identifies the peer.
func TestOnlyOwnerAndRootReadFigures(t *testing.T) {
	for uid, want := range map[uint32]bool{0: true, owner: true, otherUser: false} {
		if (liveFor(owner)(uid) == nil) != want {
			t.Errorf("user %d may read is %t", uid, !want)
		}
	}
	if os.Geteuid() != 0 {
		return // the rest needs users
	}
	folder, err := os.MkdirTemp("", "live")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	s := newLiveServer()
	if err := s.listen(path, owner, quiet); err != nil {
		t.Fatal(err)
	}
	s.Publish([]byte("figures\n"))
	if text := connectAs(t, owner, path); text != "figures\n" {
		t.Errorf("the owner reads %q", text)
	}
	if text := connectAs(t, otherUser, path); text != "" {
		t.Errorf("another user reads %q", text)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
