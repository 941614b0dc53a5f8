// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

// site is a served broker with TLS and MUNGE.
type site struct {
	*secured
	munged *mungetest.Daemon
}

func serveSite(t *testing.T, more ...func(*server.Options)) *site {
	t.Helper()
	s := &site{munged: mungetest.Start(t)}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(townPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	authorizer, err := authz.New(authz.Options{File: file, Always: []uint32{0}, Users: &town{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.secured = serveTLS(t, time.Hour, append([]func(*server.Options){users, func(o *server.Options) {
		o.Verifier = credential.NewVerifier(credential.Options{Decoder: munge.New(s.munged.Socket), Cluster: cluster})
		o.Authorizer, o.Limits = authorizer, server.DefaultLimits()
		o.Limits.AddressRate, o.Limits.AddressBurst = 1000, 1000
	}}, more...)...)
	return s
}

// by dials as kernelctl of a user does on a login node.
func (s *site) by(uid uint32) *grpc.ClientConn {
	return s.dialTLS(credentials.NewTLS(mtls.PinnedConfig(s.authority.Fingerprint())), proof(s.address, s.munged.As(uid))...)
}

// works fails unless a node and a builder are served.
func (s *site) works(t *testing.T, what string, node, builder *grpc.ClientConn, content []byte) {
	t.Helper()
	if err := connect(t, node, "n1"); err != nil {
		t.Errorf("%s: a node: %v", what, err)
	}
	stream, err := api.NewCatalogServiceClient(builder).UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, &api.UploadArtifactRequest{Digest: digestOf(content), Size: uint64(len(content))})
	for rest := content; len(rest) > 0; {
		n := min(len(rest), 256<<10)
		say(t, stream, &api.UploadArtifactRequest{Data: rest[:n]})
		rest = rest[n:]
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Errorf("%s: an upload: %v", what, err)
	}
}

// attack is what some connections without a certificate send, and then leave unfinished.
type attack struct {
	method      string
	credential  string
	connections int
	streams     int
	says        int // bytes that a message has, by its prefix
	sends       int // bytes of it that come
	pieces      int // bytes of a frame of a blast; 0: an attack that obeys HTTP/2
}

// zeros is a message's begin that goes no further.
type zeros struct {
	attack
	ctx  context.Context
	sent int
	all  *atomic.Int64
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.sent >= 5+z.sends {
		<-z.ctx.Done()
		return 0, io.EOF
	}
	n := min(len(p), 5+z.sends-z.sent)
	clear(p[:n])
	if z.sent == 0 {
		n = copy(p, []byte{0, byte(z.says >> 24), byte(z.says >> 16), byte(z.says >> 8), byte(z.says)})
	}
	z.sent += n
	z.all.Add(int64(n))
	return n, nil
}

// blast begins an attack that needs no leave of the broker's to send. Its client keeps next to nothing in the
// memory of the test.
func (s *site) blast(t *testing.T, a attack) {
	t.Helper()
	var all bytes.Buffer
	all.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&all, nil)
	_ = w.WriteSettings() // to memory
	message := []byte{0, byte(a.says >> 24), byte(a.says >> 16), byte(a.says >> 8), byte(a.says)}
	message = protowire.AppendTag(message, 99, protowire.BytesType) // unknown, and valid
	message = protowire.AppendVarint(message, uint64(a.says)-5)
	message = append(message, make([]byte, a.sends)...)[:5+a.sends]
	for n := range uint32(a.streams) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: headersOf(a.method), EndHeaders: true})
		if a.sends > 0 {
			for piece := range slices.Chunk(message, a.pieces) {
				_ = w.WriteData(2*n+1, false, piece)
			}
		}
	}
	for range a.connections {
		_, _ = s.tls(t).Write(all.Bytes()) // fails where it is cut
	}
}

// hold begins an attack that obeys HTTP/2. The function waits until nothing more of it is taken.
func (s *site) hold(t *testing.T, a attack) (settled func() (sent int64), end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	config := mtls.PinnedConfig(s.authority.Fingerprint())
	var sent atomic.Int64
	var asking sync.WaitGroup
	var open []*tls.Conn
	for range a.connections {
		conn, err := tls.Dial("tcp", s.address, config)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		client, err := (&http2.Transport{}).NewClientConn(conn) //nolint:staticcheck // SA1019: the new way dials by itself
		if err != nil {
			continue // cut already
		}
		for range a.streams {
			asking.Go(func() {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://broker"+a.method, &zeros{attack: a, ctx: ctx, all: &sent})
				if err != nil {
					t.Error(err)
					return
				}
				request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
				if a.credential != "" {
					request.Header.Set(credential.Header, a.credential)
				}
				if answer, err := client.RoundTrip(request); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body) // ends with the connection
					_ = answer.Body.Close()
				}
			})
		}
	}
	end = func() {
		cancel()
		for _, conn := range open {
			_ = conn.Close()
		}
		asking.Wait()
	}
	t.Cleanup(end)
	return func() int64 {
		all := int64(a.connections * a.streams * (5 + a.sends))
		for before, since := int64(-1), time.Now(); time.Since(since) < 2*time.Second && sent.Load() < all; time.Sleep(20 * time.Millisecond) {
			if now := sent.Load(); now != before {
				before, since = now, time.Now()
			}
		}
		return sent.Load()
	}, end
}

