// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

func TestCatalogOverTheSocket(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	sent := apiProfile("mitgcm", digestOf([]byte("kernel")), 6)
	sent.Versions[0].Documents, sent.Versions[0].Measured = []*api.Document{{Name: "report", Digest: digestOf(nil)}}, aMeasurement(-13.3)
	applied, err := client.ApplyProfile(t.Context(), &api.ApplyProfileRequest{RequestId: "1", Profile: sent, Reason: "because"})
	if err != nil || !applied.GetChanged() {
		t.Fatalf("ApplyProfile = %v, %v", applied, err)
	}
	got, err := client.GetProfile(t.Context(), &api.GetProfileRequest{Name: "mitgcm"})
	if err != nil || !proto.Equal(got.GetProfile(), applied.GetProfile()) {
		t.Errorf("GetProfile = %v, %v", got, err)
	}
	if h := got.GetProfile().GetHistory(); len(h) != 1 || h[0].GetWhat() != "registered" || h[0].GetVersion() != 1 ||
		!strings.Contains(h[0].GetWho(), "uid "+strconv.Itoa(os.Geteuid())) || h[0].GetReason() != "because" {
		t.Errorf("history is %v", h)
	}
	got.Profile.Versions[0].RegisteredAt, got.Profile.History = nil, nil
	if !proto.Equal(got.GetProfile(), sent) {
		t.Errorf("got %v\nsent %v", got.GetProfile(), sent)
	}
	list, err := client.ListProfiles(t.Context(), &api.ListProfilesRequest{})
	if err != nil || len(list.GetProfiles()) != 1 {
		t.Errorf("ListProfiles = %v, %v", list, err)
	}
	check, err := client.CheckProfile(t.Context(), &api.CheckProfileRequest{Profile: "mitgcm"})
	if err != nil || check.GetName() != "mitgcm" || check.GetVersion() != 1 {
		t.Errorf("CheckProfile = %v, %v", check, err)
	}
	snapshot, err := client.GetSnapshot(t.Context(), &api.GetSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if text := snapshot.GetSnapshot(); !strings.HasSuffix(text, "\nprofile mitgcm 1 1 available\nend\n") {
		t.Errorf("GetSnapshot = %q", text)
	}
}

// aMeasurement is the least that one has, from the empty report.
func aMeasurement(percent float64) *api.Measurement {
	return &api.Measurement{Outcome: api.Outcome_OUTCOME_BENEFIT, Workload: "w", Metric: "kernel_instructions", ReportDigest: digestOf(nil),
		ToStock: &api.Gain{Kernel: &api.Estimate{Percent: percent, LowPercent: percent, HighPercent: percent}}}
}

// Figures that are none are refused before anything is kept of the profile.
func TestMeasurementRefusals(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	for name, percent := range map[string]float64{"no number": math.NaN(), "infinite": math.Inf(1), "less than nothing": -101, "too large": 1e300} {
		p := apiProfile("mitgcm", digestOf(nil), 0)
		p.Versions[0].Documents, p.Versions[0].Measured = []*api.Document{{Name: "report", Digest: digestOf(nil)}}, aMeasurement(percent)
		_, err := client.ApplyProfile(t.Context(), &api.ApplyProfileRequest{RequestId: "1", Profile: p})
		want(t, name, err, codes.InvalidArgument, `kernel "mitgcm@1": measurement: against stock: kernel: `)
	}
	_, err := client.GetProfile(t.Context(), &api.GetProfileRequest{Name: "mitgcm"})
	want(t, "afterwards", err, codes.NotFound, "mitgcm")
}

func TestCatalogRefusals(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	ctx := t.Context()
	if _, err := client.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "1", Profile: apiProfile("mitgcm", digestOf(nil), 0)}); err != nil {
		t.Fatal(err)
	}
	_, err := client.CheckProfile(ctx, &api.CheckProfileRequest{Profile: "mitgmc"})
	want(t, "unknown", err, codes.NotFound, `unknown kernel profile "mitgmc"; did you mean "mitgcm"?`)
	_, err = client.CheckProfile(ctx, &api.CheckProfileRequest{Profile: "mitgcm@0"})
	want(t, "bad version", err, codes.InvalidArgument, `version "0"`)
	plain := apiProfile("lammps", digestOf(nil), 0)
	plain.Versions[0].NoBtf = true
	if _, err := client.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "6", Profile: plain}); err != nil {
		t.Fatal(err)
	}
	_, err = client.CheckProfile(ctx, &api.CheckProfileRequest{Profile: "lammps", Profiling: true})
	want(t, "no types", err, codes.FailedPrecondition, `kernel "lammps@1" has no type information (BTF)`)
	for _, r := range []*api.CheckProfileRequest{{Profile: "lammps"}, {Profile: "mitgcm", Profiling: true}} {
		if _, err := client.CheckProfile(ctx, r); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	_, err = client.GetProfile(ctx, &api.GetProfileRequest{Name: "a b"})
	want(t, "bad name", err, codes.InvalidArgument, `"a b"`)
	_, err = client.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "2"})
	want(t, "no profile", err, codes.InvalidArgument, "no profile")
	_, err = client.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "2", Profile: apiProfile("mitgcm", digestOf([]byte("x")), 1)})
	want(t, "other content", err, codes.FailedPrecondition, `kernel "mitgcm@1" exists`)
	_, err = client.ReleaseQuarantine(ctx, &api.ReleaseQuarantineRequest{RequestId: "3", Name: "mitgcm", Version: 1})
	want(t, "not quarantined", err, codes.FailedPrecondition, `"mitgcm@1" is not quarantined`)
	_, err = client.RetireProfile(ctx, &api.RetireProfileRequest{RequestId: "4", Name: "stock"})
	want(t, "stock", err, codes.FailedPrecondition, `"stock"`)
	_, err = client.RetireProfile(ctx, &api.RetireProfileRequest{RequestId: "4", Name: "a b"})
	want(t, "bad name", err, codes.InvalidArgument, `"a b"`)
	_, err = client.RetireProfile(ctx, &api.RetireProfileRequest{Name: "mitgcm"})
	want(t, "no request id", err, codes.InvalidArgument, "request id")
	_, err = client.RetireProfile(ctx, &api.RetireProfileRequest{RequestId: "4", Name: "mitgmc"})
	want(t, "unknown", err, codes.NotFound, `did you mean "mitgcm"?`)
	f.store.FailReads(1)
	_, err = client.ListProfiles(ctx, &api.ListProfilesRequest{})
	want(t, "store away", err, codes.Unavailable, "catalog")
}

