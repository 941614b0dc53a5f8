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

// asCrowd has the test program be those who connect, in a process of its own:
// one process may not have enough files for both ends.
const asCrowd = "KERNEL_BROKER_TEST_AS_CROWD"

func TestMain(m *testing.M) {
	if what := os.Getenv(asCrowd); what != "" {
		if err := beCrowd(what); err != nil {
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

// crowd are many who connect, from as many addresses of this host as it takes to
// have OfAddress from each, and say Words.
type crowd struct {
	Address      string
	N, OfAddress int
	Words        []byte

	t    *testing.T
	ask  io.Writer
	tell *bufio.Scanner
}

// gather returns when all have tried.
func gather(t *testing.T, c crowd) *crowd {
	t.Helper()
	what, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asCrowd+"="+string(what))
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
			t.Error("those who connect:", err)
		}
	})
	c.t, c.ask, c.tell = t, in, bufio.NewScanner(out)
	if got := c.number(); got < c.N {
		// Never silently: what is claimed is what was done.
		t.Logf("%d of %d could be opened (limit of open files)", got, c.N)
		if got < c.N/2 {
			t.Fatal("too few for a crowd")
		}
	}
	return &c
}

func (c *crowd) number() (n int) {
	c.t.Helper()
	if !c.tell.Scan() {
		c.t.Fatal("those who connect say nothing: ", c.tell.Err())
	}
	if _, err := fmt.Sscan(c.tell.Text(), &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// held is how many connections the server holds now.
func (c *crowd) held() int {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.ask); err != nil {
		c.t.Fatal(err)
	}
	return c.number()
}

// beCrowd connects, says how many it tried, and for each line that it is given
// how many of them are open.
func beCrowd(what string) error {
	var c crowd
	if err := json.Unmarshal([]byte(what), &c); err != nil {
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
					continue // hung up on before it was told to have a connection
				}
				_, _ = conn.Write(c.Words) // who was hung up on cannot
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

// settled is what held says when it no longer changes.
func (c *crowd) settled() int {
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
