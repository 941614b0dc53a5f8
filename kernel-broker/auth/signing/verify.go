// SPDX-License-Identifier: Apache-2.0

// Package signing says which kernels a node may boot.
//
// The publisher of a kernel signs a manifest of it, and the node
// holds a list of the keys that it trusts. What lies between the two, the
// broker, its store, the network, the node's own cache, can then lose or delay
// a kernel but not replace one.
//
// A Manifest names everything that decides what boots: the digests and sizes
// of image and initrd, the arguments, the proof that the kernel must give
// afterwards, what it needs of a node; and what keeps a true signature from
// being used in a wrong place or too late: the cluster, the profile with its
// version, the expiry, and the floor, the lowest version of the profile that a
// node may boot once it has seen this manifest. It is written in one way only,
// as JSON, in a DSSE envelope.
//
// Sign makes an envelope, ParseTrust reads the list of keys, and Verify, which
// is pure, compares an envelope, the list, the kernel that is wanted, what the
// node remembers, and the time.
package signing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// allowance is how far a signer's clock may be ahead of the node's.
const allowance = 24 * time.Hour

// Memory is what a node remembers of the manifests that it has verified, so
// that an older one cannot be passed off as the newest.
type Memory struct {
	// Floors are the highest floors seen, by profile.
	Floors map[string]uint32
	// Newest is the latest time at which a verified manifest was made, and no
	// later than the node's clock was then. The time is not before it, whatever
	// the clock says now.
	Newest time.Time
}

// Learn takes in a manifest that was verified at now, by the node's own clock. It
// reports whether anything is new.
func (m Memory) Learn(manifest Manifest, now time.Time) (Memory, bool) {
	learned := Memory{Floors: map[string]uint32{}, Newest: m.Newest}
	for profile, floor := range m.Floors {
		learned.Floors[profile] = floor
	}
	changed := false
	if manifest.Floor > learned.Floors[manifest.Profile] {
		learned.Floors[manifest.Profile], changed = manifest.Floor, true
	}
	// A manifest may be dated a little ahead. Were that believed, the next could
	// be dated ahead of it, and so on: a signer of one profile would lead
	// the node to where everybody's signatures have expired.
	made := manifest.Made
	if made.After(now) {
		made = now.UTC()
	}
	if made.After(learned.Newest) {
		learned.Newest, changed = made, true
	}
	return learned, changed
}

// Verified is what was signed, and with which key.
type Verified struct {
	Manifest Manifest
	Key      TrustedKey
}

// Verify answers whether the envelope lets this kernel be booted. Every reason
// to refuse has its error; nothing of a manifest is believed before its
// signature is.
func Verify(envelope []byte, t Trust, want kb.Kernel, memory Memory, now time.Time) (Verified, error) {
	if now.Before(memory.Newest) {
		now = memory.Newest
	}
	v, err := verify(envelope, t, want, memory, now)
	if err != nil {
		return Verified{}, fmt.Errorf("kernel %q: %w", want.Ref(), err)
	}
	return v, nil
}

func verify(raw []byte, t Trust, want kb.Kernel, memory Memory, now time.Time) (Verified, error) {
	envelope, err := openEnvelope(raw)
	if err != nil {
		return Verified{}, err
	}
	signedBy, payload, err := t.accept(envelope, now)
	if err != nil {
		return Verified{}, err
	}
	m, err := decodeManifest(payload)
	if err != nil {
		return Verified{}, err
	}
	if m.Cluster != t.Cluster {
		return Verified{}, fmt.Errorf("%w: %q, this is %q", ErrOtherCluster, m.Cluster, t.Cluster)
	}
	if err := m.Describes(want); err != nil {
		return Verified{}, err
	}
	at := slices.IndexFunc(signedBy, func(k TrustedKey) bool { return k.maySign(m.Profile) })
	if at < 0 {
		return Verified{}, fmt.Errorf("%w: %q", ErrKeyProfile, signedBy[0].Name)
	}
	if err := t.checkLifecycle(m, memory, now); err != nil {
		return Verified{}, err
	}
	return Verified{Manifest: m, Key: signedBy[at]}, nil
}

// accept returns the trusted keys whose signatures fit, and what they signed.
func (t Trust) accept(envelope *dsse.Envelope, now time.Time) ([]TrustedKey, []byte, error) {
	var good []TrustedKey
	var verifiers []dsse.Verifier
	for _, k := range t.Keys {
		if !t.revoked(k) && k.inPeriod(now) {
			good, verifiers = append(good, k), append(verifiers, k.key)
		}
	}
	if len(verifiers) == 0 {
		return nil, nil, t.why(envelope, now)
	}
	checker, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err != nil {
		return nil, nil, err
	}
	accepted, payload, err := checker.VerifyAndDecode(context.Background(), envelope)
	if err != nil {
		return nil, nil, t.why(envelope, now)
	}
	var by []TrustedKey
	for _, a := range accepted {
		for _, k := range good {
			if k.ID == a.KeyID {
				by = append(by, k)
			}
		}
	}
	return by, payload, nil
}

