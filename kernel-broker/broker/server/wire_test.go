// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// tamperer sits between a client and the broker and flips one bit of what goes
// by in one direction, at a place from the connection's begin on. It counts
// those it flipped.
type tamperer struct {
	address string
	at      atomic.Int64 // < 0: nothing is flipped
	answers atomic.Bool  // of what the broker says, not the client
	flipped atomic.Int64
}

func tamper(t *testing.T, broker string) *tamperer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tamperer{address: l.Addr().String()}
	p.at.Store(-1)
	var working sync.WaitGroup
	working.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", broker)
			if err != nil {
				_ = in.Close()
				continue
			}
			at, answers := p.at.Load(), p.answers.Load()
			working.Go(func() { p.pass(in, out, at, !answers) })
			working.Go(func() { p.pass(out, in, at, answers) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		working.Wait()
	})
	return p
}

func (p *tamperer) pass(from, to net.Conn, at int64, flips bool) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
	}()
	buffer := make([]byte, 4096)
	for passed := int64(0); ; {
		n, err := from.Read(buffer)
		if flips && at >= passed && at < passed+int64(n) {
			buffer[at-passed] ^= 0x10
			p.flipped.Add(1)
		}
		passed += int64(n)
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// fetched is what comes of a fetch over a connection of its own.
func fetched(t *testing.T, address string, security credentials.TransportCredentials, digest string) ([]byte, error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(security))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	stream, err := api.NewCatalogServiceClient(conn).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: digest})
	if err != nil {
		return nil, err
	}
	var got []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, r.GetData()...)
	}
}

// A bit that is flipped on the wire between an agent and the broker, or kernelctl
// and the broker, in the handshake or after it, ends the connection: nobody gets
// to see another byte than was sent.
func TestTamperedOnTheWire(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, time.Hour)
	source, proxy := s.enrol("n1"), tamper(t, s.address)
	artifact := make([]byte, 200<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range artifact {
		artifact[i] = byte(random.Uint32())
	}
	digest := digestOf(artifact)
	s.keep(t, artifact)
	agent := func() ([]byte, error) {
		return fetched(t, proxy.address, credentials.NewTLS(mtls.ClientConfig(source, "lab")), digest)
	}
	if got, err := agent(); err != nil || !bytes.Equal(got, artifact) {
		t.Fatalf("untouched: %d bytes, %v", len(got), err)
	}
	for _, answers := range []bool{false, true} {
		proxy.answers.Store(answers)
		// The lengths of handshakes differ a little from one to the next.
		places := []int64{0, 3, 5, 60, 200, 700, 1200}
		if answers {
			places = append(places, 2_000, 20_000, 150_000)
		}
		for _, at := range places {
			proxy.at.Store(at)
			before := proxy.flipped.Load()
			got, err := agent()
			if proxy.flipped.Load() == before {
				t.Errorf("answers %v, byte %d: nothing was flipped", answers, at)
			}
			if err == nil || status.Code(err) != codes.Unavailable || !bytes.HasPrefix(artifact, got) {
				t.Errorf("answers %v, byte %d: %d bytes and %v", answers, at, len(got), err)
			}
		}
	}
	proxy.at.Store(-1)
	if got, err := agent(); err != nil || !bytes.Equal(got, artifact) {
		t.Errorf("untouched again: %d bytes, %v", len(got), err)
	}

	proxy.at.Store(1200)
	authorities, err := s.authority.Authorities()
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, mtls.EncodeCertificates(authorities), 0o644); err != nil {
		t.Fatal(err)
	}
	conn, err := client.Dial(proxy.address, client.Trust{CA: ca, Cluster: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err = api.NewCatalogServiceClient(conn).GetSnapshot(ctx, &api.GetSnapshotRequest{})
	want(t, "kernelctl", err, codes.Unavailable, "")
}

// The same without TLS: what arrives is another byte, and nobody says so. It is
// the digest that finds it, on the node.
func TestTamperedWithoutTLS(t *testing.T) {
	t.Parallel()
	f := serve(t, users, both)
	proxy := tamper(t, f.address)
	artifact := make([]byte, 50<<10)
	f.keep(t, artifact)
	proxy.answers.Store(true)
	proxy.at.Store(40_000)
	got, err := fetched(t, proxy.address, insecure.NewCredentials(), digestOf(artifact))
	if err != nil || len(got) != len(artifact) || digestOf(got) == digestOf(artifact) {
		t.Errorf("%d bytes, %v: the proxy of these tests does nothing", len(got), err)
	}
}
