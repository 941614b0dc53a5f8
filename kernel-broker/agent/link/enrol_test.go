// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// broker is a real registry behind real TLS; it can lose an answer.
type broker struct {
	api.UnimplementedTrustServiceServer
	t        *testing.T
	address  string
	registry *pki.Registry
	ahead    atomic.Int64 // of the real time, of its clock
	lose     bool         // the next answer
	as       string
}

func newBroker(t *testing.T, lifetime time.Duration) *broker {
	t.Helper()
	kept := memstore.New()
	b := &broker{t: t}
	now := func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	authority := catest.Open(t, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: lifetime})
	var err error
	b.registry, err = pki.OpenRegistry(t.Context(), pki.RegistryOptions{Store: kept, Cluster: "lab", Authority: authority, Log: slog.New(slog.DiscardHandler), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(mtls.ServerConfig(authority, "lab", b.registry.Accept))))
	api.RegisterTrustServiceServer(server, b)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address = listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *broker) answer(c pki.Credentials, err error) (*api.Credentials, error) {
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if b.lose {
		b.lose = false
		return nil, status.Error(codes.Unavailable, "killed")
	}
	out := &api.Credentials{}
	for _, link := range c.Chain {
		out.Chain = append(out.Chain, link.Raw)
	}
	for _, authority := range c.Authorities {
		out.Authorities = append(out.Authorities, authority.Raw)
	}
	return out, nil
}

func (b *broker) Enrol(ctx context.Context, r *api.EnrolRequest) (*api.EnrolResponse, error) {
	c, err := b.answer(b.registry.Enrol(ctx, r.GetNode(), r.GetSecret(), r.GetCertificateRequest()))
	return &api.EnrolResponse{Credentials: c}, err
}

func (b *broker) Renew(ctx context.Context, r *api.RenewRequest) (*api.RenewResponse, error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "no TLS")
	}
	who, err := mtls.PeerOf(info.State)
	if err != nil || who.Name.IsZero() {
		return nil, status.Error(codes.PermissionDenied, "no certificate")
	}
	b.as = who.Name.Name
	c, err := b.answer(b.registry.Renew(ctx, who, r.GetCertificateRequest()))
	return &api.RenewResponse{Credentials: c}, err
}

// node is an enroller with its disk.
type node struct {
	*Enroller
	t    *testing.T
	logs bytes.Buffer
}

func newNode(t *testing.T, b *broker, dir string) *node {
	t.Helper()
	n := &node{t: t}
	n.Enroller = NewEnroller(EnrolOptions{
		Node: "n1", Broker: b.address, Paths: mtls.NodePaths(filepath.Join(dir, "tls")), TokenFile: filepath.Join(dir, "token"),
		Log: slog.New(slog.NewTextHandler(&n.logs, nil)),
	})
	return n
}

