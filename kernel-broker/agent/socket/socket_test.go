// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/socket/sockettest"
)

func listen(t *testing.T) (l *net.UnixListener, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "run", "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

func dial(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
}

// Whatever passes is waited out; the rest ends the wait.
func TestPassingErrors(t *testing.T) {
	l, path := listen(t)
	dial(t, path)
	short := 0
	wants := func(error) { short++ }
	sick := &sockettest.Troubled{Listener: l, Errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM}}
	conn, err := Accept(sick, wants)
	if err != nil || short != 5 {
		t.Fatalf("%v, %d errors reported", err, short)
	}
	if uid, err := UID(conn); err != nil || int(uid) != os.Getuid() {
		t.Errorf("user %d, %v", uid, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Accept(&sockettest.Troubled{Listener: l, Errs: []error{syscall.EINVAL}}, wants); !errors.Is(err, syscall.EINVAL) || short != 5 {
		t.Errorf("broken: %v, %d errors reported", err, short)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Accept(&sockettest.Troubled{Listener: l, Errs: []error{syscall.EMFILE}}, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A process short of descriptors accepts waiting clients as soon as one is free.
func TestNoDescriptorLeft(t *testing.T) {
	l, path := listen(t)
	dial(t, path)
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &had) })
	none := had
	none.Cur = 0 // those that are open stay so
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	short := 0
	conn, err := Accept(l, func(err error) {
		if short++; !errors.Is(err, syscall.EMFILE) {
			t.Error(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
			t.Error(err)
		}
	})
	if err != nil || short != 1 {
		t.Fatalf("%v, %d errors reported", err, short)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	dead, path := listen(t)
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	dial(t, path)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
