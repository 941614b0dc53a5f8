// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

// proxy relays between a client and a server and can drop the replies.
type proxy struct {
	listener net.Listener
	target   string
	mute     atomic.Bool
	mu       sync.Mutex
	conns    []net.Conn
	group    sync.WaitGroup
}

func newProxy(t *testing.T, endpoint string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: strings.TrimPrefix(endpoint, "unix://")}
	p.group.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.group.Wait()
	})
	return p
}

func (p *proxy) endpoint() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.group.Go(func() { p.copy(server, client, false) })
		p.group.Go(func() { p.copy(client, server, true) })
	}
}

func (p *proxy) copy(to, from net.Conn, replies bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if replies && p.mute.Load() {
			n = 0
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func closing(t *testing.T, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLostReply: the commit reaches the server and its answer is lost, by silence or by a cut connection. The client
// reports an unknown outcome, does not send it twice, and a repetition conflicts.
func TestLostReply(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	for _, how := range []string{"silence", "cut"} {
		t.Run(how, func(t *testing.T) {
			p := newProxy(t, endpoint)
			cluster := "lost-" + how
			const timeout = 5 * time.Second // also for the commit to arrive
			s := openCluster(t, p.endpoint(), cluster, timeout)
			closing(t, s)
			direct := openCluster(t, endpoint, cluster, 0)
			closing(t, direct)

			p.mute.Store(true)
			var cutting sync.WaitGroup
			if how == "cut" {
				cutting.Go(func() { arrived(t, direct, "a"); p.cut() })
			}
			write := store.Write{Key: "a", Value: []byte("1")}
			began := time.Now()
			_, err := s.Commit(t.Context(), write)
			took := time.Since(began)
			cutting.Wait()
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("Commit = %v, want ErrUnavailable", err)
			}
			if took > timeout+10*time.Second {
				t.Errorf("Commit took %v", took)
			}
			if r, err := direct.Get(t.Context(), "a"); err != nil || string(r.Value) != "1" {
				t.Fatalf("the commit did not arrive, so nothing was tested: %q, %v", r.Value, err)
			}
			p.mute.Store(false)
			p.cut()
			waitServed(t, s, "a")
			if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrConflict) {
				t.Errorf("repeated Commit = %v, want a conflict", err)
			}
		})
	}
}

// TestCommitIsNotRepeated counts arrivals: an unconditional commit whose answer is lost is applied once.
func TestCommitIsNotRepeated(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	p := newProxy(t, endpoint)
	s := openCluster(t, p.endpoint(), "once", 20*time.Second)
	closing(t, s)
	direct := openCluster(t, endpoint, "once", 0)
	closing(t, direct)
	_, at, err := direct.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	p.mute.Store(true)
	var cutting sync.WaitGroup
	cutting.Go(func() { arrived(t, direct, "a"); p.cut(); p.mute.Store(false) })
	defer cutting.Wait()
	if _, err := s.Commit(t.Context(), store.Write{Key: "a", Expect: store.AnyRevision}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("Commit = %v", err)
	}
	time.Sleep(500 * time.Millisecond) // time for a wrong second attempt
	r, err := direct.Get(t.Context(), "a")
	if err != nil || r.Revision != at+1 {
		t.Errorf("key at revision %d, %v; want %d", r.Revision, err, at+1)
	}
	if _, now, err := direct.List(t.Context(), ""); err != nil || now != at+1 {
		t.Errorf("store at revision %d, %v; want %d", now, err, at+1)
	}
}

func TestUnreachableServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts and stays silent
	if err != nil {
		t.Fatal(err)
	}
	closing(t, listener)
	for _, endpoint := range []string{"http://" + listener.Addr().String(), "http://127.0.0.1:1", "unix:///nonexistent/socket"} {
		began := time.Now()
		s, err := etcdstore.Open(t.Context(), etcdstore.Config{
			Endpoints: []string{endpoint}, Cluster: "c", Timeout: 500 * time.Millisecond, Logger: quiet})
		if !errors.Is(err, store.ErrUnavailable) || s != nil {
			t.Errorf("Open(%s) = %v", endpoint, err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("Open(%s) took %v", endpoint, took)
		}
	}
	if _, err := etcdstore.Open(t.Context(), etcdstore.Config{Cluster: "c"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open without endpoints = %v", err)
	}
}

// arrived waits until a key is there.
func arrived(t *testing.T, s store.Store, key string) {
	for t.Context().Err() == nil {
		if _, err := s.Get(t.Context(), key); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func waitServed(t *testing.T, s store.Store, key string) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = s.Get(t.Context(), key); err == nil {
			return
		}
	}
	t.Fatalf("the server is back and the client does not see it: %v", err)
}

// TestNamespaces: namespaces with a common prefix do not see each other.
func TestNamespaces(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	for _, cluster := range []string{"ab", "a"} {
		s := openCluster(t, endpoint, cluster, 0)
		closing(t, s)
		if records, _, err := s.List(t.Context(), ""); err != nil || len(records) != 0 {
			t.Errorf("cluster %s begins with %v, %v", cluster, records, err)
		}
		if _, err := s.Commit(t.Context(), store.Write{Key: "k"}); err != nil {
			t.Errorf("cluster %s: %v", cluster, err)
		}
	}
}

func TestNamespace(t *testing.T) {
	for _, bad := range []string{"", "a/b", "../x", "-a", "a-", strings.Repeat("x", 65), "ü"} {
		if prefix, err := etcdstore.Namespace("", bad); err == nil {
			t.Errorf("cluster name %q gives %q", bad, prefix)
		}
	}
	for _, bad := range []string{"/", "/a/", "//a", "/a//b", "/a b", "ü", strings.Repeat("x", 129)} {
		if prefix, err := etcdstore.Namespace(bad, "hpc"); err == nil {
			t.Errorf("prefix %q gives %q", bad, prefix)
		}
	}
	for prefix, want := range map[string]string{"": "/kernel-broker/hpc-1/", "/kernel-broker": "/kernel-broker/hpc-1/", "/sites/hpc": "/sites/hpc/hpc-1/", "kb": "kb/hpc-1/"} {
		if got, err := etcdstore.Namespace(prefix, "hpc-1"); err != nil || got != want {
			t.Errorf("Namespace(%q) = %q, %v", prefix, got, err)
		}
	}
}

// TestCloseEndsGoroutines checks only goroutines that the store starts, not the server's.
func TestCloseEndsGoroutines(t *testing.T) {
	endpoint := embedded(t, t.TempDir())
	warm := open(t, endpoint)
	if err := warm.Close(); err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	s := open(t, endpoint)
	if _, err := s.Commit(t.Context(), store.Write{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var left error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		// The server's own goroutines for these connections end when it notices.
		if left = goleak.Find(before, serverSide); left == nil {
			return
		}
	}
	t.Error(left)
}

// serverSide are goroutines of the embedded server for closed connections; they end when the server notices.
var serverSide = goleak.IgnoreAnyFunction("google.golang.org/grpc.(*Server).serveStreams")
