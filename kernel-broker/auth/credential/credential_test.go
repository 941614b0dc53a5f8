// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// notary vouches for whatever it is given, as munged does, at a time of the
// test's choice.
type notary struct {
	uid     uint32
	encoded time.Time
	now     func() time.Time
	err     error
}

func (n *notary) Encode(_ context.Context, payload []byte, _ time.Duration) (string, error) {
	return string(payload), nil
}

func (n *notary) Decode(_ context.Context, credential string) (Decoded, error) {
	return Decoded{UID: n.uid, GID: n.uid, Encoded: n.encoded, Decoded: n.now(), Payload: []byte(credential)}, n.err
}

const method = "/kernelbroker.v1.CatalogService/RetireProfile"

func retire(name string) proto.Message {
	return &api.RetireProfileRequest{RequestId: "1", Name: name, Version: 2}
}

func TestVerify(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	n := &notary{uid: 7, encoded: noon, now: clock}
	v := NewVerifier(Options{Decoder: n, Cluster: "a", Now: clock})
	make := func(cluster, method string, message proto.Message) string {
		credential, err := Make(t.Context(), n, cluster, method, message)
		if err != nil {
			t.Fatal(err)
		}
		return credential
	}
	mine := make("a", method, retire("mitgcm"))
	for _, c := range []struct {
		what       string
		credential string
		encoded    time.Duration // from noon
		at         time.Duration // when it comes
		err        error
	}{
		{"good", mine, 0, 0, nil},
		{"again", mine, 0, 0, ErrUsed},
		{"from another cluster", make("b", method, retire("mitgcm")), 0, 0, ErrElsewhere},
		{"for another method", make("a", "/x/Y", retire("mitgcm")), 0, 0, ErrOtherCall},
		{"at the last moment", make("a", method, nil), 0, MaxAge, nil},
		{"too late", make("a", method, nil), 0, MaxAge + time.Second, ErrStale},
		{"from a little ahead", make("a", method, nil), MaxAge, 0, nil},
		{"from too far ahead", make("a", method, nil), MaxAge + time.Second, 0, ErrStale},
		{"from before the broker began", make("a", method, nil), -2 * time.Second, 0, ErrStale},
		{"no claim", "hello", 0, 0, ErrNoClaim},
		{"nothing", "", 0, 0, ErrNoClaim},
		{"another format", strings.Replace(mine, "/1", "/2", 1), 0, 0, ErrNoClaim},
		{"an upper-case nonce", strings.ToUpper(mine), 0, 0, ErrNoClaim},
		{"more behind it", mine + " ", 0, 0, ErrNoClaim},
	} {
		n.encoded, now = noon.Add(c.encoded), noon.Add(c.at)
		p, err := v.Verify(t.Context(), c.credential, method)
		if !errors.Is(err, c.err) || c.err != nil && !errors.Is(err, kb.ErrUnauthenticated) {
			t.Errorf("%s: %v", c.what, err)
		}
		if p == nil || p.UID != 7 {
			t.Errorf("%s: it is not told whose it was: %+v", c.what, p)
		}
	}
}

// munged's clock may still show the second before the one a broker begins in.
func TestVerifyAtTheTurnOfASecond(t *testing.T) {
	for _, c := range []struct {
		began time.Duration // from noon
		err   error
	}{
		{4 * time.Millisecond, nil},
		{clockLag, ErrStale},
		{-time.Millisecond, nil},
	} {
		n := &notary{uid: 7, encoded: noon.Add(-time.Second), now: func() time.Time { return noon.Add(c.began) }}
		v := NewVerifier(Options{Decoder: n, Cluster: "a", Now: n.now})
		credential, err := Make(t.Context(), n, "a", method, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), credential, method); !errors.Is(err, c.err) {
			t.Errorf("a broker that began %v from noon: a credential of the second before it: %v, want %v", c.began, err, c.err)
		}
	}
}

