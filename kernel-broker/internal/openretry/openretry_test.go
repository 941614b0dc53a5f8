// SPDX-License-Identifier: Apache-2.0

package openretry_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/openretry"
)

// A child that inherited a lock holds it after its parent ends.
func TestOpen(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	lock := func(t *testing.T, path string) *exec.Cmd {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		child := exec.Command("flock", "--exclusive", "--no-fork", path, "cat")
		in, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		// The child answers while it holds the lock.
		if _, err := in.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return child
	}
	for name, c := range map[string]struct {
		file  string
		inUse error
		open  func(dir string) (func() error, error)
	}{
		"record": {"lock", kb.ErrFailedPrecondition, func(dir string) (func() error, error) {
			l, err := audit.Open(audit.Options{Dir: dir, Log: quiet})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		}},
		"store": {"lock", etcdserver.ErrInUse, func(dir string) (func() error, error) {
			s, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Logger: quiet})
			if err != nil {
				return nil, err
			}
			return s.Close, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			child := lock(t, filepath.Join(dir, c.file))
			tries := 0
			open := func() (func() error, error) {
				if tries++; tries == 3 {
					if err := child.Process.Kill(); err != nil {
						t.Error(err)
					}
				}
				return c.open(dir)
			}
			if _, err := openretry.Open(t.Context(), 0, c.inUse, open); !errors.Is(err, c.inUse) {
				t.Fatalf("without patience: %v", err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := openretry.Open(ended, time.Minute, c.inUse, open); !errors.Is(err, c.inUse) {
				t.Fatalf("when it is to end: %v", err)
			}
			done, err := openretry.Open(t.Context(), time.Minute, c.inUse, open)
			if err != nil || tries < 3 {
				t.Fatal(tries, err)
			}
			if err := done(); err != nil {
				t.Error(err)
			}
		})
	}
}
