// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// elsewhere is Runs whose one run is somebody else's, and smallCluster has no
// node at all.
type (
	elsewhere    struct{ server.Runs }
	smallCluster struct{ noNodes }
	noNodes      = server.Nodes
)

func (elsewhere) ProfilingRun(context.Context, uint64) (*kb.Run, error) {
	return &kb.Run{ID: 7, User: "carol", UID: carol, Job: kb.JobID{Job: 12}}, nil
}

func (elsewhere) AwaitsRun(node string, id uint64) error {
	return fmt.Errorf("run %d is not on node %q: %w", id, node, kb.ErrNotFound)
}

func (elsewhere) Deliver(_ context.Context, d controller.Delivery) error {
	return fmt.Errorf("run %d is over: %w", d.Run, kb.ErrFailedPrecondition)
}

func (smallCluster) Turn(string) time.Duration { return 0 }

// always acts.
type always struct{}

func (always) Epoch() uint64 { return 7 }
func (always) MayAct() error { return nil }

func (smallCluster) Attach(node string, _ kb.Boot, _ kb.Inventory, _ bool) (*controller.Session, error) {
	return nil, fmt.Errorf("node %q is not in slurmctld's configuration: %w", node, kb.ErrNotFound)
}

func withElsewhere(s *server.Server) {
	api.RegisterAllocationServiceServer(s, jobs{})
	api.RegisterNodeServiceServer(s, server.NewNodeService(smallCluster{}, always{}))
	api.RegisterRunServiceServer(s, server.NewRunService(server.RunOptions{Runs: elsewhere{}}))
}

// lines are the records that have all the words.
func (f *trusted) lines(t *testing.T, words ...string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(f.records(t)) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			lines = append(lines, line)
		}
	}
	return lines
}

