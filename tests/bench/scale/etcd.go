// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// members are an etcd of three, each the distribution's program in a process of its own, with the limits that it has by itself.
type members struct {
	dir       string
	endpoints []string
	peers     []string
	cmds      []*exec.Cmd
	client    *clientv3.Client
}

func newMembers(dir string, count int) (m *members, err error) {
	m = &members{dir: dir, cmds: make([]*exec.Cmd, count)}
	for range count {
		client, err := freeAddress()
		peer, perr := freeAddress()
		if err = errors.Join(err, perr); err != nil {
			return nil, err
		}
		m.endpoints, m.peers = append(m.endpoints, "http://"+client), append(m.peers, "http://"+peer)
	}
	m.client, err = clientv3.New(clientv3.Config{Endpoints: m.endpoints, Logger: zap.NewNop()})
	return m, err
}

func (m *members) name(i int) string { return fmt.Sprintf("m%d", i) }

// start runs a member, with what it had before.
func (m *members) start(i int) error {
	var all []string
	for j, peer := range m.peers {
		all = append(all, m.name(j)+"="+peer)
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.dir, m.name(i)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("etcd", "--name="+m.name(i), "--data-dir="+filepath.Join(m.dir, m.name(i)), "--listen-client-urls="+m.endpoints[i],
		"--advertise-client-urls="+m.endpoints[i], "--listen-peer-urls="+m.peers[i], "--initial-advertise-peer-urls="+m.peers[i],
		"--initial-cluster="+strings.Join(all, ","), "--auto-compaction-retention=1h")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is ours
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("etcd (Debian package etcd-server): %w", err)
	}
	m.cmds[i] = cmd
	return nil
}

func (m *members) kill(i int) {
	if m.cmds[i] != nil {
		_ = m.cmds[i].Process.Kill()
		_ = m.cmds[i].Wait() // it reports the kill
		m.cmds[i] = nil
	}
}

func (m *members) close() {
	for i := range m.cmds {
		m.kill(i)
	}
	_ = m.client.Close()
}

// leader is the number of the member that leads; an error is that one does not answer.
func (m *members) leader(ctx context.Context) (leader int, err error) {
	leader = -1
	for i, endpoint := range m.endpoints {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		status, err := m.client.Status(ctx, endpoint)
		cancel()
		if err != nil {
			return -1, err
		}
		if status.Header.MemberId == status.Leader {
			leader = i
		}
	}
	if leader < 0 {
		return -1, errors.New("no member of etcd leads")
	}
	return leader, nil
}

// wire passes a broker's connections to a member of etcd. One that is cut passes nothing, keeps what is open, and takes new
// connections: to its ends the other one is silent, as behind a switch without power.
type wire struct {
	net.Listener
	to string

	mu     sync.Mutex
	passes chan struct{} // closed while it passes
}

func newWire(endpoint string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{Listener: l, to: strings.TrimPrefix(endpoint, "http://"), passes: make(chan struct{})}
	close(w.passes)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(conn)
		}
	}()
	return w, nil
}

func (w *wire) endpoint() string { return "http://" + w.Addr().String() }

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passes = make(chan struct{})
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.passes)
}

// wait until it passes.
func (w *wire) wait() {
	w.mu.Lock()
	passes := w.passes
	w.mu.Unlock()
	<-passes
}

func (w *wire) carry(from net.Conn) {
	w.wait()
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		_ = from.Close() // as the member's host says that nobody listens
		return
	}
	go w.copy(to, from)
	w.copy(from, to)
}

// copy passes one direction, until either end is closed.
func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.wait()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
