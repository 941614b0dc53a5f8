// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var moment = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func kernel() kb.Kernel {
	return kb.Kernel{
		Profile: "mitgcm", Version: 3,
		ImageDigest: "sha256:" + strings.Repeat("1", 64), ImageSize: 5 << 20,
		InitrdDigest: "sha256:" + strings.Repeat("2", 64), InitrdSize: 9 << 20,
		ModulesDigest: "sha256:" + strings.Repeat("3", 64), ModulesSize: 3 << 20,
		Arguments: []string{"mitigations=off", "hugepages=4"}, BuildID: strings.Repeat("ab", 20),
		Release: "6.1.0-mitgcm", Architecture: "x86_64", Drivers: []string{"ext4", "virtio_net"}, MinMemoryMiB: 256,
	}
}

func terms() Terms {
	return Terms{Cluster: "alpha", Made: moment.Add(-time.Hour), Expires: moment.Add(24 * time.Hour), Floor: 2}
}

func ed(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

func trusts(t testing.TB, name string, by crypto.Signer) TrustedKey {
	t.Helper()
	id, err := KeyID(by.Public())
	if err != nil {
		t.Fatal(err)
	}
	return TrustedKey{Name: name, ID: id, key: key{id, by.Public()}}
}

func sign(t testing.TB, m Manifest, by ...crypto.Signer) []byte {
	t.Helper()
	raw, err := Sign(t.Context(), m, by...)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// forge signs a payload that Sign would not.
func forge(t testing.TB, kind string, payload []byte, by crypto.Signer) []byte {
	t.Helper()
	s, err := newSigner(by)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := s.Sign(t.Context(), dsse.PAE(kind, payload))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(dsse.Envelope{PayloadType: kind, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []dsse.Signature{{KeyID: s.id, Sig: base64.StdEncoding.EncodeToString(signature)}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestEveryKindOfKey(t *testing.T) {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]crypto.Signer{"ed25519": ed(t), "p256": p256, "p384": p384} {
		trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(t, name, by)}}
		v, err := Verify(sign(t, ManifestOf(kernel(), terms()), by), trust, kernel(), Memory{}, moment)
		if err != nil || v.Key.Name != name || v.Manifest.Floor != 2 || v.Manifest.Kernel().Ref() != kernel().Ref() {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Sign(t.Context(), ManifestOf(kernel(), terms()), p224); !errors.Is(err, ErrKey) {
		t.Errorf("P-224: %v", err)
	}
}

// Each row is one thing that somebody could try, and the one error for it.
func TestVerifyRefuses(t *testing.T) {
	own, second, foreign := ed(t), ed(t), ed(t)
	good := ManifestOf(kernel(), terms())
	envelope := sign(t, good, own)
	other := func(change func(*Manifest)) []byte {
		m := ManifestOf(kernel(), terms())
		change(&m)
		return sign(t, m, own)
	}
	type attempt struct {
		envelope []byte
		trust    func(*Trust)
		want     func(*kb.Kernel)
		memory   Memory
		now      time.Time
		err      error
		words    string
	}
	for name, a := range map[string]attempt{
		"unsigned":            {envelope: []byte{}, err: ErrUnsigned},
		"no signatures":       {envelope: []byte(`{"payloadType":"` + PayloadType + `","payload":"","signatures":[]}`), err: ErrUnsigned},
		"not JSON":            {envelope: []byte("rubbish"), err: ErrMalformed},
		"something follows":   {envelope: append([]byte(string(envelope)), " {}"...), err: ErrMalformed},
		"unknown field":       {envelope: []byte(strings.Replace(string(envelope), `{"payloadType"`, `{"x":1,"payloadType"`, 1)), err: ErrMalformed},
		"huge":                {envelope: make([]byte, MaxEnvelope+1), err: ErrMalformed},
		"many signatures":     {envelope: crowded(t, envelope, maxSignatures+1), err: ErrMalformed, words: "9 signatures"},
		"another type":        {envelope: forge(t, "application/vnd.in-toto+json", []byte("{}"), own), err: ErrMalformed, words: "in-toto"},
		"signed rubbish":      {envelope: forge(t, PayloadType, []byte("{}"), own), err: ErrMalformed},
		"signed, other order": {envelope: forge(t, PayloadType, []byte(`{"cluster":"alpha","format":1}`), own), err: ErrMalformed},
		"signed, key twice": {envelope: forge(t, PayloadType, []byte(strings.Replace(payload(t, good), `"format":1`, `"format":1,"format":1`, 1)), own),
			err: ErrMalformed, words: "canonical"},
		"signed, other case": {envelope: forge(t, PayloadType, []byte(strings.Replace(payload(t, good), `"cluster"`, `"Cluster"`, 1)), own),
			err: ErrMalformed, words: "canonical"},
		"foreign key":      {envelope: sign(t, good, foreign), err: ErrUnknownKey},
		"foreign, our id":  {envelope: renamed(t, sign(t, good, foreign), own), err: ErrBadSignature, words: "release"},
		"changed payload":  {envelope: repacked(t, envelope, sign(t, ManifestOf(kernel(), Terms{Cluster: "alpha", Made: moment, Expires: moment.Add(time.Hour)}), foreign)), err: ErrBadSignature},
		"revoked key":      {trust: func(tr *Trust) { tr.RevokedKeys = []string{tr.Keys[0].ID} }, err: ErrRevoked},
		"key too old":      {trust: func(tr *Trust) { tr.Keys[0].NotAfter = moment }, err: ErrKeyPeriod},
		"key too new":      {trust: func(tr *Trust) { tr.Keys[0].NotBefore = moment.Add(time.Second) }, err: ErrKeyPeriod},
		"key of others":    {trust: func(tr *Trust) { tr.Keys[0].Profiles = []string{"gromacs*", "namd"} }, err: ErrKeyProfile, words: "release"},
		"other cluster":    {trust: func(tr *Trust) { tr.Cluster = "beta" }, err: ErrOtherCluster, words: `"alpha", this is "beta"`},
		"revoked image":    {trust: func(tr *Trust) { tr.RevokedDigests = []string{kernel().ImageDigest} }, err: ErrRevoked},
		"revoked modules":  {trust: func(tr *Trust) { tr.RevokedDigests = []string{kernel().ModulesDigest} }, err: ErrRevoked},
		"other modules":    {want: func(k *kb.Kernel) { k.ModulesDigest = k.InitrdDigest }, err: ErrMismatch, words: "modules digest"},
		"no modules":       {want: func(k *kb.Kernel) { k.ModulesDigest, k.ModulesSize = "", 0 }, err: ErrMismatch, words: "modules"},
		"revoked initrd":   {trust: func(tr *Trust) { tr.RevokedDigests = []string{kernel().InitrdDigest} }, err: ErrRevoked},
		"list's floor":     {trust: func(tr *Trust) { tr.Floors = map[string]uint32{"mitgcm": 4} }, err: ErrFloor, words: "version 3, the floor is 4"},
		"remembered floor": {memory: Memory{Floors: map[string]uint32{"mitgcm": 4, "x": 1}}, err: ErrFloor},
		"expired":          {now: moment.Add(24 * time.Hour), err: ErrExpired, words: "2026-11-21"},
		"clock set back":   {memory: Memory{Newest: moment.Add(25 * time.Hour)}, now: moment, err: ErrExpired},
		"clock at zero":    {now: time.Unix(0, 0), err: ErrFuture},
		"other profile":    {want: func(k *kb.Kernel) { k.Profile = "gromacs" }, err: ErrMismatch, words: "profile"},
		"other version":    {want: func(k *kb.Kernel) { k.Version = 4 }, err: ErrMismatch, words: `version is "4", signed is "3"`},
		"other image":      {want: func(k *kb.Kernel) { k.ImageDigest = k.InitrdDigest }, err: ErrMismatch, words: "image digest"},
		"other size":       {want: func(k *kb.Kernel) { k.ImageSize++ }, err: ErrMismatch, words: "image size"},
		"no initrd":        {want: func(k *kb.Kernel) { k.InitrdDigest, k.InitrdSize = "", 0 }, err: ErrMismatch, words: "initrd"},
		"an initrd":        {envelope: other(func(m *Manifest) { m.Initrd = nil }), err: ErrMismatch, words: "initrd"},
		"more arguments":   {want: func(k *kb.Kernel) { k.Arguments = append(k.Arguments, "selinux=0") }, err: ErrMismatch, words: "arguments"},
		"argument order":   {want: func(k *kb.Kernel) { k.Arguments = []string{"hugepages=4", "mitigations=off"} }, err: ErrMismatch, words: "arguments"},
		"joined arguments": {want: func(k *kb.Kernel) { k.Arguments = []string{"mitigations=off hugepages=4"} }, err: ErrMismatch, words: "arguments"},
		"other build id":   {want: func(k *kb.Kernel) { k.BuildID = strings.Repeat("cd", 20) }, err: ErrMismatch, words: "build id"},
		"other release":    {want: func(k *kb.Kernel) { k.Release = "6.1.0" }, err: ErrMismatch, words: "release"},
		"more drivers":     {want: func(k *kb.Kernel) { k.Drivers = append(k.Drivers, "nvme") }, err: ErrMismatch, words: "drivers"},
		"system cores":     {want: func(k *kb.Kernel) { k.SystemCores = 1 }, err: ErrMismatch, words: `system cores is "1", signed is "0"`},
		"less memory":      {want: func(k *kb.Kernel) { k.MinMemoryMiB = 1 }, err: ErrMismatch, words: "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(t, "release", own), trusts(t, "spare", second)}}
			if a.trust != nil {
				a.trust(&trust)
			}
			want := kernel()
			if a.want != nil {
				a.want(&want)
			}
			if a.envelope == nil {
				a.envelope = envelope
			}
			if a.now.IsZero() {
				a.now = moment
			}
			v, err := Verify(a.envelope, trust, want, a.memory, a.now)
			if !errors.Is(err, a.err) || v.Manifest.Profile != "" {
				t.Fatalf("%+v, error %v, want %v", v, err, a.err)
			}
			if !strings.Contains(err.Error(), a.words) || !strings.Contains(err.Error(), want.Ref().String()) {
				t.Errorf("error %q lacks %q", err, a.words)
			}
		})
	}
}

// A true signature does not carry what nobody signed: it would fill the
// broker's store and every message to a node.
func TestEnvelopeHasNoRoomForMore(t *testing.T) {
	own := ed(t)
	trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(t, "own", own)}}
	good := sign(t, ManifestOf(kernel(), terms()), own)
	with := func(change func(*dsse.Envelope)) []byte {
		e := open(t, good)
		change(&e)
		return pack(t, e)
	}
	another := "sha256:" + strings.Repeat("5", 64)
	more := func(id string, signature int) []byte {
		return with(func(e *dsse.Envelope) {
			e.Signatures = append(e.Signatures, dsse.Signature{KeyID: id, Sig: strings.Repeat("A", signature)})
		})
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, good, "", "  "); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		envelope []byte
		words    string // of the refusal; none where it is taken
	}{
		"as it is made":        {good, ""},
		"set in lines":         {indented.Bytes(), ""},
		"an unknown kind":      {more(another, maxSignature), ""},
		"RSA with 4096 bits":   {more(another, base64.StdEncoding.EncodedLen(512)), ""},
		"a key without a name": {more("", 4), ""},
		"its own without one":  {with(func(e *dsse.Envelope) { e.Signatures[0].KeyID = "" }), ""},
		"no name of a key":     {more("x", 4), `signatures[1]: keyid "x" is no key's`},
		"a digest in capitals": {more("sha256:"+strings.Repeat("A", 64), 4), "signatures[1]: keyid"},
		"long key id":          {more(another+"5", 4), "signatures[1]: keyid"},
		"half a MiB of key id": {more(strings.Repeat("x", 500<<10), 4), "signatures[1]: keyid"},
		"long signature":       {more(another, maxSignature+4), "signatures[1]: sig of 4100 bytes, at most 4096"},
		"blanks behind":        {append(bytes.Clone(good), bytes.Repeat([]byte(" "), 400<<10)...), "are white space"},
		"a key given twice": {bytes.Replace(good, []byte(`"payloadType"`),
			[]byte(`"payload":"`+strings.Repeat("A", 400<<10)+`","payloadType"`), 1), "are white space"},
		"lines in the payload": {with(func(e *dsse.Envelope) { e.Payload += strings.Repeat("\n", 1) }), "payload"},
	} {
		_, err := Verify(c.envelope, trust, kernel(), Memory{}, moment)
		if c.words == "" && err != nil || c.words != "" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %d bytes, %v, want %q", name, len(c.envelope), err, c.words)
		}
	}
}

