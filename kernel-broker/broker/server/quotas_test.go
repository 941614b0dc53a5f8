// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

// countedBroker is a broker whose decodes by munged are counted.
type countedBroker struct {
	*fixture
	munged *mungetest.Daemon
	asked  atomic.Int64
}

type countedDecoder struct {
	*munge.Client
	asked *atomic.Int64
}

func (n countedDecoder) Decode(ctx context.Context, text string) (credential.Decoded, error) {
	n.asked.Add(1)
	return n.Client.Decode(ctx, text)
}

// serveBursts limits users and addresses to a burst, which time does not refill.
func serveBursts(t *testing.T, userBurst, addressBurst int) *countedBroker {
	t.Helper()
	s := &countedBroker{munged: mungetest.Start(t)}
	verifier := credential.NewVerifier(credential.Options{Cluster: cluster,
		Decoder: countedDecoder{munge.New(s.munged.Socket), &s.asked}})
	limited := tight(func(l *server.Limits) {
		l.UserRate, l.UserBurst = 1e-4, userBurst
		l.AddressRate, l.AddressBurst = 1e-4, addressBurst
	})
	s.fixture = serve(t, func(o *server.Options) {
		limited(o)
		o.Verifier = verifier
	}, both)
	return s
}

// from dials from one of this host's own addresses.
func from(address string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		return dialer.DialContext(ctx, "tcp", target)
	})
}

func (s *countedBroker) by(t *testing.T, uid uint32, address string) *grpc.ClientConn {
	return dial(t, s.address, append(proof(s.address, s.munged.As(uid)), from(address))...)
}

// junk calls with what is no credential.
func junk(t *testing.T, conn *grpc.ClientConn) error {
	ctx := metadata.AppendToOutgoingContext(t.Context(), credential.Header, "MUNGE:AAAA:")
	_, err := api.NewCatalogServiceClient(conn).ListProfiles(ctx, &api.ListProfilesRequest{})
	return err
}

// Slurm uses munged, too: what an unauthenticated client sends to it through the
// broker is limited by the client's address, and others are served meanwhile.
func TestJunkDoesNotReachMunged(t *testing.T) {
	const burst = 20
	s := serveBursts(t, 1000, burst)
	anonymous := dial(t, s.address, from("127.0.0.1"))
	var others atomic.Int64
	var flood sync.WaitGroup
	for range 32 {
		flood.Go(func() {
			for range 100 {
				err := junk(t, anonymous)
				if code := status.Code(err); code != codes.Unauthenticated && code != codes.ResourceExhausted {
					t.Errorf("junk: %v", err)
				}
			}
		})
	}
	flood.Go(func() {
		alice := s.by(t, plainUser, "127.0.0.2")
		for range 20 {
			if err := list(t, alice); err != nil {
				t.Errorf("a user at another address: %v", err)
			}
			others.Add(1)
		}
	})
	flood.Wait()
	if asked := s.asked.Load() - others.Load(); asked < 1 || asked > burst+8 {
		t.Errorf("munged was asked %d times for 3200 calls of junk, at most %d are for one address", asked, burst)
	}
	err := list(t, s.by(t, carol, "127.0.0.1"))
	want(t, "a user at the same address", err, codes.ResourceExhausted, "127.0.0.1: more than 0.0001 failed credentials a second, and 20 at once; retry in")
	if wait, said := client.RetryAfter(err); !said || wait <= 0 {
		t.Errorf("told to retry in %v, %v", wait, said)
	}
	if lines := s.lines("code=ResourceExhausted"); lines > 40 {
		t.Errorf("%d lines of the log", lines)
	}
	s.served(t)
}

// A user at an address that sends junk is served, within the rate of the address.
func TestBesideJunk(t *testing.T) {
	s := serveBursts(t, 1000, 5)
	anonymous := dial(t, s.address, from("127.0.0.1"))
	for range 4 {
		want(t, "junk", junk(t, anonymous), codes.Unauthenticated, "")
	}
	alice := s.by(t, plainUser, "127.0.0.1")
	for range 10 {
		if err := list(t, alice); err != nil {
			t.Error(err)
		}
	}
}

// All users of a login node have its address, and only their own limits.
func TestAWholeLoginNode(t *testing.T) {
	s := serveBursts(t, 1000, 4)
	var node sync.WaitGroup
	for uid := range uint32(20) {
		node.Go(func() {
			conn := s.by(t, 20000+uid, "127.0.0.1")
			for range 5 {
				if err := list(t, conn); err != nil {
					t.Errorf("uid %d: %v", 20000+uid, err)
				}
			}
		})
	}
	node.Wait()
}