// why says which of the reasons keeps an envelope from being accepted. The key
// ids in it are not verified, which is good enough for an explanation.
func (t Trust) why(envelope *dsse.Envelope, now time.Time) error {
	for _, s := range envelope.Signatures {
		if slices.Contains(t.RevokedKeys, s.KeyID) {
			return fmt.Errorf("key %s: %w", clip(s.KeyID), ErrRevoked)
		}
		for _, k := range t.Keys {
			if k.ID != s.KeyID {
				continue
			}
			if !k.inPeriod(now) {
				return fmt.Errorf("key %q: %w: %s to %s", k.Name, ErrKeyPeriod, day(k.NotBefore), day(k.NotAfter))
			}
			return fmt.Errorf("key %q: %w", k.Name, ErrBadSignature)
		}
	}
	return fmt.Errorf("%w: key %s", ErrUnknownKey, clip(envelope.Signatures[0].KeyID))
}

// checkLifecycle refuses a genuine signature that does not count any more.
func (t Trust) checkLifecycle(m Manifest, memory Memory, now time.Time) error {
	for _, file := range m.Kernel().Files() {
		if slices.Contains(t.RevokedDigests, file.Digest) {
			return fmt.Errorf("%s %s: %w", file.What, file.Digest, ErrRevoked)
		}
	}
	if m.Made.After(now.Add(allowance)) {
		return fmt.Errorf("%w: %s, and here it is %s; one of the two clocks is wrong", ErrFuture, day(m.Made), day(now))
	}
	if !now.Before(m.Expires) {
		return fmt.Errorf("%w: on %s; sign it again", ErrExpired, day(m.Expires))
	}
	if floor := max(t.Floors[m.Profile], memory.Floors[m.Profile]); m.Version < floor {
		return fmt.Errorf("%w: version %d, the floor is %d", ErrFloor, m.Version, floor)
	}
	return nil
}

// Why a kernel is refused. Callers tell the reasons apart with errors.Is.
var (
	ErrUnsigned     = errors.New("not signed")
	ErrMalformed    = errors.New("malformed signature envelope")
	ErrUnknownKey   = errors.New("signed by no key that is trusted")
	ErrBadSignature = errors.New("the signature does not fit what is signed")
	ErrKeyPeriod    = errors.New("the key is outside its period")
	ErrKeyProfile   = errors.New("the key may not sign this profile")
	ErrRevoked      = errors.New("revoked")
	ErrOtherCluster = errors.New("signed for another cluster")
	ErrMismatch     = errors.New("not the kernel that was signed")
	ErrExpired      = errors.New("the signature has expired")
	ErrFuture       = errors.New("signed in the future")
	ErrFloor        = errors.New("older than the profile's floor")
)

// MismatchError is ErrMismatch with the field that differs.
type MismatchError struct {
	Field        string
	Signed, Have string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: %s is %s, signed is %s", ErrMismatch, e.Field, clip(e.Have), clip(e.Signed))
}

// Is makes errors.Is(err, ErrMismatch) hold.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