func TestRetireOverTheWire(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	ctx := t.Context()
	if _, err := client.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "1", Profile: apiProfile("mitgcm", digestOf(nil), 0)}); err != nil {
		t.Fatal(err)
	}
	request := &api.RetireProfileRequest{RequestId: "2", Name: "mitgcm", Reason: "too old"}
	for _, changed := range []bool{true, false} {
		response, err := client.RetireProfile(ctx, request)
		if err != nil || response.GetChanged() != changed || response.GetProfile().GetVersions()[0].GetRetired().GetReason() != "too old" {
			t.Errorf("RetireProfile = %v, %v, want changed %v", response, err, changed)
		}
	}
	_, err := client.CheckProfile(ctx, &api.CheckProfileRequest{Profile: "mitgcm"})
	want(t, "retired", err, codes.FailedPrecondition, `kernel "mitgcm@1" is retired since`)
	snapshot, err := client.GetSnapshot(ctx, &api.GetSnapshotRequest{})
	if err != nil || strings.Contains(snapshot.GetSnapshot(), "mitgcm") {
		t.Errorf("GetSnapshot = %v, %v", snapshot, err)
	}
	_, err = api.NewCatalogServiceClient(f.as(t, plainUser)).RetireProfile(ctx, request)
	want(t, "a user", err, codes.PermissionDenied, "only administrators may")
}

func upload(t *testing.T, client api.CatalogServiceClient, messages ...*api.UploadArtifactRequest) (*api.UploadArtifactResponse, error) {
	t.Helper()
	stream, err := client.UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if !say(t, stream, m) {
			break
		}
	}
	return stream.CloseAndRecv()
}

func TestUploadAndFetch(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	data := []byte(strings.Repeat("kernel image ", 50000)) // several chunks
	digest := digestOf(data)
	first := &api.UploadArtifactRequest{Digest: digest, Size: uint64(len(data)), Data: data[:7]}
	rest := &api.UploadArtifactRequest{Data: data[7:]}
	for _, stored := range []bool{true, false} {
		response, err := upload(t, client, first, rest)
		if err != nil || response.GetStored() != stored {
			t.Errorf("UploadArtifact = %v, %v, want stored %v", response, err, stored)
		}
	}
	public := api.NewCatalogServiceClient(f.remote(t))
	for _, offset := range []int{0, 1, len(data) - 1, len(data)} {
		got, largest, err := fetch(t, public, digest, offset)
		if err != nil || string(got) != string(data[offset:]) {
			t.Errorf("FetchArtifact from %d: %d bytes, %v", offset, len(got), err)
		}
		if largest > 256<<10 || offset == 0 && largest < 64<<10 {
			t.Errorf("chunks of %d bytes", largest)
		}
	}
	_, _, err := fetch(t, public, digest, len(data)+1)
	want(t, "past the end", err, codes.OutOfRange, digest)
	_, _, err = fetch(t, public, digestOf(nil), 0)
	want(t, "unknown digest", err, codes.NotFound, digestOf(nil))
	_, _, err = fetch(t, public, "sha256:../../etc/passwd", 0)
	want(t, "bad digest", err, codes.InvalidArgument, "digest")
}

