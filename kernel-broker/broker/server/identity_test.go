// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

const (
	cluster = "lab"
	carol   = 4245
)

// town is who lives on the broker's host.
type town struct {
	mu    sync.Mutex
	away  bool
	asked []string
}

func (t *town) ByUID(_ context.Context, uid uint32) (kb.User, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away {
		return kb.User{}, kb.ErrUnavailable
	}
	for _, p := range []kb.User{{UID: plainUser, Name: "alice"}, {UID: operator, Name: "ops"}, {UID: carol, Name: "carol", Groups: []string{"ocean"}}} {
		if p.UID == uid {
			return p, nil
		}
	}
	return kb.User{}, kb.ErrNotFound
}

func (t *town) ByName(ctx context.Context, name string) (kb.User, error) {
	t.mu.Lock()
	t.asked = append(t.asked, name)
	t.mu.Unlock()
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return t.ByUID(ctx, uint32(uid))
	}
	for _, uid := range []uint32{plainUser, operator, carol} {
		if p, err := t.ByUID(ctx, uid); err != nil || p.Name == name {
			return p, err
		}
	}
	return kb.User{}, kb.ErrNotFound
}

// lookups are the names that were looked up since the last call.
func (t *town) lookups() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.asked
	t.asked = nil
	return asked
}

const townPolicy = `administrators:
  users: [ops]
  from: [local, 127.0.0.1]
builders:
  from: [127.0.0.0/8]
profiles:
  mitgcm:
    use:
      - groups: [ocean]
    publish:
      - users: [carol]
`

// trusted is a broker that knows users over the network.
type trusted struct {
	*fixture
	munged     *mungetest.Daemon
	people     *town
	log        *audit.Log
	dir        string
	authorizer *authz.Authorizer
	file       string
}