// Valid credentials do not let one user flood munged either.
func TestGoodCredentialsWithoutEnd(t *testing.T) {
	s := serveBursts(t, 3, 5)
	alice := s.by(t, plainUser, "127.0.0.1")
	served := 0
	for range 50 {
		if list(t, alice) == nil {
			served++
		}
	}
	if asked := s.asked.Load(); served != 3 || asked > 3+5+8 {
		t.Errorf("%d of 3 calls were served, and munged was asked %d times", served, asked)
	}
}

// slowDecoder answers when the test lets it.
type slowDecoder struct {
	mu        sync.Mutex
	now, most int
	let       chan struct{}
}

func (n *slowDecoder) count(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now += by
	n.most = max(n.most, n.now)
}

func (n *slowDecoder) under() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *slowDecoder) Decode(context.Context, string) (credential.Decoded, error) {
	n.count(1)
	defer n.count(-1)
	<-n.let
	return credential.Decoded{}, kb.ErrUnauthenticated
}

// However many call, munged decodes eight credentials at a time.
func TestDecodesAtATime(t *testing.T) {
	slow := &slowDecoder{let: make(chan struct{})}
	s := serve(t, func(o *server.Options) {
		users(o)
		o.Verifier = credential.NewVerifier(credential.Options{Decoder: slow, Cluster: cluster})
	}, both)
	var calls sync.WaitGroup
	for _, address := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		conn := dial(t, s.address, from(address))
		for range 8 {
			calls.Go(func() {
				if code := status.Code(junk(t, conn)); code != codes.Unauthenticated && code != codes.ResourceExhausted {
					t.Errorf("from %s: %v", address, code)
				}
			})
		}
	}
	until(t, "eight decodes", func() bool { return slow.under() == 8 })
	close(slow.let)
	calls.Wait()
	if slow.most > 8 {
		t.Errorf("%d decodes at a time", slow.most)
	}
}

// slowJobs lists when the test lets it.
type slowJobs struct {
	jobs
	*slowDecoder
}

func (j slowJobs) ListJobs(context.Context, *api.ListJobsRequest) (*api.ListJobsResponse, error) {
	j.count(1)
	defer j.count(-1)
	<-j.let
	return &api.ListJobsResponse{}, nil
}

// One user has one listing at a time and all have four; administrators on the
// host and other calls do not wait. The others are told to come back.
func TestListingsAtATime(t *testing.T) {
	slow := slowJobs{slowDecoder: &slowDecoder{let: make(chan struct{})}}
	f := serve(t, users, func(s *server.Server) { api.RegisterAllocationServiceServer(s, slow) })
	var calls sync.WaitGroup
	var later atomic.Int64
	call := func(conn *grpc.ClientConn, n int) {
		for range n {
			calls.Go(func() {
				_, err := api.NewAllocationServiceClient(conn).ListJobs(t.Context(), &api.ListJobsRequest{})
				if err == nil {
					return
				}
				want(t, "a listing", err, codes.ResourceExhausted, "retry in")
				later.Add(1)
			})
		}
	}
	alice := f.as(t, plainUser)
	call(alice, 5)
	until(t, "a listing of alice's", func() bool { return slow.under() == 1 })
	for uid := range 6 {
		call(f.as(t, 21000+uid), 3)
	}
	until(t, "four listings", func() bool { return slow.under() == 4 })
	call(f.local(t), 2)
	until(t, "root's too", func() bool { return slow.under() == 6 })
	if _, err := api.NewHealthServiceClient(alice).GetHealth(t.Context(), &api.GetHealthRequest{}); err != nil {
		t.Errorf("another call of alice's: %v", err)
	}
	want(t, "another listing of alice's", list(t, alice), codes.ResourceExhausted, "another listing is under way")
	until(t, "who waits is told to come back", func() bool { return later.Load() == 4+6*3-3 })
	if slow.most > 6 {
		t.Errorf("%d listings at a time", slow.most)
	}
	close(slow.let)
	calls.Wait()
	if _, err := api.NewAllocationServiceClient(alice).ListJobs(t.Context(), &api.ListJobsRequest{}); err != nil {
		t.Errorf("later: %v", err)
	}
}

// Connections that TLS refuses do not fill the log.
func TestRefusedHandshakesInTheLog(t *testing.T) {
	s := serveTLS(t, time.Hour)
	s.log.reset()
	begin := time.Now()
	for range 300 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		_, _ = conn.Read(make([]byte, 64)) // refused by now
		_ = conn.Close()
	}
	most := 2 + int(time.Since(begin).Seconds()/10)
	if lines := strings.Count(s.log.String(), "caller refused in the TLS handshake"); lines < 1 || lines > most {
		t.Errorf("%d lines of 300 connections, at most %d", lines, most)
	}
}
