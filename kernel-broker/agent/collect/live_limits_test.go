// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

const owner, otherUser = 4711, 4712

// liveClients is a server that accepts connections under any uid.
type liveClients struct {
	*liveServer
	path  string
	count int
}

func newLiveClients(t *testing.T) *liveClients {
	t.Helper()
	c := &liveClients{path: filepath.Join(t.TempDir(), "s")}
	l, err := local.Listen(c.path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	// The name of a client's socket encodes its uid.
	l.PeerUID = func(conn *net.UnixConn) (uid uint32, err error) {
		name := conn.RemoteAddr().String()
		_, err = fmt.Sscan(name[strings.LastIndex(name, "-")+1:], &uid)
		return uid, err
	}
	c.liveServer = newLiveServer()
	c.serve(l, owner)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	c.Publish([]byte("figures\n"))
	return c
}

// come connects as a user and reports whether figures arrive.
func (c *liveClients) come(t *testing.T, uid uint32) (conn *net.UnixConn, served bool) {
	t.Helper()
	c.count++
	name := fmt.Sprintf("@kernel-broker-live-%d-%d-%d", os.Getpid(), c.count, uid)
	conn, err := net.DialUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}, &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	return conn, line == "figures\n"
}

// A user's connections are limited to eight, and closed ones free their slot; root has its own limit.
func TestLiveConnectionLimits(t *testing.T) {
	if os.Geteuid() == owner {
		t.Skip("the agent's own user is the one of this test")
	}
	c := newLiveClients(t)
	var held []*net.UnixConn
	for range 100 {
		if conn, served := c.come(t, owner); served {
			held = append(held, conn)
		}
	}
	c.mu.Lock()
	clients := len(c.clients)
	c.mu.Unlock()
	if len(held) != local.MaxPerUser || clients != local.MaxPerUser {
		t.Fatalf("%d of 100 connections of the owner are served, %d clients", len(held), clients)
	}
	if _, served := c.come(t, 0); !served {
		t.Error("root finds no place beside the owner's connections")
	}
	if _, served := c.come(t, otherUser); served {
		t.Error("another user gets figures")
	}
	if err := held[0].Close(); err != nil {
		t.Fatal(err)
	}
	// The server notices a closed connection when it writes.
	for {
		c.Publish([]byte("figures\n"))
		if _, served := c.come(t, owner); served {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, served := c.come(t, owner); served {
		t.Error("one slot was released, and two were acquired")
	}
}

// A node that is short of descriptors for a moment has figures after it.

// The broker passes on lines of up to 2 MiB, without a word of a longer one.
func TestLineOfALargeNode(t *testing.T) {
	const cpus, sources = 512, 100
	var result profiling.Result
	result.Noise = &profiling.Noise{}
	for cpu := range uint32(cpus) {
		one := profiling.CPUNoise{Node: "n1", CPU: cpu, WantedNS: 1e12, LostNS: 1e9}
		for i := range sources {
			one.Sources = append(one.Sources, profiling.NoiseSource{Kind: profiling.NoiseThread, Name: fmt.Sprintf("kworker/%d:%d", cpu, i),
				Count: 1000, NS: 1e6, MostNS: 1e5, At: time.Now(), Times: profiling.Histogram{0, 0, 0, 0, 0, 0, 0, 0, 1, 900, 99}})
		}
		result.Noise.CPUs = append(result.Noise.CPUs, one)
	}
	line, err := liveLine(result, false)
	if err != nil || len(line) > 2<<20 {
		t.Errorf("a line of %d bytes, %v", len(line), err)
	}
	var live profiling.Live
	if err := json.Unmarshal(line, &live); err != nil || live.Result.Noise.Left() != result.Noise.Left() {
		t.Errorf("left %v, want %v, %v", live.Result.Noise.Left(), result.Noise.Left(), err)
	}
	if len(result.Noise.CPUs[0].Sources) != sources {
		t.Error("the result itself was cut")
	}
}