func trust(t *testing.T, more ...func(*server.Options)) *trusted {
	t.Helper()
	f := &trusted{munged: mungetest.Start(t), people: &town{}, dir: filepath.Join(t.TempDir(), "audit"), file: filepath.Join(t.TempDir(), "policy.yaml")}
	if err := os.WriteFile(f.file, []byte(townPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.log, err = audit.Open(audit.Options{Dir: f.dir, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.log.Close(); err != nil {
			t.Error(err)
		}
	})
	f.authorizer, err = authz.New(authz.Options{File: f.file, Always: []uint32{0}, Users: f.people, Record: f.log, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	verifier := credential.NewVerifier(credential.Options{Decoder: munge.New(f.munged.Socket), Cluster: cluster})
	f.fixture = serve(t, func(o *server.Options) {
		users(o)
		o.Verifier, o.Authorizer = verifier, f.authorizer
		for _, change := range more {
			change(o)
		}
	}, both)
	return f
}

// proof returns the dial options of a client that authenticates by this encoder.
func proof(address string, encoder client.Encoder) []grpc.DialOption {
	config := client.DefaultConfig()
	config.Trust.Cluster = cluster
	return config.Proof(address, func(string) client.Encoder { return encoder })
}

// by dials over TCP as kernelctl of a user does on a login node.
func (f *trusted) by(t *testing.T, uid uint32) *grpc.ClientConn {
	return dial(t, f.address, proof(f.address, f.munged.As(uid))...)
}

// records returns the audit log as it is now.
func (f *trusted) records(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(f.dir, "audit-*.log"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recorded waits for a line that has all words.
func (f *trusted) recorded(t *testing.T, words ...string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for line := range strings.Lines(f.records(t)) {
			has := true
			for _, word := range words {
				has = has && strings.Contains(line, word)
			}
			if has {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no record with %q in\n%s", words, f.records(t))
		}
	}
}

// Slurm's hooks call from a backup controller over the network: as Slurm's user, by
// MUNGE, and from there only.
func TestHooksOnAnotherController(t *testing.T) {
	for name, c := range map[string]struct {
		controllers []string
		uid         uint32
		code        codes.Code
	}{
		"a controller":                 {[]string{"192.0.2.1/32", "127.0.0.1/32"}, slurmUser, codes.OK},
		"the network of controllers":   {[]string{"127.0.0.0/8"}, slurmUser, codes.OK},
		"another host":                 {[]string{"192.0.2.0/24"}, slurmUser, codes.PermissionDenied},
		"no other host":                {nil, slurmUser, codes.PermissionDenied},
		"another user of a controller": {[]string{"127.0.0.1/32"}, plainUser, codes.PermissionDenied},
		"root of a controller":         {[]string{"127.0.0.1/32"}, 0, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			f := trust(t, func(o *server.Options) {
				o.Limits = server.DefaultLimits()
				o.Limits.UserRate, o.Limits.UserBurst = 0.1, 3
				o.Limits.PeerConnections = 2
				for _, network := range c.controllers {
					o.Controllers = append(o.Controllers, netip.MustParsePrefix(network))
				}
			})
			release := func(conn *grpc.ClientConn) error {
				_, err := api.NewAllocationServiceClient(conn).ReleaseJob(t.Context(), &api.ReleaseJobRequest{JobId: 1})
				return err
			}
			want(t, "a hook", release(f.by(t, c.uid)), c.code, "")
			if c.code != codes.OK {
				return
			}
			// Each job has a hook and a connection, and no limit holds them up.
			for range 8 {
				want(t, "a hook", release(f.by(t, c.uid)), codes.OK, "")
			}
			want(t, "without a credential", release(dial(t, f.address)), codes.PermissionDenied, "slurm.controllers in broker.yaml")
		})
	}
}

func TestUsersOverTheNetwork(t *testing.T) {
	f := trust(t)
	alice, admin, c := f.by(t, plainUser), f.by(t, operator), f.by(t, carol)
	ctx := t.Context()
	catalog := func(conn *grpc.ClientConn) api.CatalogServiceClient { return api.NewCatalogServiceClient(conn) }
	content := []byte("a kernel")
	upload := func(conn *grpc.ClientConn) error {
		stream, err := catalog(conn).UploadArtifact(ctx)
		if err != nil {
			return err
		}
		say(t, stream, &api.UploadArtifactRequest{Digest: digestOf(content), Size: uint64(len(content))})
		say(t, stream, &api.UploadArtifactRequest{Data: content})
		_, err = stream.CloseAndRecv()
		return err
	}
	want(t, "a user uploads", upload(alice), codes.PermissionDenied, "only those upload who may publish some profile")
	want(t, "a publisher uploads", upload(c), codes.OK, "")
	apply := func(conn *grpc.ClientConn, name string) error {
		_, err := catalog(conn).ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "1", Profile: apiProfile(name, digestOf(content), len(content))})
		return err
	}
	want(t, "a user publishes", apply(alice, "mitgcm"), codes.PermissionDenied, `user "alice" may not publish profile "mitgcm": it is for user carol`)
	want(t, "a publisher publishes another's", apply(c, "lammps"), codes.PermissionDenied, "only builders")
	want(t, "a publisher publishes", apply(c, "mitgcm"), codes.OK, "")
	if list, err := catalog(alice).ListProfiles(ctx, &api.ListProfilesRequest{}); err != nil || len(list.GetProfiles()) != 1 {
		t.Errorf("a user looks: %v, %v", list, err)
	}
	_, err := catalog(alice).CheckProfile(ctx, &api.CheckProfileRequest{Profile: "mitgcm"})
	want(t, "a user checks", err, codes.PermissionDenied, "it is for group ocean")
	_, err = catalog(c).CheckProfile(ctx, &api.CheckProfileRequest{Profile: "mitgcm@1"})
	want(t, "one of the group checks", err, codes.OK, "")
	fetched, err := catalog(alice).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: digestOf(content)})
	if err != nil {
		t.Fatal(err)
	}
	if part, err := fetched.Recv(); err != nil || string(part.GetData()) != string(content) {
		t.Errorf("a user fetches: %v, %v", part, err)
	}
	job, err := api.NewAllocationServiceClient(alice).GetJob(ctx, &api.GetJobRequest{JobId: 1})
	if err != nil || job.GetJob().GetUid() != plainUser {
		t.Errorf("the service does not know who calls: %v, %v", job, err)
	}
	for _, conn := range []*grpc.ClientConn{alice, admin, c, f.by(t, 0), f.by(t, slurmUser)} {
		_, err := api.NewAllocationServiceClient(conn).ReleaseJob(ctx, &api.ReleaseJobRequest{JobId: 1})
		want(t, "a hook's method over the network", err, codes.PermissionDenied, "on the broker's host; you came over the network")
	}
	retire := &api.RetireProfileRequest{RequestId: "2", Name: "mitgcm", Reason: "left\nthe house"}
	_, err = catalog(f.by(t, 0)).RetireProfile(ctx, retire)
	want(t, "root from the network", err, codes.PermissionDenied, "uid 0 is an administrator on the broker's host, and came from 127.0.0.1")
	_, err = catalog(admin).RetireProfile(ctx, retire)
	want(t, "an administrator", err, codes.OK, "")

	_, err = api.NewTrustServiceClient(f.remote(t)).Enrol(ctx, &api.EnrolRequest{Node: "n7", Secret: "x"})
	want(t, "enrolment with an invalid secret", err, codes.InvalidArgument, "damaged")
	f.recorded(t, `"via":"Enrol"`, `"action":"trust"`, `"object":"n7"`, `"outcome":"secret of a token is damaged`)
	f.recorded(t, `"kind":"decision"`, `"who":"alice"`, `"uid":4242`, `"by":"munge"`, `"from":"127.0.0.1:`, `"action":"upload"`, `"allowed":false`)
	f.recorded(t, `"kind":"decision"`, `"who":"carol"`, `"action":"publish"`, `"object":"mitgcm"`, `"via":"ApplyProfile"`, `"allowed":true`, "policy.yaml:11")
	f.recorded(t, `"kind":"outcome"`, `"who":"carol"`, `"action":"upload"`, digestOf(content), `"outcome":"ok"`)
	f.recorded(t, `"who":"alice"`, `"action":"use"`, `"object":"mitgcm"`, `"via":"CheckProfile"`, `"allowed":false`)
	f.recorded(t, `"who":"alice"`, `"action":"view"`, `"via":"ListProfiles"`, `"allowed":true`, `"outcome":"ok"`)
	f.recorded(t, `"who":"ops"`, `"action":"retire"`, `"allowed":true`, `"stated":"left the house"`)
	if r, err := audit.Verify(audit.Check{Path: f.dir}); err != nil || !r.Sound() {
		t.Errorf("the log: %+v, %v", r, err)
	}
}

// with calls a method with metadata of the test's own making.
func (f *trusted) with(t *testing.T, credentials ...string) (context.Context, api.CatalogServiceClient) {
	ctx := t.Context()
	for _, c := range credentials {
		ctx = metadata.AppendToOutgoingContext(ctx, credential.Header, c)
	}
	return ctx, api.NewCatalogServiceClient(f.remote(t))
}

func (f *trusted) make(t *testing.T, uid uint32, cluster, method string, message proto.Message) string {
	t.Helper()
	text, err := credential.Make(t.Context(), f.munged.As(uid), cluster, method, message)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestBadCredentials(t *testing.T) {
	f := trust(t)
	other := mungetest.Start(t)
	const method = api.CatalogService_RetireProfile_FullMethodName
	request := &api.RetireProfileRequest{RequestId: "1", Name: "mitgcm"}
	good := f.make(t, operator, cluster, method, request)
	ctx, catalog := f.with(t, good)
	_, err := catalog.RetireProfile(ctx, request)
	want(t, "a good one", err, codes.NotFound, "mitgcm")

	foreign, err := credential.Make(t.Context(), other.As(operator), cluster, method, request)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		credential []string
		words      string
	}{
		"none":             {nil, "nothing proves who you are"},
		"replayed":         {[]string{good}, "used before"},
		"of another key":   {[]string{foreign}, "not genuine"},
		"garbage":          {[]string{"MUNGE:AAAA:"}, "not genuine"},
		"empty":            {[]string{""}, "not genuine"},
		"two":              {[]string{f.make(t, operator, cluster, method, request), f.make(t, operator, cluster, method, request)}, "2 credentials"},
		"another cluster":  {[]string{f.make(t, operator, "other", method, request)}, `credential says "other", this is the broker of "lab"`},
		"another method":   {[]string{f.make(t, operator, cluster, api.CatalogService_GetProfile_FullMethodName, request)}, "another call"},
		"another message":  {[]string{f.make(t, operator, cluster, method, &api.RetireProfileRequest{RequestId: "1", Name: "lammps"})}, "another call"},
		"made for Slurm":   {[]string{f.munged.EncodeAs(operator, []byte("hello"), time.Minute)}, "not made for Kernel Broker"},
		"without an order": {[]string{f.munged.EncodeAs(operator, nil, time.Minute)}, "not made for Kernel Broker"},
	} {
		ctx, catalog := f.with(t, c.credential...)
		_, err := catalog.RetireProfile(ctx, request)
		want(t, what, err, codes.Unauthenticated, c.words)
	}
	f.recorded(t, `"action":"retire"`, `"allowed":false`, "credential of uid 4244", "used before")

	// munged forgets when it is restarted; the broker does not.
	f.munged.Restart()
	ctx, catalog = f.with(t, good)
	_, err = catalog.RetireProfile(ctx, request)
	want(t, "replayed on a fresh munged", err, codes.Unauthenticated, "used before")
}

// A stream is bound by its first message: another upload cannot take its place.
func TestStolenStream(t *testing.T) {
	f := trust(t)
	const method = api.CatalogService_UploadArtifact_FullMethodName
	meant, put := []byte("meant"), []byte("put in its place")
	first := &api.UploadArtifactRequest{Digest: digestOf(meant), Size: uint64(len(meant))}
	ctx, catalog := f.with(t, f.make(t, operator, cluster, method, first))
	stream, err := catalog.UploadArtifact(ctx)
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, &api.UploadArtifactRequest{Digest: digestOf(put), Size: uint64(len(put)), Data: put})
	_, err = stream.CloseAndRecv()
	want(t, "another first message", err, codes.Unauthenticated, "another call")

	ctx, catalog = f.with(t, f.make(t, operator, cluster, method, first))
	if stream, err = catalog.UploadArtifact(ctx); err != nil {
		t.Fatal(err)
	}
	say(t, stream, first)
	say(t, stream, &api.UploadArtifactRequest{Data: put})
	_, err = stream.CloseAndRecv()
	want(t, "other bytes behind it", err, codes.InvalidArgument, "")
	f.storesNothing(t)
}