// Whatever a caller asks about, the record is short.
func TestRecordsOfLongTextsAreShort(t *testing.T) {
	f := trust(t)
	user, anonymous := f.as(t, plainUser), f.remote(t)
	for _, words := range []string{"<", `"`, `\`, "‹", "\x01"} {
		many := strings.Repeat(words, 4000)
		for _, conn := range []*grpc.ClientConn{user, anonymous} {
			catalog := api.NewCatalogServiceClient(conn)
			_, getErr := catalog.GetProfile(t.Context(), &api.GetProfileRequest{Name: many})
			_, checkErr := catalog.CheckProfile(t.Context(), &api.CheckProfileRequest{Profile: many})
			_, retireErr := catalog.RetireProfile(t.Context(), &api.RetireProfileRequest{Name: many, Reason: many})
			if getErr == nil || checkErr == nil || retireErr == nil {
				t.Error("a profile of such a name")
			}
		}
	}
	f.recorded(t, `"via":"RetireProfile"`, `"uid":4242`, `"allowed":false`)
	const most = 2500
	for _, line := range f.lines(t) {
		if len(line) > most {
			t.Errorf("%d bytes: %.300s", len(line), line)
		}
	}
	if n := len(f.lines(t, "Profile")); n != 5*2*3 {
		t.Errorf("%d records of 30 calls", n)
	}
}

// A node's refusals are on record, whoever refuses: who checks what it says it
// is, the service it calls, and the handshake.
func TestRefusalsOfNodesAreRecorded(t *testing.T) {
	f := trust(t)
	s := serveTLSWith(t, time.Hour, withElsewhere, func(o *server.Options) { o.Authorizer = f.authorizer })
	n1 := s.over(s.enrol("n1"))
	runs := api.NewRunServiceClient(n1)
	upload := func(node string) error {
		stream, err := runs.UploadRunFile(t.Context())
		if err != nil {
			return err
		}
		say(t, stream, &api.UploadRunFileRequest{Node: node, RunId: 7, File: &api.RunFile{Name: kb.ResultFile, Digest: digestOf(nil)}})
		_, err = stream.CloseAndRecv()
		return err
	}
	want(t, "a hello of another", connect(t, n1, "n2"), codes.PermissionDenied, "speaks for")
	f.recorded(t, `"who":"node n1"`, `"by":"certificate"`, `"via":"Connect"`, `"allowed":false`, `n1\" speaks for node \"n2`)
	stream, err := api.NewNodeServiceClient(n1).Connect(t.Context())
	if err == nil {
		say(t, stream, &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{
			Node: "n1", BootId: "6f4f0f3e-7d0e-4c9f-8a0e-0123456789ab", BuildId: strings.Repeat("ab", 20), Release: "6.1.0-x"}}})
		_, err = stream.Recv()
	}
	want(t, "a node that Slurm has not", err, codes.NotFound, "slurmctld")
	f.recorded(t, `"who":"node n1"`, `"via":"Connect"`, `"object":"n1"`, `"allowed":false`, "not in slurmctld's configuration")
	_, err = runs.DeliverRun(t.Context(), &api.DeliverRunRequest{RunId: 7, Node: "n2"})
	want(t, "a run of another's", err, codes.PermissionDenied, "speaks for")
	f.recorded(t, `"who":"node n1"`, `"via":"DeliverRun"`, `"kind":"outcome"`, `"allowed":false`, `n1\" speaks for node \"n2`)
	_, err = runs.DeliverRun(t.Context(), &api.DeliverRunRequest{RunId: 7, Node: "n1"})
	want(t, "a run that is over", err, codes.FailedPrecondition, "is over")
	f.recorded(t, `"via":"DeliverRun"`, `"kind":"outcome"`, `"allowed":false`, "run 7 is over")
	want(t, "a file of another's", upload("n2"), codes.PermissionDenied, "speaks for")
	f.recorded(t, `"via":"UploadRunFile"`, `"allowed":false`, `n1\" speaks for node \"n2`)
	want(t, "a file of a run elsewhere", upload("n1"), codes.NotFound, "not on node")
	f.recorded(t, `"via":"UploadRunFile"`, `"allowed":false`, "run 7 is not on node")
	_, err = runs.GetRunFile(t.Context(), &api.GetRunFileRequest{Node: "n1", RunId: 7, Digest: digestOf(nil)})
	want(t, "a file of a run elsewhere", err, codes.NotFound, "not on node")
	f.recorded(t, `"via":"GetRunFile"`, `"allowed":false`, "run 7 is not on node")

	if _, err := api.NewTrustServiceClient(s.local(t)).RevokeNode(t.Context(), &api.RevokeNodeRequest{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	// The first try may still be on the connection that is being cut.
	for end := time.Now().Add(soon); len(f.lines(t, `"action":"connect"`, `"via":"handshake"`, `"from":"127.0.0.1:`, `"allowed":false`, `n1\" was revoked`)) == 0; {
		want(t, "a revoked node", s.refusal(n1), codes.Unavailable, "")
		if time.Now().After(end) {
			t.Fatalf("not on record:\n%s", f.records(t))
		}
	}
	_, err = api.NewTrustServiceClient(s.anybody()).Enrol(t.Context(), &api.EnrolRequest{Node: "n9", Secret: s.token("n8").Secret, CertificateRequest: certificateRequest(t)})
	want(t, "another's token", err, codes.PermissionDenied, "token")
	f.recorded(t, `"kind":"decision"`, `"via":"Enrol"`, `"object":"n9"`, `"allowed":false`, "the token is unknown")
	if lines := f.lines(t, `"kind":"decision"`, `"via":"Enrol"`, `"allowed":true`); len(lines) > 0 {
		t.Errorf("allowed: %q", lines)
	}
	if lines := f.lines(t, `"kind":"decision"`, `"via":"DeliverRun"`, `"allowed":`); len(lines) > 0 {
		t.Errorf("decided before it was judged: %q", lines)
	}
}

// No certificate is issued of which there is no record; the token is good for it
// later.
func TestNoCertificateWithoutARecord(t *testing.T) {
	f := trust(t)
	s := serveTLSWith(t, time.Hour, both, func(o *server.Options) { o.Authorizer = f.authorizer })
	n1, token := s.over(s.enrol("n1")), s.token("n2")
	if err := connect(t, n1, "n1"); err != nil {
		t.Fatal(err)
	}
	request := certificateRequest(t)
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := api.NewTrustServiceClient(s.anybody()).Enrol(t.Context(), &api.EnrolRequest{Node: "n2", Secret: token.Secret, CertificateRequest: request})
	want(t, "an enrolment", err, codes.Unavailable, "audit log")
	_, err = api.NewTrustServiceClient(n1).Renew(t.Context(), &api.RenewRequest{CertificateRequest: request})
	want(t, "a renewal", err, codes.Unavailable, "audit log")
	// Nodes go on, and come back.
	if err := connect(t, n1, "n1"); err != nil {
		t.Errorf("a node: %v", err)
	}
	want(t, "a job's end", calls["releasejob"](t.Context(), t, s.local(t)), codes.OK, "")
}

// What a service denies by itself is no less a refusal.
func TestRefusalsOfServicesAreRecorded(t *testing.T) {
	f := trust(t)
	g := serve(t, func(o *server.Options) { users(o); o.Authorizer = f.authorizer }, withElsewhere)
	conn := g.as(t, plainUser)
	stream, err := api.NewRunServiceClient(conn).WatchRun(t.Context(), &api.WatchRunRequest{Id: 7})
	if err == nil {
		_, err = stream.Recv()
	}
	want(t, "another's run", err, codes.PermissionDenied, "run 7 is of user carol")
	f.recorded(t, `"who":"alice"`, `"via":"WatchRun"`, `"allowed":false`, "run 7 is of user carol")
	_, err = api.NewPolicyServiceClient(conn).TestPolicy(t.Context(), &api.TestPolicyRequest{User: "carol", Action: "use", Object: "mitgcm"})
	want(t, "about others", err, codes.PermissionDenied, "about others")
	f.recorded(t, `"who":"alice"`, `"via":"TestPolicy"`, `"allowed":false`, "about others")
	if lines := f.lines(t, `"who":"alice"`, `"allowed":true`); len(lines) > 0 {
		t.Errorf("allowed: %q", lines)
	}
}

// from dials the port from another address of this host.
func (f *fixture) from(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return dial(t, f.address, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", to)
	}))
}