// One key that is still good carries an envelope whose other key is gone.
func TestOneGoodKeyIsEnough(t *testing.T) {
	old, fresh := ed(t), ed(t)
	trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(t, "old", old), trusts(t, "fresh", fresh)}}
	trust.RevokedKeys = []string{trust.Keys[0].ID}
	v, err := Verify(sign(t, ManifestOf(kernel(), terms()), old, fresh), trust, kernel(), Memory{}, moment)
	if err != nil || v.Key.Name != "fresh" {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestKeyForSomeProfiles(t *testing.T) {
	own := ed(t)
	trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(t, "ocean", own)}}
	trust.Keys[0].Profiles = []string{"namd", "mit*"}
	if _, err := Verify(sign(t, ManifestOf(kernel(), terms()), own), trust, kernel(), Memory{}, moment); err != nil {
		t.Error(err)
	}
}

func TestMemoryOnlyRises(t *testing.T) {
	low, high := ManifestOf(kernel(), terms()), ManifestOf(kernel(), terms())
	high.Floor, high.Made = 3, high.Made.Add(time.Minute)
	memory, changed := Memory{}.Learn(high, moment)
	if !changed || memory.Floors["mitgcm"] != 3 || !memory.Newest.Equal(high.Made) {
		t.Errorf("learned %+v, %v", memory, changed)
	}
	// Neither by an older manifest, nor with a clock that was set back.
	for _, now := range []time.Time{moment, moment.Add(-48 * time.Hour)} {
		again, changed := memory.Learn(low, now)
		if changed || again.Floors["mitgcm"] != 3 || !again.Newest.Equal(high.Made) {
			t.Errorf("at %v: learned %+v, %v", now, again, changed)
		}
	}
}