func TestBinds(t *testing.T) {
	n := &notary{uid: 7, encoded: noon, now: func() time.Time { return noon }}
	v := NewVerifier(Options{Decoder: n, Cluster: "a", Now: n.now})
	credential, err := Make(t.Context(), n, "a", method, retire("mitgcm"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Verify(t.Context(), credential, method)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Binds(retire("mitgcm")); err != nil {
		t.Error(err)
	}
	for _, other := range []proto.Message{retire("lammps"), &api.RetireProfileRequest{}, &api.ReleaseQuarantineRequest{RequestId: "1", Name: "mitgcm", Version: 2}, nil} {
		if err := p.Binds(other); !errors.Is(err, ErrOtherCall) {
			t.Errorf("%v: %v", other, err)
		}
	}
}

// When munged is away nobody is proven, and nobody is called a liar.
func TestVerifyWithoutANotary(t *testing.T) {
	n := &notary{err: kb.ErrUnavailable, now: func() time.Time { return noon }}
	v := NewVerifier(Options{Decoder: n, Cluster: "a"})
	if p, err := v.Verify(t.Context(), "x", method); p != nil || !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrUnauthenticated) {
		t.Errorf("%+v, %v", p, err)
	}
}

// One user's calls neither grow without end nor take the others' room.
func TestMemoryIsBounded(t *testing.T) {
	m := memory{users: map[uint32]map[string]time.Time{}}
	now := noon
	nonce := func(i int) string { return string(rune(i)) }
	for i := range mostOfUser {
		if err := m.add(now, 1, nonce(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.add(now, 1, "one more"); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("one more: %v", err)
	}
	if err := m.add(now, 2, nonce(1)); err != nil {
		t.Errorf("another user: %v", err)
	}
	now = now.Add(RememberedFor - time.Second)
	if err := m.add(now, 2, nonce(1)); !errors.Is(err, ErrUsed) {
		t.Errorf("just within memory: %v", err)
	}
	now = now.Add(time.Minute)
	if err := m.add(now, 1, "one more"); err != nil {
		t.Errorf("after a while: %v", err)
	}
	if m.all != 1 || len(m.users) != 1 {
		t.Errorf("%d calls of %d users are remembered", m.all, len(m.users))
	}
}

func profiles(t *rapid.T) *api.ApplyProfileRequest {
	text := rapid.SampledFrom([]string{"", "a", "b", "ab"})
	r := &api.ApplyProfileRequest{RequestId: text.Draw(t, "id")}
	if rapid.Bool().Draw(t, "has a profile") {
		r.Profile = &api.Profile{Name: text.Draw(t, "name"), Application: text.Draw(t, "application"), DefaultVersion: rapid.Uint32Range(0, 2).Draw(t, "default")}
		for range rapid.IntRange(0, 2).Draw(t, "versions") {
			r.Profile.Versions = append(r.Profile.Versions, &api.ProfileVersion{Kernel: &api.KernelSpec{
				Arguments: rapid.SliceOfN(text, 0, 3).Draw(t, "arguments"), ImageSize: uint64(rapid.IntRange(0, 1).Draw(t, "size"))}})
		}
	}
	return r
}

// Two messages have one digest when they are equal, and then only, also after
// they went over the wire.
func TestDigestIsEquality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := profiles(t), profiles(t)
		if (Digest(a) == Digest(b)) != proto.Equal(a, b) {
			t.Fatalf("%v and %v: %s, %s", a, b, Digest(a), Digest(b))
		}
		wire, err := proto.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		back := &api.ApplyProfileRequest{}
		if err := proto.Unmarshal(wire, back); err != nil || Digest(a) != Digest(back) {
			t.Fatalf("%v over the wire: %v", a, err)
		}
	})
}

func TestDigestOfEveryKind(t *testing.T) {
	seen := map[string]string{}
	one := func(x *uint32) *api.GetJobRequest { return &api.GetJobRequest{JobId: 1, RestartCount: x} }
	zero, two := uint32(0), uint32(2)
	unknown := one(nil)
	unknown.ProtoReflect().SetUnknown([]byte{0x78, 1})
	numbers, err := structpb.NewStruct(map[string]any{"a": 1.5, "b": []any{true, nil, "x"}})
	if err != nil {
		t.Fatal(err)
	}
	others, err := structpb.NewStruct(map[string]any{"a": 1.5, "b": []any{false, nil, "x"}})
	if err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]proto.Message{
		"unset": one(nil), "zero": one(&zero), "two": one(&two), "unknown field": unknown, "none": nil, "empty": &api.GetJobRequest{},
		"empty of another type": &api.ListJobsRequest{}, "maps": numbers, "other maps": others,
		"bytes": &api.UploadArtifactRequest{Data: []byte("x")}, "text": &api.UploadArtifactRequest{Digest: "x"},
		"enum": &api.Profile{Reuse: api.ReusePolicy_REUSE_POLICY_NEVER}, "another enum": &api.Profile{Fallback: api.FallbackPolicy_FALLBACK_POLICY_REQUEUE},
	} {
		sum := Digest(m)
		if other, has := seen[sum]; has || len(sum) != 64 {
			t.Errorf("%s and %s have one digest", what, other)
		}
		if m != nil && Digest(proto.Clone(m)) != sum {
			t.Errorf("%s: its copy has another digest", what)
		}
		seen[sum] = what
	}
}

func FuzzClaim(f *testing.F) {
	c := Claim{Cluster: "a", Method: method, Nonce: strings.Repeat("0", 32), Digest: strings.Repeat("f", 64)}
	f.Add(c.payload())
	f.Add([]byte("kernel-broker/1 a b c d"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := parseClaim(payload)
		if err == nil && string(c.payload()) != string(payload) {
			t.Errorf("%q is read as %+v", payload, c)
		}
	})
}