// heap is what is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools keep
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Whoever sends requests without an end, and proves nothing, has so much of the broker's memory, and nodes and users are
// served meanwhile. Before there was a limit the first of these held 405 MiB.
func TestMemoryWithoutACredential(t *testing.T) {
	const mib = 1 << 20
	most := server.DefaultLimits().MessageBytes - 1
	for name, c := range map[string]struct {
		attack
		budget, heap int64
	}{
		"large messages for anyone":       {attack{method: api.CatalogService_GetSnapshot_FullMethodName, connections: 10, streams: 8, says: most, sends: most - 1}, 64 * mib, 16 * mib},
		"large messages for users":        {attack{method: api.CatalogService_ListProfiles_FullMethodName, connections: 10, streams: 8, says: most, sends: most - 1}, 64 * mib, 16 * mib},
		"large messages, junk credential": {attack{method: api.CatalogService_ApplyProfile_FullMethodName, credential: "MUNGE:junk:", connections: 10, streams: 8, says: most, sends: most - 1}, 64 * mib, 16 * mib},
		"large messages of a stream":      {attack{method: api.CatalogService_UploadArtifact_FullMethodName, connections: 10, streams: 8, says: most, sends: most - 1}, 64 * mib, 16 * mib},
		"many small messages":             {attack{method: api.CatalogService_GetSnapshot_FullMethodName, connections: 80, streams: 8, says: 60 << 10, sends: 50 << 10, pieces: 16 << 10}, 4 * mib, 12 * mib},
		"messages byte by byte":           {attack{method: api.CatalogService_GetSnapshot_FullMethodName, connections: 3, streams: 2, says: 60 << 10, sends: 50 << 10, pieces: 1}, 16 * mib, 24 * mib},
		"whole messages without an end":   {attack{method: api.CatalogService_GetSnapshot_FullMethodName, connections: 80, streams: 8, says: 50 << 10, sends: 50 << 10, pieces: 16 << 10}, 4 * mib, 12 * mib},
		"headers":                         {attack{method: api.CatalogService_GetSnapshot_FullMethodName, connections: 80, streams: 8, pieces: 1}, 4 * mib, 12 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSite(t, func(o *server.Options) { o.Limits.Unfinished = c.budget })
			node, builder := s.over(s.enrol("n1")), s.by(carol)
			s.works(t, "before", node, builder, []byte("a kernel"))
			before := heap()
			settled, end := func() int64 { return 0 }, func() {}
			if c.pieces == 0 {
				settled, end = s.hold(t, c.attack)
			} else {
				s.blast(t, c.attack)
				until(t, "it is too much", func() bool { return s.lines("its requests take too much memory") > 0 })
			}
			content := bytes.Repeat([]byte("a kernel "), 100_000)
			for try := range 3 {
				s.works(t, "meanwhile", node, builder, fmt.Appendf(content, "%d", try))
			}
			sent := settled()
			held := heap() - before
			t.Logf("%d KiB were sent, %d KiB are held", sent>>10, held>>10)
			if held > c.heap {
				t.Errorf("%d KiB are held, at most %d KiB are expected", held>>10, c.heap>>10)
			}
			s.works(t, "afterwards", node, builder, append(content, "afterwards"...))
			end()
		})
	}
}

