// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/notify"
)

// manager is a service manager's socket.
func manager(t *testing.T, watchdog string) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	return c
}

// heard are the messages that have arrived.
func heard(t *testing.T, c *net.UnixConn) (messages []string) {
	t.Helper()
	for {
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 1024)
		n, err := c.Read(text)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return messages
		}
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(text[:n]))
	}
}

func TestWhatTheManagerHears(t *testing.T) {
	socket := manager(t, "3600000000")
	s := notify.New(slog.New(slog.DiscardHandler))
	s.Alive() // the first at once, further ones a quarter of the time apart
	s.Alive()
	s.Ready("waits for\nMAINPID=1")
	s.Status("serves")
	s.Status("serves")
	s.Stopping()
	want := []string{"WATCHDOG=1", "READY=1\nSTATUS=waits for MAINPID=1", "STATUS=serves", "STOPPING=1"}
	if got := heard(t, socket); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func TestSignsOfLifeGoOn(t *testing.T) {
	socket := manager(t, "40000")
	s := notify.New(slog.New(slog.DiscardHandler))
	s.Alive()
	time.Sleep(10 * time.Millisecond) // a quarter
	s.Alive()
	if got := heard(t, socket); !slices.Equal(got, []string{"WATCHDOG=1", "WATCHDOG=1"}) {
		t.Errorf("heard %q", got)
	}
}

func TestNoWatchdog(t *testing.T) {
	socket := manager(t, "")
	s := notify.New(slog.New(slog.DiscardHandler))
	s.Alive()
	if got := heard(t, socket); len(got) > 0 {
		t.Errorf("heard %q", got)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	s.Ready("nobody hears it")
}
