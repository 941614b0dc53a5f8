// SPDX-License-Identifier: Apache-2.0

// Package mungetest runs a real munged for tests: one of its own, with its own
// key, in a folder of its own, which ends with the test. What proves people to
// the broker is so tested on what proves them on a cluster.
package mungetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
)

// Daemon is a munged that runs.
type Daemon struct {
	Socket string
	t      testing.TB
	dir    string
	cmd    *exec.Cmd
}

// Start starts a munged with a fresh key. Without munged installed the test is
// skipped; where CI runs it has to be.
func Start(t testing.TB) *Daemon {
	t.Helper()
	if _, err := exec.LookPath("munged"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("Debian's package munge is needed: %v", err)
	}
	// Not t.TempDir: other users have to reach the socket.
	dir, err := os.MkdirTemp("", "munged-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 128)
	_, _ = rand.Read(key) // never fails
	if err := os.WriteFile(filepath.Join(dir, "key"), key, 0o400); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Socket: filepath.Join(dir, "socket"), t: t, dir: dir}
	d.run()
	t.Cleanup(d.stop)
	return d
}

// Restart ends munged and starts it again: with the same key, and with nothing
// in its memory of what it has decoded.
func (d *Daemon) Restart() {
	d.t.Helper()
	d.stop()
	d.run()
}

func (d *Daemon) run() {
	d.t.Helper()
	at := func(name string) string { return filepath.Join(d.dir, name) }
	var log bytes.Buffer
	d.cmd = exec.Command("munged", "--foreground", "--force", "--key-file="+at("key"), "--socket="+d.Socket,
		"--pid-file="+at("pid"), "--seed-file="+at("seed"), "--log-file="+at("log"))
	d.cmd.Stdout, d.cmd.Stderr = &log, &log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	client := munge.New(d.Socket)
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := client.Encode(context.Background(), nil, time.Minute)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(at("log"))
			d.t.Fatalf("munged: %v\n%s%s", err, log.String(), text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (d *Daemon) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Error(err)
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Logf("munged: %v", err)
	}
}

// EncodeAs makes a credential as another user, which only root can.
func (d *Daemon) EncodeAs(uid uint32, payload []byte, ttl time.Duration) string {
	d.t.Helper()
	if os.Geteuid() != 0 {
		d.t.Skip("only root can make another user's credential")
	}
	cmd := exec.Command("munge", "--socket="+d.Socket, "--ttl="+strconv.Itoa(int(ttl/time.Second)))
	cmd.Stdin = bytes.NewReader(payload)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// As encodes as another user, wherever something encodes as itself.
func (d *Daemon) As(uid uint32) Encoder { return Encoder{d, uid} }

// Encoder makes credentials of one user.
type Encoder struct {
	daemon *Daemon
	uid    uint32
}

// Encode does what munge.Client does.
func (e Encoder) Encode(_ context.Context, payload []byte, ttl time.Duration) (string, error) {
	return e.daemon.EncodeAs(e.uid, payload, ttl), nil
}
