package live

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "s")
	s, err := Listen(path, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

func dial(t *testing.T, s *Server, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for !s.Listened() {
		time.Sleep(time.Millisecond)
	}
	return conn
}

func TestLinesReachWhoListens(t *testing.T) {
	s, path := listen(t)
	if s.Listened() {
		t.Error("somebody listens")
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

// A client that does not read is let go and holds up nobody.
func TestSlowClientIsLetGo(t *testing.T) {
	s, path := listen(t)
	dial(t, s, path)
	line := make([]byte, 1<<20)
	for s.Listened() {
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

func TestSocketIsTheOwners(t *testing.T) {
	s, path := listen(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSocketOfADeadAgentIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	s, err := Listen(path, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	dial(t, s, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
