// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// loadEnv makes the test program open connections as a load, in a process of its
// own: one process may not have enough files for both ends.
const loadEnv = "KERNEL_BROKER_TEST_LOAD"

func TestMain(m *testing.M) {
	if text := os.Getenv(loadEnv); text != "" {
		if err := runLoad(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	before := openFiles()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if left := leftOpen(before); code == 0 && len(left) > 0 {
			fmt.Fprintln(os.Stderr, "left open:", left)
			code = 1
		}
		os.Exit(code)
	}))
}

// openFiles are this process's sockets, pipes and files, as the kernel names
// them. What the runtime itself has is of other kinds.
func openFiles() map[string]bool {
	open := map[string]bool{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return open
	}
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(name, "anon_inode:") {
			open[name] = true
		}
	}
	return open
}

// leftOpen waits a while for what is being closed.
func leftOpen(before map[string]bool) (left []string) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for name := range openFiles() {
			if !before[name] && !strings.HasPrefix(name, "/proc/") {
				left = append(left, name)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// load is N connections to Address that send Payload, OfAddress of them from each
// address of this host.
type load struct {
	Address      string
	N, OfAddress int
	Payload      []byte

	t      *testing.T
	input  io.Writer
	output *bufio.Scanner
}

// startLoad returns when each connection was tried.
func startLoad(t *testing.T, c load) *load {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error("load:", err)
		}
	})
	c.t, c.input, c.output = t, in, bufio.NewScanner(out)
	if got := c.number(); got < c.N {
		t.Logf("%d of %d could be opened (limit of open files)", got, c.N)
		if got < c.N/2 {
			t.Fatal("too few for a load")
		}
	}
	return &c
}

func (c *load) number() (n int) {
	c.t.Helper()
	if !c.output.Scan() {
		c.t.Fatal("load: no answer: ", c.output.Err())
	}
	if _, err := fmt.Sscan(c.output.Text(), &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// held is how many connections the server holds now.
func (c *load) held() int {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.input); err != nil {
		c.t.Fatal(err)
	}
	return c.number()
}

// runLoad connects, prints how many connections it tried, and for each line of its
// input how many of them are open.
func runLoad(text string) error {
	var c load
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return err
	}
	c.N = min(c.N, int(r.Cur)-100)
	open := make([]net.Conn, c.N)
	var dialling sync.WaitGroup
	for worker := range 32 {
		dialling.Go(func() {
			for i := worker; i < c.N; i += 32 {
				host := i / c.OfAddress
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(host>>8), byte(host))}, Timeout: soon}
				conn, err := dialer.Dial("tcp", c.Address)
				if err != nil {
					continue // closed before it was established
				}
				_, _ = conn.Write(c.Payload) // fails on a closed one
				open[i] = conn
			}
		})
	}
	dialling.Wait()
	fmt.Println(c.N)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		held := 0
		for _, conn := range open {
			if conn != nil && isOpen(conn) {
				held++
			}
		}
		fmt.Println(held)
	}
	return nil
}

// isOpen reads what there is, and does not wait for more.
func isOpen(conn net.Conn) (open bool) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	buffer := make([]byte, 4096)
	_ = raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Read(int(fd), buffer)
			if err == unix.EINTR || err == nil && n > 0 {
				continue
			}
			open = err == unix.EAGAIN
			return
		}
	})
	return open
}

// settled returns held when it no longer changes.
func (c *load) settled() int {
	before := -1
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		now := c.held()
		if now == before {
			return now
		}
		before = now
	}
	return before
}
