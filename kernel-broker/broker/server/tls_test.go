// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// secured is a served broker with an authority of its own.
type secured struct {
	*fixture
	t         *testing.T
	authority *pki.Authority
}

func serveTLS(t *testing.T, lifetime time.Duration, more ...func(*server.Options)) *secured {
	t.Helper()
	return serveTLSWith(t, lifetime, both, more...)
}

func serveTLSWith(t *testing.T, lifetime time.Duration, register func(*server.Server), more ...func(*server.Options)) *secured {
	t.Helper()
	kept := memstore.New()
	authority := catest.Open(t, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: lifetime})
	registry, err := pki.OpenRegistry(t.Context(), pki.RegistryOptions{Store: kept, Cluster: "lab", Authority: authority, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &secured{t: t, authority: authority}
	s.fixture = serve(t, func(o *server.Options) {
		o.TLS = &server.TLS{Source: authority, Registry: registry}
		for _, change := range more {
			change(o)
		}
	}, register)
	return s
}

// over dials the port by TLS.
func (s *secured) over(source mtls.Source) *grpc.ClientConn {
	s.t.Helper()
	return s.dialTLS(credentials.NewTLS(mtls.ClientConfig(source, "lab")))
}

func (s *secured) dialTLS(security credentials.TransportCredentials, more ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, append(more, grpc.WithTransportCredentials(security))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return conn
}

// anybody trusts the broker, and shows nothing.
func (s *secured) anybody() *grpc.ClientConn {
	s.t.Helper()
	return s.dialTLS(credentials.NewTLS(mtls.PinnedConfig(s.authority.Fingerprint())))
}

func (s *secured) token(node string) mtls.Token {
	s.t.Helper()
	answer, err := api.NewTrustServiceClient(s.local(s.t)).CreateNodeToken(s.t.Context(),
		&api.CreateNodeTokenRequest{Node: node, Ttl: durationpb.New(time.Minute)})
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := mtls.ParseToken(answer.GetToken())
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// enrol makes a node the way an agent becomes one.
func (s *secured) enrol(node string) *mtls.Files {
	s.t.Helper()
	token := s.token(node)
	key, err := mtls.NewKey()
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := api.NewTrustServiceClient(s.anybody()).Enrol(s.t.Context(),
		&api.EnrolRequest{Node: node, Secret: token.Secret, CertificateRequest: request})
	if err != nil {
		s.t.Fatal(err)
	}
	chain, err := mtls.ParseDER(answer.GetCredentials().GetChain())
	if err != nil {
		s.t.Fatal(err)
	}
	authorities, err := mtls.ParseDER(answer.GetCredentials().GetAuthorities())
	if err != nil {
		s.t.Fatal(err)
	}
	paths := mtls.NodePaths(s.t.TempDir())
	if err := paths.Keep(key, chain, authorities); err != nil {
		s.t.Fatal(err)
	}
	return mtls.NewFiles(paths)
}

func TestWhoIsWhichNode(t *testing.T) {
	s := serveTLS(t, time.Hour)
	n1 := s.over(s.enrol("n1"))
	if err := connect(t, n1, "n1"); err != nil {
		t.Errorf("a node for itself: %v", err)
	}
	want(t, "a node for another", connect(t, n1, "n2"), codes.PermissionDenied, `node "n1" speaks for node "n2"`)
	want(t, "nobody for a node", connect(t, s.anybody(), "n1"), codes.PermissionDenied, "have to show a node's certificate")
	want(t, "root on the broker's host for a node", connect(t, s.local(t), "n1"), codes.PermissionDenied, "node agents")
	if err := s.refusal(s.remote(t)); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	other := serveTLS(t, time.Hour)
	foreign := other.enrol("n1")
	if err := s.refusal(s.over(foreign)); status.Code(err) != codes.Unavailable {
		t.Errorf("another authority's node: %v", err)
	}
}

// refusal is what becomes of a stream on a connection that cannot be had.
func (s *secured) refusal(conn *grpc.ClientConn) error {
	s.t.Helper()
	stream, err := api.NewNodeServiceClient(conn).Connect(s.t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// What a node's certificate does not open, and what needs none.
func TestCertificatesOpenNothingElse(t *testing.T) {
	s := serveTLS(t, time.Hour)
	node, anybody, local := s.over(s.enrol("n1")), s.anybody(), s.local(t)
	snapshot := func(conn *grpc.ClientConn) error {
		_, err := api.NewCatalogServiceClient(conn).GetSnapshot(t.Context(), &api.GetSnapshotRequest{})
		return err
	}
	fetch := func(conn *grpc.ClientConn) error {
		stream, err := api.NewCatalogServiceClient(conn).FetchArtifact(t.Context(), &api.FetchArtifactRequest{Digest: digestOf([]byte("x"))})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	token := func(conn *grpc.ClientConn) error {
		_, err := api.NewTrustServiceClient(conn).CreateNodeToken(t.Context(), &api.CreateNodeTokenRequest{Node: "n2"})
		return err
	}
	revoke := func(conn *grpc.ClientConn) error {
		_, err := api.NewTrustServiceClient(conn).RevokeNode(t.Context(), &api.RevokeNodeRequest{Node: "n2"})
		return err
	}
	list := func(conn *grpc.ClientConn) error {
		_, err := api.NewTrustServiceClient(conn).ListCertificates(t.Context(), &api.ListCertificatesRequest{})
		return err
	}
	rotate := func(conn *grpc.ClientConn) error {
		_, err := api.NewTrustServiceClient(conn).RotateAuthority(t.Context(), &api.RotateAuthorityRequest{})
		return err
	}
	renew := func(conn *grpc.ClientConn) error {
		_, err := api.NewTrustServiceClient(conn).Renew(t.Context(), &api.RenewRequest{})
		return err
	}
	authority := func(conn *grpc.ClientConn) error {
		_, err := api.NewTrustServiceClient(conn).GetAuthority(t.Context(), &api.GetAuthorityRequest{})
		return err
	}
	// Of users over the network nothing is known without a credential.
	const no, who = codes.PermissionDenied, codes.Unauthenticated
	for _, c := range []struct {
		name                 string
		call                 func(*grpc.ClientConn) error
		node, anybody, local codes.Code
	}{
		{"GetSnapshot", snapshot, codes.OK, codes.OK, codes.OK},
		{"GetAuthority", authority, codes.OK, codes.OK, codes.OK},
		{"FetchArtifact", fetch, codes.NotFound, no, codes.NotFound},
		{"Renew", renew, codes.InvalidArgument, no, no},
		{"CreateNodeToken", token, no, who, codes.OK},
		{"RevokeNode", revoke, no, who, codes.OK},
		{"ListCertificates", list, no, who, codes.OK},
		{"RotateAuthority", rotate, no, who, codes.OK},
	} {
		for who, conn := range map[string]*grpc.ClientConn{"a node": node, "anybody": anybody, "root": local} {
			wanted := map[string]codes.Code{"a node": c.node, "anybody": c.anybody, "root": c.local}[who]
			if err := c.call(conn); status.Code(err) != wanted {
				t.Errorf("%s by %s: %v, want %v", c.name, who, err, wanted)
			}
		}
	}
}

func TestARevokedNodeIsCut(t *testing.T) {
	s := serveTLS(t, time.Hour)
	n1, n2 := s.over(s.enrol("n1")), s.over(s.enrol("n2"))
	stays := s.stream(n2)
	cut := s.stream(n1)
	answer, err := api.NewTrustServiceClient(s.local(t)).RevokeNode(t.Context(), &api.RevokeNodeRequest{Node: "n1", Reason: "test"})
	if err != nil || answer.GetCut() != 1 {
		t.Errorf("%v, %v", answer, err)
	}
	if _, err := cut.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("its stream: %v", err)
	}
	if err := s.refusal(n1); status.Code(err) != codes.Unavailable {
		t.Errorf("its next stream: %v", err)
	}
	if err := connect(t, n2, "n2"); err != nil {
		t.Errorf("another node: %v", err)
	}
	if err := stays.CloseSend(); err != nil {
		t.Error(err)
	}
	// The new certificate begins in the second after the revocation.
	back, err := api.NewNodeServiceClient(s.over(s.enrol("n1"))).Connect(t.Context(), grpc.WaitForReady(true))
	if err == nil {
		say(t, back, &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{Node: "n1"}}})
		_, err = back.Recv()
	}
	if err != nil {
		t.Errorf("after a new token: %v", err)
	}
}

// stream opens one whose first message is still awaited.
func (s *secured) stream(conn *grpc.ClientConn) api.NodeService_ConnectClient {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	stream, err := api.NewNodeServiceClient(conn).Connect(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	// The handshake is over when a call on the same connection has answered.
	if _, err := api.NewCatalogServiceClient(conn).GetSnapshot(s.t.Context(), &api.GetSnapshotRequest{}); err != nil {
		s.t.Fatal(err)
	}
	return stream
}

// A stream does not outlive the certificate that it began with.
func TestAStreamEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, 10*time.Second) // also for the enrolment and the handshake
	stream := s.stream(s.over(s.enrol("n1")))
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestTrustWithoutTLS(t *testing.T) {
	f := serve(t, nil, both)
	trust := api.NewTrustServiceClient(f.local(t))
	_, tokenErr := trust.CreateNodeToken(t.Context(), &api.CreateNodeTokenRequest{Node: "n1"})
	_, revokeErr := trust.RevokeNode(t.Context(), &api.RevokeNodeRequest{Node: "n1"})
	_, showErr := trust.GetAuthority(t.Context(), &api.GetAuthorityRequest{})
	for _, err := range []error{tokenErr, revokeErr, showErr} {
		want(t, "without TLS", err, codes.FailedPrecondition, "TLS is off")
	}
}

func TestTrustRequestsAreChecked(t *testing.T) {
	s := serveTLS(t, time.Hour)
	trust := api.NewTrustServiceClient(s.local(t))
	_, tokenErr := trust.CreateNodeToken(t.Context(), &api.CreateNodeTokenRequest{Node: "n 1"})
	_, ttlErr := trust.CreateNodeToken(t.Context(), &api.CreateNodeTokenRequest{Node: "n1", Ttl: durationpb.New(-1)})
	_, revokeErr := trust.RevokeNode(t.Context(), &api.RevokeNodeRequest{Node: "../n1"})
	_, secretErr := trust.Enrol(t.Context(), &api.EnrolRequest{Node: "n1", Secret: "guess"})
	_, requestErr := trust.Enrol(t.Context(), &api.EnrolRequest{Node: "n1", Secret: s.token("n1").Secret, CertificateRequest: make([]byte, 1<<20)})
	for _, err := range []error{tokenErr, ttlErr, revokeErr, secretErr, requestErr} {
		want(t, "a bad request", err, codes.InvalidArgument, "")
	}
}
