// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// asIs sends bytes for messages.
type asIs struct{}

func (asIs) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (asIs) Name() string                  { return "proto" }
func (asIs) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

// believing takes a credential for what it vouches for.
type believing struct{}

func (believing) Decode(_ context.Context, text string) (credential.Decoded, error) {
	if text == "" {
		return credential.Decoded{}, kb.ErrUnauthenticated
	}
	now := time.Now()
	return credential.Decoded{UID: plainUser, Encoded: now, Decoded: now, Payload: []byte(text)}, nil
}

// boundary is a served broker with everything behind it and a way in for each
// kind of caller.
type boundary struct {
	f       *fixture
	local   *grpc.ClientConn
	network *grpc.ClientConn
	methods []method
}

type method struct {
	name           string
	sends, answers bool // many messages
}

func serveBoundary(t testing.TB) *boundary {
	t.Helper()
	b := &boundary{}
	var artifacts server.Artifacts
	b.f, _ = serveBroker(t, func(o *server.Options) {
		artifacts = o.Artifacts
		o.Verifier = credential.NewVerifier(credential.Options{Decoder: believing{}, Cluster: cluster})
		o.Limits = server.DefaultLimits()
		o.Limits.UserRate, o.Limits.NodeRate, o.Limits.AddressRate = 1e6, 1e6, 1e6
		o.Limits.UserBurst, o.Limits.NodeBurst, o.Limits.AddressBurst = 1e6, 1e6, 1e6
	}, func(s *server.Server, c *controller.Controller) {
		api.RegisterHardwareServiceServer(s, server.NewHardwareService(c))
		api.RegisterRunServiceServer(s, server.NewRunService(server.RunOptions{Runs: c, Artifacts: artifacts, MaxBytes: 1 << 20}))
		for service, info := range s.GetServiceInfo() {
			for _, m := range info.Methods {
				b.methods = append(b.methods, method{"/" + service + "/" + m.Name, m.IsClientStream, m.IsServerStream})
			}
		}
	})
	slices.SortFunc(b.methods, func(a, c method) int { return strings.Compare(a.name, c.name) })
	b.local = dial(t, "unix:"+b.f.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.network = dial(t, b.f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return b
}

// moment is what a stream gets that would go on.
const moment = 30 * time.Millisecond

// call makes one as who says: root on the host, nobody, or somebody with the
// begin of the bytes for a credential. A stream's messages are the bytes, cut
// where there is 0xff.
func (b *boundary) call(ctx context.Context, m method, who byte, body []byte) error {
	messages := [][]byte{body}
	if m.sends {
		messages = slices.Collect(split(body))
	}
	return b.callWithin(ctx, moment, m, who, messages)
}

// callWithin is call with its messages, and another limit of streams.
func (b *boundary) callWithin(ctx context.Context, limit time.Duration, m method, who byte, messages [][]byte) error {
	conn := b.local
	switch who % 3 {
	case 1:
		conn = b.network
	case 2:
		conn = b.network
		n := min(len(messages[0]), 200)
		ctx = metadata.AppendToOutgoingContext(ctx, credential.Header, strings.ToValidUTF8(printable(messages[0][:n]), ""))
		messages[0] = messages[0][n:]
	}
	if !m.sends && !m.answers {
		var answer []byte
		return conn.Invoke(ctx, m.name, messages[0], &answer, grpc.ForceCodec(asIs{}))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.sends, ServerStreams: m.answers}, m.name, grpc.ForceCodec(asIs{}))
	if err != nil {
		return err
	}
	for _, message := range messages {
		if stream.SendMsg(message) != nil {
			break // RecvMsg says why
		}
	}
	_ = stream.CloseSend()
	for range 100 {
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return err
		}
	}
	return nil
}

func printable(b []byte) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '.'
		}
		return c
	}, string(b))
}