// A request that has begun comes in time, or its call ends; other calls of the connection go on.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	s := serveSite(t, func(o *server.Options) { o.Limits.Arrival = time.Second })
	node := s.over(s.enrol("n1"))
	first, err := api.NewNodeServiceClient(node).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.Recv()
	want(t, "a node says nothing", err, codes.DeadlineExceeded, "has not come in time")
	if err := connect(t, node, "n1"); err != nil {
		t.Errorf("the node's next stream: %v", err)
	}
	upload, err := api.NewCatalogServiceClient(s.by(carol)).UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "an upload without a begin", upload.RecvMsg(&api.UploadArtifactResponse{}), codes.DeadlineExceeded, "has not come in time")

	c := rawOn(t, s.tls(t), 1<<16)
	c.listen()
	if err := c.call(1, api.CatalogService_GetSnapshot_FullMethodName); err != nil {
		t.Fatal(err)
	}
	if err := c.ask(3, api.CatalogService_GetSnapshot_FullMethodName, &api.GetSnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	for ended := map[uint32]bool{}; !ended[1] || !ended[3]; {
		select {
		case f := <-c.answer:
			if f.Type == http2.FrameHeaders && f.Flags.Has(http2.FlagHeadersEndStream) {
				ended[f.StreamID] = true
			}
		case err := <-c.gone:
			t.Fatal(err)
		case <-time.After(soon):
			t.Fatal("no end of ", ended)
		}
	}
	until(t, "a line in the log", func() bool { return s.lines("has not come in time") > 0 })
}

// tls is a connection without a certificate.
func (s *secured) tls(t *testing.T) net.Conn {
	t.Helper()
	config := mtls.PinnedConfig(s.authority.Fingerprint())
	conn, err := tls.Dial("tcp", s.address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// What a stranger may not send ends the connection, and the log has why.
func TestWhatStrangersMayNotSend(t *testing.T) {
	t.Parallel()
	for words, say := range map[string]func(w *http2.Framer) error{
		"more than 65536 bytes": func(w *http2.Framer) error {
			// One message of 100 KiB, which is not complete before it is too much: else
			// its call may be answered first.
			for sent, begin := 0, []byte{0, 0, 1, 144, 0}; sent < 80<<10; sent, begin = sent+16<<10, nil {
				if err := w.WriteData(1, false, append(begin, make([]byte, 16<<10-len(begin))...)); err != nil {
					return nil //nolint:nilerr // closed already
				}
			}
			return nil
		},
		"is compressed": func(w *http2.Framer) error { return w.WriteData(1, false, []byte{1, 0, 0, 0, 9}) },
		"are padded": func(w *http2.Framer) error {
			return w.WriteDataPadded(1, false, []byte{0, 0, 0, 0, 0}, make([]byte, 9))
		},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			s := serveTLS(t, time.Hour)
			c := rawOn(t, s.tls(t), 1<<16)
			c.listen()
			if err := c.call(1, api.CatalogService_GetSnapshot_FullMethodName); err != nil {
				t.Fatal(err)
			}
			if err := c.write(say); err != nil {
				t.Fatal(err)
			}
			if err := c.ended(soon); !closed(err) {
				t.Error(err)
			}
			until(t, "a line in the log", func() bool { return s.lines(words) > 0 })
		})
	}
}

// Strangers who take no answers end when these are too many.
func TestStrangersWhoNeverRead(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, time.Hour, func(o *server.Options) {
		users(o)
		o.Limits = server.DefaultLimits()
		o.Limits.Unfinished = 1 << 20
		o.Limits.AddressRate, o.Limits.AddressBurst = 1e6, 1e6
	})
	for n := range 60 {
		p := apiProfile(fmt.Sprintf("p%d", n), digestOf([]byte{byte(n)}), 1)
		p.Description = strings.Repeat("x", 200)
		if _, err := api.NewCatalogServiceClient(s.local(t)).ApplyProfile(t.Context(), &api.ApplyProfileRequest{RequestId: fmt.Sprint(n), Profile: p}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 50 && s.lines("its requests take too much memory") == 0; n++ {
		c := rawOn(t, s.tls(t), 0)
		c.listen()
		for n := range uint32(7) {
			_ = c.ask(2*n+1, api.CatalogService_GetSnapshot_FullMethodName, &api.GetSnapshotRequest{}) // fails when it is cut
		}
	}
	until(t, "a connection is closed", func() bool { return s.lines("its requests take too much memory") > 0 })
	if err := connect(t, s.over(s.enrol("n1")), "n1"); err != nil {
		t.Errorf("a node: %v", err)
	}
}

// A certificate that does not end is not kept until the handshake's time is over.
func TestLongHandshakes(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, time.Hour)
	pair, err := s.enrol("n1").Certificate()
	if err != nil {
		t.Fatal(err)
	}
	long := *pair
	for len(long.Certificate) < 300 {
		long.Certificate = append(long.Certificate, pair.Certificate[0])
	}
	config := mtls.PinnedConfig(s.authority.Fingerprint())
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &long, nil }
	conn, err := tls.Dial("tcp", s.address, config)
	if err == nil {
		_, err = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the handshake ends with %v", err)
	}
	until(t, "a line in the log", func() bool { return s.lines("handshake has more than 32768 bytes") > 0 })
}