// Who cannot be looked up is not denied, and not allowed.
func TestTheHostCannotSay(t *testing.T) {
	f := trust(t)
	f.people.away = true
	_, err := api.NewCatalogServiceClient(f.by(t, operator)).RetireProfile(t.Context(), &api.RetireProfileRequest{RequestId: "1", Name: "mitgcm"})
	want(t, "nobody can say", err, codes.Unavailable, "unavailable")
}

// What cannot be recorded is not done.
func TestNothingIsDoneUnrecorded(t *testing.T) {
	f := trust(t)
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := api.NewCatalogServiceClient(f.local(t)).RetireProfile(t.Context(), &api.RetireProfileRequest{RequestId: "1", Name: "mitgcm"})
	want(t, "no record", err, codes.Unavailable, "audit log")
	if _, err := api.NewCatalogServiceClient(f.local(t)).ListProfiles(t.Context(), &api.ListProfilesRequest{}); err != nil {
		t.Errorf("looking: %v", err)
	}
}

func TestReload(t *testing.T) {
	f := trust(t)
	check := func(code codes.Code) {
		t.Helper()
		_, err := api.NewCatalogServiceClient(f.by(t, plainUser)).CheckProfile(t.Context(), &api.CheckProfileRequest{Profile: "mitgcm"})
		want(t, "check", err, code, "")
	}
	check(codes.PermissionDenied)
	for _, bad := range []string{"", "profile: {}\n", "default:\n  use:\n"} {
		if err := os.WriteFile(f.file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := f.authorizer.Reload(); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := f.authorizer.Health(); err == nil {
			t.Error("the authorizer is well with a bad file")
		}
		check(codes.PermissionDenied)
	}
	if err := os.Remove(f.file); err != nil {
		t.Fatal(err)
	}
	if err := f.authorizer.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	check(codes.PermissionDenied)
	if err := os.WriteFile(f.file, []byte("builders: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.authorizer.Reload(); err != nil {
		t.Fatal(err)
	}
	check(codes.NotFound) // allowed, and there is none
	f.recorded(t, `"kind":"policy"`, `"action":"load"`, "unknown key")
	f.recorded(t, `"kind":"policy"`, `"outcome":"ok"`, f.authorizer.State().Digest)
	if _, err := f.authorizer.Health(); err != nil {
		t.Error(err)
	}
}