func split(body []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for begin := 0; begin <= len(body); {
			end := begin
			for end < len(body) && body[end] != 0xff {
				end++
			}
			if !yield(body[begin:end]) {
				return
			}
			begin = end + 1
		}
	}
}

// FuzzBoundary calls every method of a served broker with any bytes, through all
// that stands before the methods. Whatever comes, the broker answers in its own
// words: it does not panic, and it knows its errors.
func FuzzBoundary(f *testing.F) {
	b := serveBoundary(f)
	seed := func(name string, messages ...proto.Message) {
		var body []byte
		for i, m := range messages {
			text, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			if i > 0 {
				body = append(body, 0xff)
			}
			body = append(body, text...)
		}
		n := slices.IndexFunc(b.methods, func(m method) bool { return strings.HasSuffix(m.name, "/"+name) })
		if n < 0 {
			f.Fatalf("no method %s", name)
		}
		for who := range byte(3) {
			f.Add(byte(n), who, body)
		}
	}
	for n := range b.methods {
		f.Add(byte(n), byte(0), []byte{})
		f.Add(byte(n), byte(1), []byte("\x0a\x02n1"))
	}
	digest := digestOf([]byte("abc"))
	seed("GetProfile", &api.GetProfileRequest{Name: "mitgcm"})
	seed("ApplyProfile", &api.ApplyProfileRequest{RequestId: "1", Profile: apiProfile("other", digest, 3)})
	seed("CheckProfile", &api.CheckProfileRequest{Profile: "mitgcm@1"})
	seed("QuarantineVersion", &api.QuarantineVersionRequest{RequestId: "2", Name: "mitgcm", Version: 1, Reason: "x"})
	seed("UploadArtifact", &api.UploadArtifactRequest{Digest: digest, Size: 3}, &api.UploadArtifactRequest{Data: []byte("abc")})
	seed("FetchArtifact", &api.FetchArtifactRequest{Digest: digest, Offset: 1})
	seed("EnsureKernel", &api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm", Nodes: []string{"n1"}})
	seed("Connect", hello(nil), &api.ConnectRequest{Message: &api.ConnectRequest_Heartbeat{Heartbeat: &api.Heartbeat{}}})
	seed("ListJobs", &api.ListJobsRequest{Limit: 5})
	seed("TestPolicy", &api.TestPolicyRequest{Action: "use", Object: "mitgcm"})
	f.Fuzz(func(t *testing.T, n, who byte, body []byte) {
		m := b.methods[int(n)%len(b.methods)]
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		err := b.call(ctx, m, who, body)
		switch code := status.Code(err); {
		case code == codes.Internal && isOurs(err), code == codes.Unknown && err != nil && !errors.Is(err, context.Canceled) && err.Error() != "EOF":
			t.Errorf("%s by %d with %q: %v", m.name, who%3, body, err)
		case ctx.Err() != nil:
			t.Errorf("%s by %d with %q did not end", m.name, who%3, body)
		}
		if lines := b.f.lines("call panicked"); lines > 0 {
			t.Fatalf("%s by %d with %q: %s", m.name, who%3, body, lastLines(b.f.log.String()))
		}
		b.f.log.reset()
	})
}

// isOurs tells an error of the broker from one of gRPC, which says Internal of
// bytes that are no message at all.
func isOurs(err error) bool {
	text := status.Convert(err).Message()
	return !strings.HasPrefix(text, "grpc: ")
}

func lastLines(text string) string { return text[max(0, len(text)-4000):] }

// Every method is reached by the fuzz target, in its own way.
func TestBoundaryReachesTheMethods(t *testing.T) {
	b := serveBoundary(t)
	if len(b.methods) < 40 {
		t.Errorf("%d methods", len(b.methods))
	}
	for _, m := range b.methods {
		err := b.call(t.Context(), m, 1, nil)
		if code := status.Code(err); code == codes.Unimplemented {
			t.Error(fmt.Sprint(m.name, ": ", err))
		}
	}
}
