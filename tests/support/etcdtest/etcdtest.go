// SPDX-License-Identifier: Apache-2.0

// Package etcdtest runs an etcd as sites do: another project's build in its own process, with TLS, users and limits.
package etcdtest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Options of a server.
type Options struct {
	// Authority makes the server speak TLS, and accept clients of this authority only. Nil: plain HTTP.
	Authority *Authority
	// Names of the server's certificate; none: its address.
	Names []string
	// Args are further options of etcd.
	Args []string
}

// Server is the distribution's etcd.
type Server struct {
	Endpoint string

	t         *testing.T
	o         Options
	dir, peer string
	cmd       *exec.Cmd
	log       *os.File
}

// Start starts a server and waits until it serves. Without etcd on this host the test is skipped.
func Start(t *testing.T, o Options) *Server {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("etcd (Debian package etcd-server) must be installed in CI: %v", err)
		}
		t.Skipf("needs Debian's package etcd-server as a foreign server: %v", err)
	}
	addresses := freeAddresses(t, 2)
	s := &Server{t: t, o: o, dir: t.TempDir(), Endpoint: "http://" + addresses[0], peer: "http://" + addresses[1]}
	if o.Authority != nil {
		s.Endpoint = "https://" + addresses[0]
		s.certify()
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	s.log = log
	t.Cleanup(func() {
		s.Kill()
		_ = log.Close()
	})
	s.Restart(o.Args...)
	return s
}

// Trust starts the server again with the certificates of another authority.
func (s *Server) Trust(a *Authority) {
	s.t.Helper()
	s.o.Authority = a
	s.certify()
	s.Restart(s.o.Args...)
}

func (s *Server) certify() {
	s.t.Helper()
	names := s.o.Names
	if len(names) == 0 {
		host, _, err := net.SplitHostPort(strings.TrimPrefix(s.Endpoint, "https://"))
		if err != nil {
			s.t.Fatal(err)
		}
		names = []string{host}
	}
	s.o.Authority.Issue(s.t, s.dir, "server", names...)
}

// Restart starts the server again, with other options, and waits until it serves.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Kill()
	// One member need not wait for its election.
	s.cmd = exec.Command("etcd", append([]string{"--name=foreign", "--heartbeat-interval=20", "--election-timeout=100", "--data-dir=" + filepath.Join(s.dir, "data"),
		"--listen-client-urls=" + s.Endpoint, "--advertise-client-urls=" + s.Endpoint,
		"--listen-peer-urls=" + s.peer, "--initial-advertise-peer-urls=" + s.peer, "--initial-cluster=foreign=" + s.peer}, args...)...)
	if s.o.Authority != nil {
		s.cmd.Args = append(s.cmd.Args, "--client-cert-auth", "--trusted-ca-file="+s.o.Authority.File,
			"--cert-file="+filepath.Join(s.dir, "server.pem"), "--key-file="+filepath.Join(s.dir, "server.key"))
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when this test is killed
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := s.Client("")
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		_, err = client.Status(ctx, s.Endpoint)
		cancel()
		if err == nil {
			return
		}
	}
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	s.t.Fatalf("%v\n%s", err, text)
}

// Kill ends the server at once.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it reports the kill
	s.cmd = nil
}

// Client is an administrator's; of a user, whose password is his name, if one is named.
func (s *Server) Client(user string) *clientv3.Client {
	s.t.Helper()
	c := clientv3.Config{Endpoints: []string{s.Endpoint}, DialTimeout: 10 * time.Second, Username: user, Password: user, Logger: zap.NewNop()}
	if a := s.o.Authority; a != nil {
		c.TLS = a.Client(s.t)
	}
	client, err := clientv3.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Users turns authentication on. Each user has his name as password, and may read, and write if so, what is below a prefix.
func (s *Server) Users(users ...User) {
	s.t.Helper()
	client, ctx := s.Client(""), s.t.Context()
	do := func(_ any, err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	do(client.UserAdd(ctx, "root", "root"))
	do(client.UserGrantRole(ctx, "root", "root"))
	for _, u := range users {
		do(client.UserAdd(ctx, u.Name, u.Name))
		do(client.RoleAdd(ctx, u.Name))
		do(client.RoleGrantPermission(ctx, u.Name, u.Prefix, clientv3.GetPrefixRangeEnd(u.Prefix), u.Permission))
		do(client.UserGrantRole(ctx, u.Name, u.Name))
	}
	do(client.AuthEnable(ctx))
}

// User of etcd.
type User struct {
	Name, Prefix string
	Permission   clientv3.PermissionType
}

// Rights of a user.
const (
	Read      = clientv3.PermissionType(clientv3.PermRead)
	Write     = clientv3.PermissionType(clientv3.PermWrite)
	ReadWrite = clientv3.PermissionType(clientv3.PermReadWrite)
)

// freeAddresses returns addresses of a loopback address that only this process uses: on 127.0.0.1 another process may
// take the port first.
func freeAddresses(t *testing.T, n int) (free []string) {
	t.Helper()
	own := net.IPv4(127, byte(64+os.Getpid()>>16&63), byte(os.Getpid()>>8), byte(os.Getpid()))
	for range n {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: own})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		free = append(free, listener.Addr().String())
	}
	return free
}

// All keys.
func All(op *clientv3.Op) {
	clientv3.WithPrefix()(op)
}