func clip(text string) string {
	const most = 120
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%q", text)
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// MaxTrust is the largest trust list in bytes.
const MaxTrust = 1 << 20

// Trust is the list of what a node trusts; trust.sample.yaml explains it.
type Trust struct {
	Cluster string
	Keys    []TrustedKey
	// RevokedKeys are key ids, RevokedDigests images, initrds and archives of modules.
	RevokedKeys, RevokedDigests []string
	// Floors are the lowest versions that may be booted, by profile.
	Floors map[string]uint32
}

type TrustedKey struct {
	Name string
	ID   string
	// NotBefore and NotAfter bound when its signatures count; zero is no bound.
	NotBefore, NotAfter time.Time
	// Profiles are patterns of the names that it may sign; none is all.
	Profiles []string
	key      key
}

type trustFile struct {
	Cluster string    `yaml:"cluster"`
	Keys    []keyFile `yaml:"keys"`
	Revoked struct {
		Keys    []string `yaml:"keys"`
		Digests []string `yaml:"digests"`
	} `yaml:"revoked"`
	Floors map[string]uint32 `yaml:"floors"`
}

type keyFile struct {
	Name      string    `yaml:"name"`
	ID        string    `yaml:"id"`
	Public    string    `yaml:"public"`
	NotBefore time.Time `yaml:"not_before"`
	NotAfter  time.Time `yaml:"not_after"`
	Profiles  []string  `yaml:"profiles"`
}

// ReadTrust reads the file of a trust list; allowed, if any, may refuse the file.
func ReadTrust(name string, allowed func(os.FileInfo) error) (Trust, error) {
	text, err := readTrustText(name, allowed)
	if err != nil {
		return Trust{}, err
	}
	return ParseTrust(name, text)
}

// ReadTrustText reads a trust list as it is.
func ReadTrustText(name string) ([]byte, error) { return readTrustText(name, nil) }

func readTrustText(name string, allowed func(os.FileInfo) error) ([]byte, error) {
	text, err := safeopen.Read(name, MaxTrust, allowed)
	if err != nil {
		return nil, fmt.Errorf("trust list: %w", err)
	}
	return text, nil
}

// ParseTrust reads a trust list; name is for errors. Whatever is not understood
// is an error: a revocation that was passed over would be worse than none.
func ParseTrust(name string, text []byte) (Trust, error) {
	fail := func(err error) (Trust, error) {
		return Trust{}, fmt.Errorf("trust list %q: %w: %w", name, err, kb.ErrInvalid)
	}
	if len(text) > MaxTrust {
		return fail(fmt.Errorf("%d bytes, at most %d", len(text), MaxTrust))
	}
	var f trustFile
	if err := strictyaml.Decode(name, text, &f); err != nil {
		return fail(err)
	}
	if err := validateCluster(f.Cluster); err != nil {
		return fail(fmt.Errorf("cluster: %w", err))
	}
	t := Trust{Cluster: f.Cluster, RevokedKeys: f.Revoked.Keys, RevokedDigests: f.Revoked.Digests, Floors: f.Floors}
	var wrong []error
	for i, k := range f.Keys {
		trusted, err := k.trusted()
		if err == nil && slices.ContainsFunc(t.Keys, func(o TrustedKey) bool { return o.ID == trusted.ID }) {
			err = errors.New("is there twice")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("keys[%d] %s: %w", i, clip(k.Name), err))
		}
		t.Keys = append(t.Keys, trusted)
	}
	if len(f.Keys) == 0 {
		wrong = append(wrong, errors.New("keys: there is none"))
	}
	wrong = append(wrong, t.validate()...)
	if wrong != nil {
		return fail(errors.Join(wrong...))
	}
	return t, nil
}

func (t Trust) validate() []error {
	var wrong []error
	for _, digest := range slices.Concat(t.RevokedKeys, t.RevokedDigests) {
		if err := kb.ValidateDigest(digest); err != nil {
			wrong = append(wrong, fmt.Errorf("revoked: %w", err))
		}
	}
	for profile := range t.Floors {
		if err := kb.ValidateProfileName(profile); err != nil {
			wrong = append(wrong, fmt.Errorf("floors: %w", err))
		}
	}
	return wrong
}

func (f keyFile) trusted() (TrustedKey, error) {
	if strings.TrimSpace(f.Name) == "" {
		return TrustedKey{}, errors.New("has no name")
	}
	public, err := ParsePublicKey([]byte(f.Public))
	if err != nil {
		return TrustedKey{}, err
	}
	id, err := KeyID(public)
	if err != nil {
		return TrustedKey{}, err
	}
	if f.ID != "" && f.ID != id {
		return TrustedKey{}, fmt.Errorf("its id is %s, not %s", id, clip(f.ID))
	}
	if !f.NotAfter.IsZero() && !f.NotAfter.After(f.NotBefore) {
		return TrustedKey{}, fmt.Errorf("not_after %s is not after not_before", day(f.NotAfter))
	}
	for _, pattern := range f.Profiles {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return TrustedKey{}, fmt.Errorf("profiles: pattern %s", clip(pattern))
		}
	}
	return TrustedKey{
		Name: f.Name, ID: id, NotBefore: f.NotBefore, NotAfter: f.NotAfter, Profiles: f.Profiles, key: key{id, public},
	}, nil
}

// revoked reports whether the list takes back the key.
func (t Trust) revoked(k TrustedKey) bool { return slices.Contains(t.RevokedKeys, k.ID) }

func (k TrustedKey) inPeriod(now time.Time) bool {
	return !now.Before(k.NotBefore) && (k.NotAfter.IsZero() || now.Before(k.NotAfter))
}

func (k TrustedKey) maySign(profile string) bool {
	return len(k.Profiles) == 0 || slices.ContainsFunc(k.Profiles, func(pattern string) bool {
		match, err := path.Match(pattern, profile)
		return err == nil && match
	})
}