// A key that is good for one profile cannot make the others' signatures expire:
// however far ahead its manifests are dated, the memory of time does not go
// beyond the node's clock, and with it what counts as the present.
func TestNoManifestLeadsTheClock(t *testing.T) {
	narrow, admin := ed(t), ed(t)
	builder := trusts(t, "builder", narrow)
	builder.Profiles = []string{"mitgcm"}
	trust := Trust{Cluster: "alpha", Keys: []TrustedKey{builder, trusts(t, "admin", admin)}}
	stock := kernel()
	stock.Profile, stock.ModulesDigest, stock.ModulesSize = "stock", "", 0
	signed := sign(t, ManifestOf(stock, Terms{Cluster: "alpha", Made: moment.Add(-time.Hour), Expires: moment.AddDate(1, 0, 0)}), admin)
	memory, accepted := Memory{}, 0
	for day := 1; day <= 366; day++ {
		made := moment.AddDate(0, 0, day)
		m := ManifestOf(kernel(), Terms{Cluster: "alpha", Made: made, Expires: made.Add(time.Hour)})
		v, err := Verify(sign(t, m, narrow), trust, kernel(), memory, moment)
		if err != nil {
			if !errors.Is(err, ErrFuture) {
				t.Fatalf("dated %v: %v", made, err)
			}
			continue
		}
		accepted++
		memory, _ = memory.Learn(v.Manifest, moment)
	}
	if _, err := Verify(signed, trust, stock, memory, moment); err != nil || memory.Newest.After(moment) || accepted != 1 {
		t.Errorf("%d of 366 accepted, the newest is %v, it is %v; stock: %v", accepted, memory.Newest, moment, err)
	}
}