// Refusals of one address are recorded at a limited rate, and refusals of others,
// a replay say, are still recorded.
func TestRefusalsOfOneAddressDoNotHideOthers(t *testing.T) {
	f := trust(t, func(o *server.Options) {
		o.Limits = server.DefaultLimits()
		o.Limits.AddressRate, o.Limits.AddressBurst = 1e6, 1e6
	})
	stranger := f.from(t, "127.0.0.2")
	const calls = 600
	for range calls {
		want(t, "a stranger", list(t, stranger), codes.Unauthenticated, "nothing proves")
	}
	if n := len(f.lines(t, `"from":"127.0.0.2:`)); n < 50 || n > calls/2 {
		t.Errorf("%d records of %d refusals", n, calls)
	}
	request := &api.RetireProfileRequest{RequestId: "1", Name: "mitgcm"}
	ctx, catalog := f.with(t, "MUNGE:AAAA:")
	_, err := catalog.RetireProfile(ctx, request)
	want(t, "another", err, codes.Unauthenticated, "not genuine")
	f.recorded(t, `"from":"127.0.0.1:`, "not genuine", `"allowed":false`)
	f.recorded(t, `"allowed":false`, `"unrecorded":`)
}

// Each refusal for a limit is on record.
func TestRefusalsByLimitsAreRecorded(t *testing.T) {
	f := trust(t, tight(func(l *server.Limits) { l.UserRate, l.UserBurst = 0.01, 1 }))
	alice := f.as(t, plainUser)
	const calls = 20
	for range calls {
		_ = list(t, alice) // one of them is let through
	}
	if n := len(f.lines(t, `"uid":4242`, `"allowed":false`)); n != calls-1 {
		t.Errorf("%d records of %d refusals", n, calls-1)
	}
}