func fetch(t *testing.T, client api.CatalogServiceClient, digest string, offset int) ([]byte, int, error) {
	t.Helper()
	stream, err := client.FetchArtifact(t.Context(), &api.FetchArtifactRequest{Digest: digest, Offset: uint64(offset)})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	largest := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return data, largest, nil
		}
		if err != nil {
			return nil, 0, err
		}
		data, largest = append(data, m.GetData()...), max(largest, len(m.GetData()))
	}
}

func TestUploadRefused(t *testing.T) {
	f := serve(t, func(o *server.Options) { o.MaxArtifactBytes = 10 }, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	data := []byte("12345678")
	digest, size := digestOf(data), uint64(len(data))
	for _, c := range []struct {
		name     string
		messages []*api.UploadArtifactRequest
		code     codes.Code
		words    string
	}{
		{"nothing", nil, codes.InvalidArgument, "first message"},
		{"no digest", []*api.UploadArtifactRequest{{Data: data}}, codes.InvalidArgument, "digest"},
		{"too large", []*api.UploadArtifactRequest{{Digest: digest, Size: 11}}, codes.ResourceExhausted, "at most 10"},
		{"more than announced", []*api.UploadArtifactRequest{{Digest: digest, Size: 7, Data: data}}, codes.InvalidArgument, "too large"},
		{"less than announced", []*api.UploadArtifactRequest{{Digest: digest, Size: size, Data: data[:7]}}, codes.InvalidArgument, "truncated"},
		{"other bytes", []*api.UploadArtifactRequest{{Digest: digest, Size: size, Data: []byte("12345679")}}, codes.InvalidArgument, "does not match"},
		{"in the middle", []*api.UploadArtifactRequest{{Digest: digest, Size: size, Offset: 1, Data: data[1:]}}, codes.Aborted, "begin at the first byte"},
		{"past the end", []*api.UploadArtifactRequest{{Digest: digest, Size: size, Offset: size + 1}}, codes.Aborted, "begin at the first byte"},
		{"offset twice", []*api.UploadArtifactRequest{{Digest: digest, Size: size}, {Offset: 1, Data: data}}, codes.InvalidArgument, "after its first"},
		{"digest twice", []*api.UploadArtifactRequest{{Digest: digest, Size: size}, {Digest: digest, Data: data}}, codes.InvalidArgument, "after its first"},
	} {
		_, err := upload(t, client, c.messages...)
		want(t, c.name, err, c.code, c.words)
	}
	f.storesNothing(t)
}

func TestLifecycleOverTheWire(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	ctx := t.Context()
	p := apiProfile("mitgcm", digestOf(nil), 0)
	second := proto.CloneOf(p.GetVersions()[0])
	second.Kernel.Version, second.Kernel.Arguments = 2, []string{"quiet"}
	p.Versions = append(p.Versions, second)
	if _, err := client.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "1", Profile: p}); err != nil {
		t.Fatal(err)
	}
	promoted, err := client.PromoteVersion(ctx, &api.PromoteVersionRequest{RequestId: "2", Name: "mitgcm", Version: 2, Reason: "faster"})
	if err != nil || !promoted.GetChanged() || promoted.GetProfile().GetDefaultVersion() != 2 {
		t.Fatalf("PromoteVersion = %v, %v", promoted, err)
	}
	back, err := client.PromoteVersion(ctx, &api.PromoteVersionRequest{RequestId: "3", Name: "mitgcm", Reason: "it was not"})
	if err != nil || back.GetProfile().GetDefaultVersion() != 1 {
		t.Fatalf("roll back = %v, %v", back, err)
	}
	_, err = client.PromoteVersion(ctx, &api.PromoteVersionRequest{RequestId: "4", Name: "mitgcm"})
	want(t, "no further back", err, codes.FailedPrecondition, "no default version before 1")
	if _, err := client.QuarantineVersion(ctx, &api.QuarantineVersionRequest{RequestId: "5", Name: "mitgcm", Version: 2, Reason: "loses data"}); err != nil {
		t.Fatal(err)
	}
	_, err = client.PromoteVersion(ctx, &api.PromoteVersionRequest{RequestId: "6", Name: "mitgcm", Version: 2})
	want(t, "quarantined", err, codes.FailedPrecondition, "loses data")
	if _, err := client.ReleaseQuarantine(ctx, &api.ReleaseQuarantineRequest{RequestId: "7", Name: "mitgcm", Version: 2, Reason: "it did not"}); err != nil {
		t.Fatal(err)
	}
	signed, err := client.SignVersion(ctx, &api.SignVersionRequest{RequestId: "8", Name: "mitgcm", Version: 2, Envelope: []byte("{}")})
	if err != nil || string(signed.GetProfile().GetVersions()[1].GetEnvelope()) != "{}" {
		t.Fatalf("SignVersion = %v, %v", signed, err)
	}
	var words []string
	for _, c := range signed.GetProfile().GetHistory() {
		words = append(words, fmt.Sprintf("%s %d %s", c.GetWhat(), c.GetVersion(), c.GetReason()))
	}
	if got := strings.Join(words, "; "); got != "registered 1 ; registered 2 ; promoted 2 faster; rolled-back 1 it was not; "+
		"quarantined 2 loses data; released 2 it did not; signed 2 " {
		t.Errorf("history is %s", got)
	}
	user := api.NewCatalogServiceClient(f.as(t, plainUser))
	_, err = user.PromoteVersion(ctx, &api.PromoteVersionRequest{RequestId: "9", Name: "mitgcm", Version: 2})
	want(t, "a user", err, codes.PermissionDenied, "")
	_, err = user.ListArtifacts(ctx, &api.ListArtifactsRequest{})
	want(t, "a user", err, codes.PermissionDenied, "")
}

