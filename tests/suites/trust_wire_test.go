// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// proxyVariable has this program be a proxy in front of the broker instead of
// running its tests.
const proxyVariable = "KB_SUITE_PROXY"

// proxy relays connections and flips a bit of the answer after a number of bytes, a number of times.
type proxy struct {
	Listen, Target string
	Every          int64
	Times          int32

	passed atomic.Int64
	left   atomic.Int32
}

// flipped is printed for each changed bit.
const flipped = "a bit was changed"

func (p *proxy) run() error {
	p.left.Store(p.Times)
	l, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return err
	}
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		go p.pass(near)
	}
}

func (p *proxy) pass(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", p.Target)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near) // its end is this connection's
		_ = far.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := far.Read(buffer)
		total := p.passed.Add(int64(n))
		if n > 0 && total/p.Every > (total-int64(n))/p.Every && p.left.Add(-1) >= 0 {
			buffer[n/2] ^= 1
			fmt.Println(flipped)
		}
		if _, broken := near.Write(buffer[:n]); broken != nil || err != nil {
			return
		}
	}
}

// lockedText is written by one and read by another.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}

// wire: bits of the kernel change on their way to n1. TLS detects that, the fetch resumes, and the job gets the right
// kernel.
func (c *trust) wire() {
	const address, times = "10.77.0.1:7441", 3
	c.tool()
	text, err := json.Marshal(&proxy{Listen: address, Target: overNetwork, Every: 1 << 20, Times: times})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var said lockedText
	ended := make(chan error, 1)
	go func() {
		exit, err := c.Run(ctx, "root", lab.Streams{Out: &said, Err: &said}, "env", proxyVariable+"="+string(text), toolPath)
		ended <- fmt.Errorf("the proxy ended with %d: %w", exit, err)
	}()
	n1 := c.Node(1)
	c.rewrite(n1.Conf("agent.yaml"), "broker: "+overNetwork, "broker: "+address)
	if r, err := n1.Shell(c.ctx, "find /var/cache/kernel-broker -type f -exec rm -f {} +"); err != nil || r.Exit != 0 {
		c.t.Fatalf("n1's cache: %v %s", err, r.Stderr)
	}
	if err := n1.KillAgent(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	id := c.sbatch("alice", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	c.waitJob(id, "COMPLETED")
	c.ranOn("alice", id, "mitgcm", 1)
	if got := said.count(flipped); got != times {
		c.t.Errorf("%d of %d bits were changed: the test is void", got, times)
	}
	c.settled()
	c.rewrite(n1.Conf("agent.yaml"), "broker: "+address, "broker: "+overNetwork)
	if err := n1.KillAgent(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	cancel()
	c.t.Log(<-ended)
	c.connected("n1 without the proxy", map[string]bool{"n1": true, "n2": true})
}

// beProxy is the main function of the proxy process.
func beProxy(text string) {
	var p proxy
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.run()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
