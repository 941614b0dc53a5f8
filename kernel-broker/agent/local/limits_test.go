// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// patient is an agent that never lets slurmd start.
type patient struct{ fakeAgent }

func (*patient) WaitReady(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// clients is a server that accepts connections under any uid.
type clients struct {
	t      *testing.T
	socket string
	of     func(uid uint32) int
	held   map[uint32]int
	count  int
	log    bytes.Buffer // of one goroutine, and read when it has answered
}

// name of a client's socket encodes its uid.
func (c *clients) name(uid uint32) string {
	c.count++
	return fmt.Sprintf("@kernel-broker-test-%d-%d-%d", os.Getpid(), c.count, uid)
}

func newClients(t *testing.T, errs ...error) *clients {
	t.Helper()
	c := &clients{t: t, socket: filepath.Join(t.TempDir(), "s"), held: map[uint32]int{}}
	server, err := NewServer(c.socket, &patient{}, slog.New(slog.NewTextHandler(&c.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.of, server.socket.listener = func(uid uint32) int {
		users, _ := server.socket.connections.users.Held(fmt.Sprint(uid))
		trusted, _ := server.socket.connections.trusted.Held(fmt.Sprint(uid))
		return users + trusted
	}, &failingListener{UnixListener: server.socket.listener.(*net.UnixListener), errs: errs}
	server.socket.PeerUID = uidInName
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *clients) dial(uid uint32) *net.UnixConn {
	c.t.Helper()
	conn, err := net.DialUnix("unix", &net.UnixAddr{Name: c.name(uid), Net: "unix"}, &net.UnixAddr{Name: c.socket, Net: "unix"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hold has a user hold a connection until the test closes it.
func (c *clients) hold(uid uint32) *net.UnixConn {
	c.t.Helper()
	conn := c.dial(uid)
	if _, err := fmt.Fprintf(conn, `{"op":"wait_ready","timeout_ms":%d}`+"\n", time.Hour.Milliseconds()); err != nil {
		c.t.Fatal(err)
	}
	c.held[uid]++
	return conn
}

// ask returns a user's answer after the user's connection slot is free again.
func (c *clients) ask(uid uint32, request string) string {
	c.t.Helper()
	conn := c.dial(uid)
	defer conn.Close()
	_, _ = fmt.Fprintln(conn, request) // a refused client may be too late to write
	line, err := readLine(conn)
	if err != nil {
		c.t.Fatalf("user %d: %v", uid, err)
	}
	for end := time.Now().Add(time.Minute); c.of(uid) > c.held[uid]; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("user %d keeps the slot of %s", uid, request)
		}
	}
	return string(line)
}

const (
	statusOf = `{"op":"status"}`
	endingOf = `{"op":"job_ending","job":12}`
)

// Users on a node, one or many, block neither each other nor root's epilog.
func TestConnectionLimitsPerUser(t *testing.T) {
	if os.Geteuid() == 1000 {
		t.Skip("the agent's own user is the one of this test")
	}
	c := newClients(t)
	served := func(what string, uid uint32, request, words string) {
		t.Helper()
		if answer := c.ask(uid, request); !strings.Contains(answer, words) {
			t.Errorf("%s: %s", what, answer)
		}
	}
	var held []*net.UnixConn
	for range MaxPerUser {
		held = append(held, c.hold(1000))
	}
	served("the ninth", 1000, statusOf, "user 1000 has 8 connections")
	served("another user", 1001, statusOf, `"node":"n1"`)
	served("root", 0, endingOf, `"kept":true`)
	for uid := uint32(2000); uid < 2000+maxUsers/MaxPerUser-1; uid++ {
		for range MaxPerUser {
			c.hold(uid)
		}
	}
	served("a user of many", 1001, statusOf, "64 connections of users")
	for range maxRoot - 1 {
		c.hold(0)
	}
	served("root among many", 0, endingOf, `"kept":true`)
	// A released slot can be used again.
	if err := held[0].Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if strings.Contains(c.ask(1001, statusOf), `"node":"n1"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the slot is not released")
		}
	}
}

// A hundred refusals of one user produce one log line.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	if os.Geteuid() == 4242 {
		t.Skip("the agent's own user is the one of this test")
	}
	c := newClients(t)
	for range MaxPerUser {
		c.hold(4242)
	}
	for range 100 {
		if answer := c.ask(4242, statusOf); !strings.Contains(answer, kb.ErrExhausted.Error()) {
			t.Fatal(answer)
		}
	}
	if lines := strings.Count(c.log.String(), "client refused"); lines != 1 {
		t.Errorf("%d lines: %s", lines, c.log.String())
	}
}

// The agent survives a temporary shortage of descriptors, and logs once why it accepts no client.
func TestAcceptErrorsAreRetried(t *testing.T) {
	c := newClients(t, syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED)
	if answer := c.ask(0, endingOf); !strings.Contains(answer, `"error":""`) {
		t.Error(answer)
	}
	if lines := strings.Count(c.log.String(), "clients of the agent's socket wait"); lines != 1 {
		t.Errorf("%d lines: %s", lines, c.log.String())
	}
}