// What has expired does not come back with a clock that is set back.
func TestMemoryKeepsTheClock(t *testing.T) {
	own := ed(t)
	trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(t, "own", own)}}
	envelope := sign(t, ManifestOf(kernel(), terms()), own) // for a day from now
	for name, made := range map[string]time.Duration{"by a clock that was right": 0, "by a signer's that is ahead": 5 * time.Hour} {
		later := moment.Add(25 * time.Hour)
		next := ManifestOf(kernel(), Terms{Cluster: "alpha", Made: later.Add(made), Expires: later.AddDate(0, 1, 0)})
		memory, _ := Memory{}.Learn(next, later)
		if _, err := Verify(envelope, trust, kernel(), memory, moment); !errors.Is(err, ErrExpired) {
			t.Errorf("%s: remembered %v, then %v", name, memory.Newest, err)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"no cluster":           func(m *Manifest) { m.Cluster = "" },
		"cluster with a space": func(m *Manifest) { m.Cluster = "a b" },
		"floor above":          func(m *Manifest) { m.Floor = 4 },
		"expired when made":    func(m *Manifest) { m.Expires = m.Made },
		"no version":           func(m *Manifest) { m.Version = 0 },
		"argument of the node": func(m *Manifest) { m.Arguments = []string{"root=/dev/sda"} },
		"bad digest":           func(m *Manifest) { m.Initrd = &File{Digest: "sha256:x"} },
		"other format":         func(m *Manifest) { m.Format = 2 },
	} {
		m := ManifestOf(kernel(), terms())
		change(&m)
		if raw, err := Sign(t.Context(), m, ed(t)); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	if _, err := Sign(t.Context(), ManifestOf(kernel(), terms())); err == nil {
		t.Error("signed with no key")
	}
	own := ed(t)
	if _, err := Sign(t.Context(), ManifestOf(kernel(), terms()), own, own); err == nil {
		t.Error("signed twice with one key")
	}
}

func TestPeek(t *testing.T) {
	own := ed(t)
	m, keys, err := Peek(sign(t, ManifestOf(kernel(), terms()), own))
	if err != nil || len(keys) != 1 || keys[0] != trusts(t, "", own).ID || m.Describes(kernel()) != nil {
		t.Errorf("%+v, %v, %v", m, keys, err)
	}
	if _, _, err := Peek(nil); !errors.Is(err, ErrUnsigned) {
		t.Errorf("nothing: %v", err)
	}
}

func payload(t testing.TB, m Manifest) string {
	t.Helper()
	text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func open(t testing.TB, raw []byte) dsse.Envelope {
	t.Helper()
	var e dsse.Envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func pack(t testing.TB, e dsse.Envelope) []byte {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// renamed says that another key had signed.
func renamed(t testing.TB, raw []byte, by crypto.Signer) []byte {
	e := open(t, raw)
	e.Signatures[0].KeyID = trusts(t, "", by).ID
	return pack(t, e)
}

// crowded repeats the signature.
func crowded(t testing.TB, raw []byte, n int) []byte {
	e := open(t, raw)
	for len(e.Signatures) < n {
		e.Signatures = append(e.Signatures, e.Signatures[0])
	}
	return pack(t, e)
}

// repacked puts the payload of another envelope under the signature.
func repacked(t testing.TB, raw, from []byte) []byte {
	e := open(t, raw)
	e.Payload = open(t, from).Payload
	return pack(t, e)
}
