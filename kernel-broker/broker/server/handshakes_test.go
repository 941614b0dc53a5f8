// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// inTurn is a source that counts how many handshakes compute at a time, and has them
// wait while it is locked.
type inTurn struct {
	mtls.Source
	sync.RWMutex
	now, most, all atomic.Int64
}

func (s *inTurn) Certificate() (*tls.Certificate, error) {
	s.all.Add(1)
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.RLock()
	defer s.RUnlock()
	time.Sleep(time.Millisecond) // others would begin meanwhile
	return s.Source.Certificate()
}

// taking makes a source that counts, and limits for it.
func taking(into *inTurn, change func(*server.Limits)) func(*server.Options) {
	return func(o *server.Options) {
		into.Source = o.TLS.Source
		o.TLS.Source = into
		o.Limits = server.DefaultLimits()
		change(&o.Limits)
	}
}

// asks opens a connection, and makes a call on it.
func (s *secured) asks(source mtls.Source) error {
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(mtls.ClientConfig(source, "lab"))),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: soon}))
	if err != nil {
		return err
	}
	_, err = api.NewCatalogServiceClient(conn).GetSnapshot(s.t.Context(), &api.GetSnapshotRequest{})
	_ = conn.Close()
	return err
}

// So many compute at a time, and all others wait: nobody is refused.
func TestHandshakesTakeTurns(t *testing.T) {
	t.Parallel()
	var source inTurn
	s := serveTLS(t, time.Hour, taking(&source, func(l *server.Limits) { l.Handshakes, l.Unauthenticated = 2, 3 }))
	node := s.enrol("n1")
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			if err := s.asks(node); err != nil {
				t.Errorf("one of many: %v", err)
			}
		})
	}
	all.Wait()
	if most := source.most.Load(); most > 2 {
		t.Errorf("%d handshakes computed at a time, 2 may", most)
	}
	if s.lines("connection refused") > 0 || s.lines("caller refused") > 0 {
		t.Errorf("somebody was refused: %s", s.log)
	}
}

// stall begins a handshake, and takes no part in it from then on.
func (s *secured) stall() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	begun := make(chan struct{})
	go func() { _ = tls.Client(mute{conn, begun}, mtls.PinnedConfig(s.authority.Fingerprint())).Handshake() }() //nolint:noctx // it ends with its first read
	<-begun
	return conn
}

// mute is a connection whose reads end, and say so before.
type mute struct {
	net.Conn
	begun chan<- struct{}
}

func (m mute) Read([]byte) (int, error) {
	close(m.begun)
	return 0, net.ErrClosed
}

func (mute) Close() error { return nil }

// Who begins a handshake and does not go on has no turn: a few who do so keep nobody
// out. They are there to the end, and then the server does not wait for them.
func TestStalledHandshakes(t *testing.T) {
	t.Parallel()
	var source inTurn
	s := serveTLS(t, time.Hour, taking(&source, func(l *server.Limits) { l.Handshakes, l.Handshake = 1, time.Hour }))
	node := s.enrol("n1")
	var stalled []net.Conn
	for range 20 {
		stalled = append(stalled, s.stall())
	}
	for range 5 {
		if err := s.asks(node); err != nil {
			t.Errorf("a node beside them: %v", err)
		}
	}
	for i, conn := range stalled {
		if !isOpen(conn) {
			t.Errorf("stalled handshake %d was ended", i)
		}
	}
}

// A handshake that gets no turn ends, and says why.
func TestNoTurnInTime(t *testing.T) {
	t.Parallel()
	var source inTurn
	s := serveTLS(t, time.Hour, taking(&source, func(l *server.Limits) { l.Handshakes, l.HandshakeWait = 1, 50*time.Millisecond }))
	node := s.enrol("n1")
	source.Lock()
	first := make(chan error, 1)
	go func() { first <- s.asks(node) }()
	until(t, "a handshake computes", func() bool { return source.now.Load() > 0 })
	cut(t, "one without a turn", s.stall())
	if s.lines("no turn within 50ms") == 0 {
		t.Errorf("the log says nothing: %s", s.log)
	}
	source.Unlock()
	if err := <-first; err != nil {
		t.Errorf("the one whose turn it was: %v", err)
	}
}

// Nothing is computed for clients that did not wait for their turn, as former agents
// wait for five seconds.
func TestClientsThatDidNotWait(t *testing.T) {
	t.Parallel()
	var source inTurn
	s := serveTLS(t, time.Hour, taking(&source, func(l *server.Limits) { l.Handshakes = 1 }))
	node := s.enrol("n1")
	source.Lock()
	first := make(chan error, 1)
	go func() { first <- s.asks(node) }()
	until(t, "a handshake computes", func() bool { return source.now.Load() > 0 })
	before := source.all.Load()
	for range 20 {
		_ = s.stall().Close()
	}
	source.Unlock()
	if err := <-first; err != nil {
		t.Errorf("the one whose turn it was: %v", err)
	}
	if err := s.asks(node); err != nil { // behind them
		t.Errorf("the next one: %v", err)
	}
	if more := source.all.Load() - before; more != 1 {
		t.Errorf("%d handshakes were computed, one client was there", more)
	}
}

// Connections wait for a place in turn, and for a while.
func TestNoPlaceInTime(t *testing.T) {
	t.Parallel()
	var source inTurn
	s := serveTLS(t, time.Hour, taking(&source, func(l *server.Limits) {
		l.Unauthenticated, l.Handshake, l.HandshakeWait = 1, time.Hour, 50*time.Millisecond
	}))
	var two []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		two = append(two, conn)
	}
	until(t, "one of two has no place", func() bool { return isOpen(two[0]) != isOpen(two[1]) })
	if s.lines("connection refused: too many") == 0 {
		t.Errorf("the log says nothing: %s", s.log)
	}
	for _, conn := range two {
		_ = conn.Close()
	}
	nobody := mtls.NewFiles(mtls.Paths{Authorities: s.authorities(t)})
	until(t, "the place is free", func() bool { return s.asks(nobody) == nil })
}

// authorities is a file of those that the broker trusts.
func (s *secured) authorities(t *testing.T) string {
	t.Helper()
	list, err := s.authority.Authorities()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, mtls.EncodeCertificates(list), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