// An upload whose line goes dead starts again, as a client does that knows brokers which keep a part.
func TestBrokenUploadOverTheWire(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	data := []byte("needed")
	digest := digestOf(data)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.UploadArtifact(ctx)
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, &api.UploadArtifactRequest{Digest: digest, Size: 6, Data: data[:4]})
	running := func() uint64 {
		_, used, _, err := f.files.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	until(t, "the upload", func() bool { return running() == 6 })
	state, err := client.GetArtifact(t.Context(), &api.GetArtifactRequest{Digest: digest})
	if err != nil || state.GetStored() || state.GetSize() != 0 {
		t.Errorf("GetArtifact = %v, %v", state, err)
	}
	_, err = upload(t, client, &api.UploadArtifactRequest{Digest: digest, Size: 6, Data: data})
	want(t, "the same beside it", err, codes.Unavailable, "another upload")
	cancel() // the line goes dead
	until(t, "its end", func() bool { return running() == 0 })
	got, err := upload(t, client, &api.UploadArtifactRequest{Digest: digest, Size: 6, Data: data})
	if err != nil || !got.GetStored() {
		t.Errorf("UploadArtifact = %v, %v", got, err)
	}
	state, err = client.GetArtifact(t.Context(), &api.GetArtifactRequest{Digest: digest})
	if err != nil || !state.GetStored() || state.GetSize() != 6 {
		t.Errorf("GetArtifact = %v, %v", state, err)
	}
}

func TestListAndCollectOverTheWire(t *testing.T) {
	f := serve(t, nil, nil)
	client := api.NewCatalogServiceClient(f.local(t))
	f.keep(t, []byte("needed"))
	f.keep(t, []byte("not needed"))
	sizes := func() (all []uint64) {
		list, err := client.ListArtifacts(t.Context(), &api.ListArtifactsRequest{})
		if err != nil || list.GetLimitBytes() != 1<<30 {
			t.Fatalf("ListArtifacts = %v, %v", list, err)
		}
		used := uint64(0)
		for _, file := range list.GetArtifacts() {
			if needed := file.GetSize() == 6; needed != (len(file.GetNeededBy()) == 1) {
				t.Errorf("a file of %d bytes is needed by %v", file.GetSize(), file.GetNeededBy())
			}
			all, used = append(all, file.GetSize()), used+file.GetSize()
		}
		if used != list.GetUsedBytes() {
			t.Errorf("%d bytes used, the files have %d", list.GetUsedBytes(), used)
		}
		return all
	}
	if got := sizes(); len(got) != 2 {
		t.Errorf("files of %v bytes", got)
	}
	for _, dryRun := range []bool{true, false} {
		removed, err := client.CollectArtifacts(t.Context(), &api.CollectArtifactsRequest{DryRun: dryRun})
		if err != nil || len(removed.GetRemoved()) != 1 || removed.GetRemoved()[0].GetSize() != 10 || (len(sizes()) == 2) != dryRun {
			t.Errorf("dry run %v: CollectArtifacts = %v, %v", dryRun, removed, err)
		}
	}
}
