// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// Generous: a machine that runs the tests does other things, too.
const soon = time.Minute

// tight are limits that a test reaches.
func tight(change func(*server.Limits)) func(*server.Options) {
	return func(o *server.Options) {
		users(o)
		o.Limits = server.DefaultLimits()
		change(&o.Limits)
	}
}

func list(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := api.NewCatalogServiceClient(conn).ListProfiles(ctx, &api.ListProfilesRequest{})
	return err
}

// served fails unless those get their answer whom nobody may keep from it: an
// administrator on the host, Slurm's hooks, and another user.
func (f *fixture) served(t *testing.T) {
	t.Helper()
	for who, err := range map[string]error{
		"root": list(t, f.local(t)), "another user": list(t, f.as(t, carol)),
		"a hook": calls["releasejob"](t.Context(), t, f.as(t, slurmUser)),
	} {
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// lines counts the lines of the log that have the words.
func (f *fixture) lines(words string) int { return strings.Count(f.log.String(), words) }

func TestRateOfAUser(t *testing.T) {
	f := serve(t, tight(func(l *server.Limits) { l.UserRate, l.UserBurst = 0.5, 5 }), both)
	alice := f.as(t, plainUser)
	refused := 0
	var last error
	for range 30 {
		if err := list(t, alice); err != nil {
			refused, last = refused+1, err
		}
	}
	want(t, "too many calls", last, codes.ResourceExhausted, "more than 0.5 calls a second, and 5 at once; retry in")
	wait, said := client.RetryAfter(last)
	if !said || wait <= 0 || wait > 2*time.Second {
		t.Errorf("told to retry in %v, %v", wait, said)
	}
	if told := f.lines("code=ResourceExhausted"); refused < 2 || told < 1 || told >= refused {
		t.Errorf("%d refusals, %d lines of the log", refused, told)
	}
	f.served(t)
	time.Sleep(wait)
	if err := list(t, alice); err != nil {
		t.Errorf("back when told: %v", err)
	}
}

// kernelctl and the hooks wait as they are told, and their users see nothing of
// it.
func TestClientsComeBack(t *testing.T) {
	f := serve(t, tight(func(l *server.Limits) { l.AddressRate, l.AddressBurst = 1, 1 }), both)
	conn, err := client.Dial(f.address, client.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 4 { // a slow machine makes them too late to be refused, but not all
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		if _, err := api.NewCatalogServiceClient(conn).GetSnapshot(ctx, &api.GetSnapshotRequest{}); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if f.lines("code=ResourceExhausted") == 0 {
		t.Error("nothing was refused")
	}
}

// Users that MUNGE authenticates have a quota each, although they call from one
// address; invalid credentials count for the address.
func TestRatesOverTheNetwork(t *testing.T) {
	f := trust(t, func(o *server.Options) {
		o.Limits = server.DefaultLimits()
		o.Limits.UserRate, o.Limits.UserBurst = 0.01, 3
		o.Limits.AddressRate, o.Limits.AddressBurst = 0.01, 3
	})
	alice, bob, nobody := f.by(t, plainUser), f.by(t, carol), f.remote(t)
	var aliceErr, anonymousErr error
	for range 4 {
		aliceErr, anonymousErr = list(t, alice), list(t, nobody)
	}
	want(t, "alice", aliceErr, codes.ResourceExhausted, fmt.Sprintf("uid %d by MUNGE: more than", plainUser))
	want(t, "an unauthenticated client", anonymousErr, codes.ResourceExhausted, "127.0.0.1: more than")
	if err := list(t, bob); err != nil {
		t.Errorf("carol, from the same address: %v", err)
	}
	f.recorded(t, `"allowed":false`, "more than 0.01 calls a second", fmt.Sprintf(`"uid":%d`, plainUser))
}

func TestCallsAtOnce(t *testing.T) {
	f := serve(t, tight(func(l *server.Limits) { l.Calls = 2 }), both)
	alice := f.as(t, plainUser)
	watch := func() (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := grpc_health_v1.NewHealthClient(alice).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return cancel, err
	}
	stop1, err1 := watch()
	stop2, err2 := watch()
	stop3, err3 := watch()
	defer stop2()
	defer stop3()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	want(t, "the third call", err3, codes.ResourceExhausted, "2 calls at a time")
	f.served(t)
	stop1()
	until(t, "room after a call ended", func() bool { return list(t, alice) == nil })
}

// Of one controller there may be as many connections as hooks, but no more than there is room for.
func TestConnectionsOfControllers(t *testing.T) {
	f := serve(t, func(o *server.Options) {
		users(o)
		o.Limits = server.DefaultLimits()
		o.Limits.PeerConnections, o.Limits.Unauthenticated, o.Limits.Connections = 1, 1, 3
		o.Controllers = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}, both)
	var open []*rawClient
	for range 3 {
		c := rawTo(t, "tcp", f.address, 1<<16)
		c.listen()
		open = append(open, c)
	}
	if more, err := net.Dial("tcp", f.address); err == nil { // it may be closed before the dial ends
		defer more.Close()
		if err := more.SetReadDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		if _, err := more.Read(make([]byte, 1)); !closed(err) {
			t.Errorf("the fourth: %v", err)
		}
	}
	for i, c := range open {
		select {
		case err := <-c.gone:
			t.Errorf("connection %d ended: %v", i, err)
		default:
		}
	}
}

// until waits for what must come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("did not come: %s", what)
}

// What is sent from a node's stream beyond its pace waits on the node, and the
// broker reads on.
func TestPaceOfANode(t *testing.T) {
	counted := &counting{}
	f := serve(t, tight(func(l *server.Limits) { l.NodeRate, l.NodeBurst = 5, 5 }), func(s *server.Server) {
		api.RegisterAllocationServiceServer(s, jobs{})
		api.RegisterNodeServiceServer(s, counted)
	})
	begin := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := api.NewNodeServiceClient(f.remote(t)).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for stream.Send(&api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{}}}) == nil {
		}
	}()
	until(t, "messages beyond those at once", func() bool { return counted.messages() > 8 })
	f.served(t)
	read := counted.messages() // before the time is: it goes on
	if most := 5 + 5*time.Since(begin).Seconds() + 1; float64(read) > most {
		t.Errorf("%d messages were read, at most %.0f", read, most)
	}
	cancel()
	<-sending
}

// counting counts what nodes say.
type counting struct {
	api.UnimplementedNodeServiceServer
	read atomic.Int64
}

func (c *counting) messages() int { return int(c.read.Load()) }

func (c *counting) Connect(stream api.NodeService_ConnectServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		c.read.Add(1)
	}
}

func TestConnectionsOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can dial as another user")
	}
	f := serve(t, tight(func(l *server.Limits) { l.PeerConnections = 3 }), both)
	for range 3 {
		if err := list(t, f.as(t, plainUser)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "the fourth connection", list(t, f.as(t, plainUser)), codes.Unavailable, "")
	f.served(t)
	if f.lines("connection refused: too many") == 0 {
		t.Error("the log says nothing")
	}
	for range 5 {
		if err := list(t, f.local(t)); err != nil {
			t.Errorf("root: %v", err)
		}
	}
}
