// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// cut fails unless the server hangs up on somebody who sends nothing more.
func cut(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !closed(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// trickle writes a byte now and then until the server hangs up.
func trickle(conn io.Writer, bytes []byte, pause time.Duration) error {
	end := time.Now().Add(soon)
	for i := 0; time.Now().Before(end); i++ {
		if _, err := conn.Write(bytes[i%len(bytes) : i%len(bytes)+1]); err != nil {
			return nil //nolint:nilerr // hung up, as it should be
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("after %d bytes it is still open", len(bytes))
}

func hasty(o *server.Options) {
	users(o)
	o.Limits = server.DefaultLimits()
	o.Limits.Idle = time.Second
	o.Limits.Handshake = 5 * time.Second // which those need who are served
}

// Who does not get through the handshake is hung up on: one who is silent, one
// who says it byte by byte, and one who is done with TLS and says no more.
func TestSlowHandshakes(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, time.Hour, hasty)
	dialTo := func() net.Conn {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	cut(t, "silence", dialTo())
	// The begin of a record that is never whole.
	if err := trickle(dialTo(), append([]byte{22, 3, 1, 16, 0, 1, 0, 15, 252}, make([]byte, 2000)...), 20*time.Millisecond); err != nil {
		t.Error("a handshake byte by byte:", err)
	}
	config := mtls.PinnedConfig(s.authority.Fingerprint())
	config.NextProtos = []string{"h2"}
	done := tls.Client(dialTo(), config)
	if err := done.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut(t, "silence after TLS", done)
	s.served(t)
}

// Who has said who he is, and asks nothing, does not stay.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	f := serve(t, hasty, both)
	c := rawTo(t, "tcp", f.address, 1<<16)
	c.listen()
	if err := c.ended(soon); !closed(err) {
		t.Error(err)
	}
	f.served(t)
}

// Headers that come byte by byte are no sign of life before they are complete.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	f := serve(t, users, both)
	c := rawTo(t, "tcp", f.address, 1<<16)
	c.read(false) // an answer would be in the middle of the headers
	header := append([]byte{0, 60, 0, 1, 4, 0, 0, 0, 1}, make([]byte, 15_360)...)
	if err := trickle(c, header, 100*time.Millisecond); err != nil {
		t.Error(err)
	}
	f.served(t)
}

// A client that reads no answers may leave so many bytes of them in the broker's
// memory, over all its connections. When it is gone they are free.
func TestAClientThatNeverReads(t *testing.T) {
	t.Parallel()
	f := serve(t, func(o *server.Options) {
		users(o)
		o.Limits = server.DefaultLimits()
		o.Limits.Backlog = 32 << 10
	}, both)
	for n := range 60 {
		p := apiProfile(fmt.Sprintf("p%d", n), digestOf([]byte{byte(n)}), 1)
		p.Description = strings.Repeat("x", 200)
		if _, err := api.NewCatalogServiceClient(f.local(t)).ApplyProfile(t.Context(),
			&api.ApplyProfileRequest{RequestId: fmt.Sprint(n), Profile: p}); err != nil {
			t.Fatal(err)
		}
	}
	alice := f.as(t, plainUser)
	var silent []*rawClient
	for range 3 {
		c := rawAs(t, f, plainUser, 0)
		c.listen()
		for n := range uint32(8) { // as many streams as a connection may have
			_ = c.ask(2*n+1, api.CatalogService_GetSnapshot_FullMethodName, &api.GetSnapshotRequest{}) // no listing: many at a time
		}
		silent = append(silent, c)
	}
	for _, c := range silent {
		for headers := 0; headers < 8; { // each call has its answer, which waits behind them
			if (<-c.answer).Type == http2.FrameHeaders {
				headers++
			}
		}
	}
	until(t, "a refusal over the backlog", func() bool {
		err := list(t, alice)
		return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "bytes of answers are not received yet")
	})
	f.served(t)
	for _, c := range silent {
		_ = c.Close()
	}
	until(t, "room when they are gone", func() bool { return list(t, alice) == nil })
}

// rawAs speaks HTTP/2 by hand as a user of the broker's host.
func rawAs(t *testing.T, f *fixture, uid int, window uint32) *rawClient {
	t.Helper()
	f.openTo(t)
	conn, err := dialAs(uid, f.socket)
	if err != nil {
		t.Fatal(err)
	}
	return rawOn(t, conn, window)
}

// Too large to be read: a message, headers, a stream without end.
func TestOversized(t *testing.T) {
	t.Parallel()
	f := serve(t, users, both)
	nodes := []string{strings.Repeat("n", server.DefaultLimits().MessageBytes)}
	_, err := api.NewAllocationServiceClient(f.as(t, slurmUser)).NoteReboot(t.Context(), &api.NoteRebootRequest{Nodes: nodes})
	want(t, "a message", err, codes.ResourceExhausted, "larger than max")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-more", strings.Repeat("h", 20<<10))
	if _, err := api.NewCatalogServiceClient(f.local(t)).ListProfiles(ctx, &api.ListProfilesRequest{}); err == nil {
		t.Error("headers of 20 KiB were taken")
	}

	c := rawTo(t, "tcp", f.address, 1<<16)
	c.listen()
	more := hpack.HeaderField{Name: "x-more", Value: strings.Repeat("h", 10<<10)}
	block := headersOf(api.CatalogService_GetSnapshot_FullMethodName, more)
	if err := c.write(func(w *http2.Framer) error {
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:100]})
	}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if c.write(func(w *http2.Framer) error { return w.WriteContinuation(1, false, block[100:]) }) != nil {
			break
		}
	}
	if err := c.ended(soon); !closed(err) {
		t.Error("headers without end:", err)
	}

	upload, err := api.NewCatalogServiceClient(f.local(t)).UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	message := &api.UploadArtifactRequest{Digest: digestOf([]byte("abc")), Size: 3}
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if !say(t, upload, message) {
			break
		}
		message = &api.UploadArtifactRequest{Data: make([]byte, 64<<10)}
	}
	_, err = upload.CloseAndRecv()
	want(t, "an upload without end", err, codes.InvalidArgument, "too large, more than 3 bytes")
	empty, err := api.NewCatalogServiceClient(f.local(t)).UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	message = &api.UploadArtifactRequest{Digest: digestOf([]byte("abc")), Size: 3}
	for range 2 {
		say(t, empty, message)
		message = &api.UploadArtifactRequest{}
	}
	_, err = empty.CloseAndRecv()
	want(t, "empty messages without end", err, codes.InvalidArgument, "without data")
	f.served(t)
}