func (n *node) put(token mtls.Token) {
	n.t.Helper()
	if err := os.WriteFile(n.options.TokenFile, []byte(token.Text()+"\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (b *broker) token(name string) mtls.Token {
	b.t.Helper()
	token, _, err := b.registry.CreateToken(b.t.Context(), name, time.Hour, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

func (n *node) serialNow() string {
	n.t.Helper()
	own, err := n.files.Own()
	if err != nil {
		n.t.Fatal(err)
	}
	return own.Certificate.SerialNumber.String()
}

func (n *node) isReady() bool {
	select {
	case <-n.Ready():
		return true
	default:
		return false
	}
}

func TestEnrolmentLifecycle(t *testing.T) {
	b, dir := newBroker(t, time.Hour), t.TempDir()
	n := newNode(t, b, dir)
	now := time.Now()
	n.turn(t.Context(), now)
	n.turn(t.Context(), now)
	if n.isReady() || strings.Count(n.logs.String(), "kernelctl node token n1") != 1 {
		t.Errorf("without a token: %s", n.logs.String())
	}
	token := b.token("n1")
	n.put(token)
	n.turn(t.Context(), now)
	if !n.isReady() {
		t.Fatalf("not enrolled: %s", n.logs.String())
	}
	for _, path := range []string{n.options.TokenFile, n.nextPath()} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	first := n.serialNow()
	// Not before its time, and then with another key.
	n.turn(t.Context(), now.Add(39*time.Minute))
	if n.serialNow() != first {
		t.Error("renewed too early")
	}
	before, err := n.files.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	b.passes(10 * time.Minute) // the part of the first certificate's life after which it is renewed
	n.turn(t.Context(), now.Add(46*time.Minute))
	after, err := n.files.Certificate()
	if err != nil || n.serialNow() == first || b.as != "n1" {
		t.Fatalf("not renewed (%v): %s", err, n.logs.String())
	}
	if bytes.Equal(before.Leaf.RawSubjectPublicKeyInfo, after.Leaf.RawSubjectPublicKeyInfo) {
		t.Error("renewed for the old key")
	}
	// As after a kexec: another process, the same disk.
	again := newNode(t, b, dir)
	again.turn(t.Context(), now)
	if !again.isReady() || again.serialNow() != n.serialNow() {
		t.Error("an agent that starts again has another certificate")
	}
	// A token requests enrolment even if there is a certificate.
	again.put(b.token("n1"))
	again.turn(t.Context(), now)
	if again.serialNow() == n.serial {
		t.Error("a new token was not used")
	}
	if strings.Contains(n.logs.String()+again.logs.String(), token.Secret) {
		t.Error("the secret is in the log")
	}
}

func TestLostEnrolmentAnswer(t *testing.T) {
	b := newBroker(t, time.Hour)
	n := newNode(t, b, t.TempDir())
	n.put(b.token("n1"))
	b.lose = true
	now := time.Now()
	n.turn(t.Context(), now)
	if n.isReady() {
		t.Fatal("enrolled without an answer")
	}
	n.turn(t.Context(), now)
	if n.isReady() {
		t.Error("asked again without a pause")
	}
	// Also when the agent died in between.
	n = newNode(t, b, filepath.Dir(n.options.TokenFile))
	n.turn(t.Context(), now)
	if !n.isReady() {
		t.Errorf("the token is lost with the answer: %s", n.logs.String())
	}
}

// passes advances the broker's clock, which TLS does not use.
func (b *broker) passes(d time.Duration) { b.ahead.Add(int64(d)) }

// A renewal whose answer is lost is repeated, even by a restarted agent.
func TestLostRenewalAnswer(t *testing.T) {
	b, dir := newBroker(t, time.Hour), t.TempDir()
	n := newNode(t, b, dir)
	n.put(b.token("n1"))
	now := time.Now()
	n.turn(t.Context(), now)
	first := n.serialNow()
	b.passes(10 * time.Minute)
	b.lose = true
	n.turn(t.Context(), now.Add(46*time.Minute))
	if n.serialNow() != first || b.lose {
		t.Fatalf("renewed without an answer: %s", n.logs.String())
	}
	again := newNode(t, b, dir)
	again.turn(t.Context(), now.Add(46*time.Minute))
	second := again.serialNow()
	if second == first {
		t.Fatalf("the renewal is lost with the answer: %s", again.logs.String())
	}
	if _, err := os.Stat(again.nextPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its key is left: %v", err)
	}
}

// A leftover key file is not used for the next renewal.
func TestKeyInUseIsNotReused(t *testing.T) {
	b := newBroker(t, time.Hour)
	n := newNode(t, b, t.TempDir())
	n.put(b.token("n1"))
	now := time.Now()
	n.turn(t.Context(), now)
	kept, err := n.files.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := mtls.EncodeKey(kept.PrivateKey.(crypto.Signer))
	if err == nil {
		err = os.WriteFile(n.nextPath(), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.passes(10 * time.Minute)
	n.turn(t.Context(), now.Add(46*time.Minute))
	next, err := n.files.Certificate()
	if err != nil || next.Leaf.Equal(kept.Leaf) || bytes.Equal(next.Leaf.RawSubjectPublicKeyInfo, kept.Leaf.RawSubjectPublicKeyInfo) {
		t.Errorf("not renewed, or for the old key (%v): %s", err, n.logs.String())
	}
}

func TestRefusals(t *testing.T) {
	b, other := newBroker(t, time.Hour), newBroker(t, time.Hour)
	used := b.token("n1")
	first := newNode(t, b, t.TempDir())
	first.put(used)
	first.turn(t.Context(), time.Now())
	if !first.isReady() {
		t.Fatal(first.logs.String())
	}
	for _, c := range []struct {
		name  string
		text  string
		words string
	}{
		{"used by another", used.Text(), "was used for another key"},
		{"for another node", b.token("n2").Text(), `for node \"n2\"`},
		{"of another broker", other.token("n1").Text(), "not the broker with that fingerprint"},
		{"damaged", "n1.x", "NODE.SECRET.FINGERPRINT"},
		{"empty", "", "token in"},
	} {
		n := newNode(t, b, t.TempDir())
		if err := os.WriteFile(n.options.TokenFile, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		n.turn(t.Context(), time.Now())
		if n.isReady() || !strings.Contains(n.logs.String(), c.words) || strings.Contains(n.logs.String(), used.Secret) {
			t.Errorf("%s: %s", c.name, n.logs.String())
		}
		if _, err := os.Stat(n.options.TokenFile); err != nil {
			t.Errorf("%s: the token's file: %v", c.name, err)
		}
	}
}

// Another node's certificate on the disk, as from a copied image, is ignored.
func TestOtherNodesCertificate(t *testing.T) {
	b, dir := newBroker(t, time.Hour), t.TempDir()
	n := newNode(t, b, dir)
	n.put(b.token("n1"))
	n.turn(t.Context(), time.Now())
	copied := newNode(t, b, dir)
	copied.options.Node = "n2"
	copied.turn(t.Context(), time.Now())
	if copied.isReady() || !strings.Contains(copied.logs.String(), "waits for a token") {
		t.Errorf("%s", copied.logs.String())
	}
}

func TestRunEnds(t *testing.T) {
	b := newBroker(t, time.Hour)
	n := newNode(t, b, t.TempDir())
	n.put(b.token("n1"))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	<-n.Ready()
	cancel()
	running.Wait()
}
