// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

// controllers are brokers in processes of their own, which share an etcd and a data folder.
type controllers struct {
	t          *testing.T
	etcd, data string
	kept       *etcdstore.Store
}

type controllerHost struct {
	*exec.Cmd
	socket string
	out    bytes.Buffer
}

func newControllers(t *testing.T) *controllers {
	t.Helper()
	c := &controllers{t: t, etcd: etcdtest.Start(t, etcdtest.Options{}).Endpoint, data: t.TempDir()}
	kept, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{c.etcd}, Cluster: "hpc", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	c.kept = kept
	return c
}

// start starts a broker on a host of its own, as far as sockets and the name of its audit chain go.
func (c *controllers) start(name string) *controllerHost {
	c.t.Helper()
	return c.startWith(name, c.data, filepath.Join(c.t.TempDir(), "socket"), fmt.Sprintf("listen: 127.0.0.1:0\nsnapshot: ''\ntls: {mode: none}\npolicy: ''\naudit: {dir: %s/audit-%s}\n", c.data, name))
}

// startWith adds lines to its broker.yaml.
func (c *controllers) startWith(name, data, socket, more string) *controllerHost {
	c.t.Helper()
	wasBuilt.Store(true)
	dir, err := built()
	if err != nil {
		c.t.Fatal(err)
	}
	h := &controllerHost{socket: socket}
	config := write(c.t, fmt.Sprintf("cluster: hpc\ndata_dir: %s\nsocket: %s\nslurm: {user: root, bin_dir: /none}\netcd: {endpoints: ['%s']}\n%s", data, h.socket, c.etcd, more))
	h.Cmd = exec.Command(filepath.Join(dir, "kernel-broker"), "--config", config)
	h.Stdout, h.Stderr = &h.out, &h.out
	h.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when this test is killed
	if err := h.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if h.ProcessState == nil {
			_ = h.Process.Kill()
			_ = h.Wait()
		}
		if c.t.Failed() {
			text := h.out.String()
			c.t.Logf("%s: %s", name, text[max(0, len(text)-4000):])
		}
	})
	return h
}

func (h *controllerHost) name() string { return fmt.Sprintf(" pid %d,", h.Process.Pid) }

func (c *controllers) signal(h *controllerHost, s syscall.Signal) {
	c.t.Helper()
	if err := h.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// come waits until something is so.
func (c *controllers) come(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("it never came that %s", what)
		}
	}
}

// acts waits until a broker acts and serves.
func (c *controllers) acts(h *controllerHost) {
	c.t.Helper()
	c.come("the broker"+h.name()+" acts", func() bool {
		holder, err := c.kept.Acting(c.t.Context())
		return err == nil && strings.Contains(holder, h.name())
	})
	c.come("the broker"+h.name()+" serves", func() bool {
		conn, err := net.Dial("unix", h.socket)
		return err == nil && conn.Close() == nil
	})
}

func (c *controllers) waits(h *controllerHost) {
	c.t.Helper()
	c.come("the broker"+h.name()+" waits", func() bool {
		all, err := c.kept.Waiting(c.t.Context())
		return err == nil && slices.ContainsFunc(all, func(text string) bool { return strings.Contains(text, h.name()) })
	})
}

// A broker that hangs is followed while it hangs. When it goes on it acts no more, serves nobody, and waits in line; it acts
// again when the other is killed. One that is asked to end leaves the line at once.
func TestHungBrokerIsFollowed(t *testing.T) {
	c := newControllers(t)
	first := c.start("one")
	c.acts(first)
	second := c.start("two")
	c.waits(second)

	c.signal(first, syscall.SIGSTOP)
	c.acts(second)
	c.signal(first, syscall.SIGCONT)
	c.waits(first)
	if conn, err := net.Dial("unix", first.socket); err == nil {
		t.Errorf("a broker that waits serves: %v", conn.Close())
	}
	if holder, err := c.kept.Acting(t.Context()); err != nil || !strings.Contains(holder, second.name()) {
		t.Errorf("%q acts, %v", holder, err)
	}

	c.signal(second, syscall.SIGKILL)
	c.acts(first)
	c.signal(first, syscall.SIGTERM)
	if err := first.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if holder, err := c.kept.Acting(t.Context()); err != nil || holder != "" {
		t.Errorf("%q acts after its end, %v", holder, err)
	}
}
