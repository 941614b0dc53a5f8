// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

const (
	// MaxEnvelope is the largest envelope in bytes.
	MaxEnvelope = 512 << 10
	// maxSignatures of one envelope: a key that goes, the one that comes, and
	// some more.
	maxSignatures = 8
	// maxSignature bounds what stands beside the payload, which no signature
	// covers. One of ours has at most 140 bytes in base64; an RSA key of 4096 bits
	// would make 684.
	maxSignature = 4 << 10
	// maxBlanks is for an envelope that was set in lines for a person.
	maxBlanks = 4 << 10
)

// Sign makes the envelope of a manifest, signed by each of the keys. What comes
// out has been verified with those keys: a broken token is found here.
func Sign(ctx context.Context, m Manifest, keys ...crypto.Signer) ([]byte, error) {
	payload, err := m.encode()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 || len(keys) > maxSignatures {
		return nil, fmt.Errorf("kernel %q: %d keys to sign with, 1 to %d are possible", m.Kernel().Ref(), len(keys), maxSignatures)
	}
	var signers []dsse.Signer
	verifiers := make([]dsse.Verifier, 0, len(keys))
	for _, by := range keys {
		s, err := newSigner(by)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(verifiers, func(o dsse.Verifier) bool { id, _ := o.KeyID(); return id == s.id }) {
			return nil, fmt.Errorf("kernel %q: key %s is given twice: %w", m.Kernel().Ref(), s.id, kb.ErrInvalid)
		}
		signers = append(signers, s)
		verifiers = append(verifiers, key{s.id, by.Public()})
	}
	maker, err := dsse.NewEnvelopeSigner(signers...)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", m.Kernel().Ref(), err)
	}
	envelope, err := maker.SignPayload(ctx, PayloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", m.Kernel().Ref(), err)
	}
	checker, err := dsse.NewMultiEnvelopeVerifier(len(verifiers), verifiers...)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", m.Kernel().Ref(), err)
	}
	if _, err := checker.Verify(ctx, envelope); err != nil {
		return nil, fmt.Errorf("kernel %q: %w: %w", m.Kernel().Ref(), ErrBadSignature, err)
	}
	return json.Marshal(envelope)
}

// openEnvelope reads an envelope strictly. Nothing in it is verified.
func openEnvelope(raw []byte) (*dsse.Envelope, error) {
	if len(raw) == 0 {
		return nil, ErrUnsigned
	}
	if len(raw) > MaxEnvelope {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(raw), MaxEnvelope)
	}
	envelope := new(dsse.Envelope)
	if err := strictjson.Decode(raw, envelope); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch {
	case envelope.PayloadType != PayloadType:
		return nil, fmt.Errorf("%w: it holds %s", ErrMalformed, clip(envelope.PayloadType))
	case len(envelope.Signatures) == 0:
		return nil, ErrUnsigned
	case len(envelope.Signatures) > maxSignatures:
		return nil, fmt.Errorf("%w: %d signatures, at most %d", ErrMalformed, len(envelope.Signatures), maxSignatures)
	}
	if err := bound(envelope, len(raw)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return envelope, nil
}

// bound refuses an envelope of size bytes with more in it than a payload and
// signatures: a relay could add that, and the signature would
// still be true.
func bound(envelope *dsse.Envelope, size int) error {
	for i, s := range envelope.Signatures {
		// DSSE lets a key go without a name, and then each that is trusted is tried.
		if s.KeyID != "" && kb.ValidateDigest(s.KeyID) != nil {
			return fmt.Errorf("signatures[%d]: keyid %s is no key's: it is sha256: and 64 hex digits, or left out; sign it again", i, clip(s.KeyID))
		}
		if len(s.Sig) > maxSignature {
			return fmt.Errorf("signatures[%d]: sig of %d bytes, at most %d", i, len(s.Sig), maxSignature)
		}
	}
	if strings.ContainsAny(envelope.Payload, "\r\n") { // which base64 would skip
		return errors.New("payload: it is not on one line")
	}
	said, err := json.Marshal(envelope)
	if err != nil {
		return err
	}
	if blanks := size - len(said); blanks > maxBlanks {
		return fmt.Errorf("%d of %d bytes are white space, at most %d are allowed", blanks, size, maxBlanks)
	}
	return nil
}

// Peek reads what an envelope says, without any trust in it: for a person's
// eyes, and to refuse early what cannot be right. A key that the envelope does not
// name is empty.
func Peek(raw []byte) (Manifest, []string, error) {
	envelope, err := openEnvelope(raw)
	if err != nil {
		return Manifest{}, nil, err
	}
	payload, err := envelope.DecodeB64Payload()
	if err != nil {
		return Manifest{}, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	m, err := decodeManifest(payload)
	if err != nil {
		return Manifest{}, nil, err
	}
	var keys []string
	for _, s := range envelope.Signatures {
		keys = append(keys, s.KeyID)
	}
	return m, keys, nil
}

const (
	manifestFormat = 1
	// PayloadType tells these manifests from whatever else a key may sign.
	PayloadType = "application/vnd.kernelbroker.kernel+json"
	// maxPayload is far above what the drivers of a distribution's kernel take.
	maxPayload = 256 << 10
)

// Manifest is what is signed of a kernel. The order of the fields is that of
// the signed bytes.
type Manifest struct {
	Format    int      `json:"format"`
	Cluster   string   `json:"cluster"`
	Profile   string   `json:"profile"`
	Version   uint32   `json:"version"`
	Image     File     `json:"image"`
	Initrd    *File    `json:"initrd,omitempty"`
	Modules   *File    `json:"modules,omitempty"`
	Arguments []string `json:"arguments,omitempty"`

	// What the kernel must show after the boot.
	BuildID string `json:"build_id"`
	Release string `json:"release"`

	// What it asks of a node.
	Architecture string   `json:"architecture"`
	Drivers      []string `json:"drivers,omitempty"`
	MinMemoryMiB uint64   `json:"min_memory_mib,omitempty"`
	// SystemCores of a node are kept for the system; the node composes the arguments for that.
	SystemCores uint32 `json:"system_cores,omitempty"`

	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
	// Floor: who has seen this manifest boots no version of the profile below
	// it any more. It is never above Version.
	Floor uint32 `json:"floor,omitempty"`
}

// File is an artifact by its content.
type File struct {
	Digest string `json:"digest"`
	Size   uint64 `json:"size"`
}

// Terms is what a manifest says besides the kernel.
type Terms struct {
	Cluster       string
	Made, Expires time.Time
	Floor         uint32
}

func ManifestOf(k kb.Kernel, t Terms) Manifest {
	m := Manifest{
		Format: manifestFormat, Cluster: t.Cluster, Profile: k.Profile, Version: k.Version,
		Image: File{k.ImageDigest, k.ImageSize}, Arguments: slices.Clone(k.Arguments),
		BuildID: k.BuildID, Release: k.Release, Architecture: k.Architecture,
		Drivers: slices.Clone(k.Drivers), MinMemoryMiB: k.MinMemoryMiB, SystemCores: k.SystemCores,
		Made: t.Made.UTC().Truncate(time.Second), Expires: t.Expires.UTC().Truncate(time.Second), Floor: t.Floor,
	}
	if k.InitrdDigest != "" {
		m.Initrd = &File{k.InitrdDigest, k.InitrdSize}
	}
	if k.ModulesDigest != "" {
		m.Modules = &File{k.ModulesDigest, k.ModulesSize}
	}
	return m
}

func (m Manifest) Kernel() kb.Kernel {
	k := kb.Kernel{
		Profile: m.Profile, Version: m.Version, ImageDigest: m.Image.Digest, ImageSize: m.Image.Size,
		Arguments: m.Arguments, BuildID: m.BuildID, Release: m.Release, Architecture: m.Architecture,
		Drivers: m.Drivers, MinMemoryMiB: m.MinMemoryMiB, SystemCores: m.SystemCores,
	}
	if m.Initrd != nil {
		k.InitrdDigest, k.InitrdSize = m.Initrd.Digest, m.Initrd.Size
	}
	if m.Modules != nil {
		k.ModulesDigest, k.ModulesSize = m.Modules.Digest, m.Modules.Size
	}
	return k
}

// Validate refuses what nobody should sign.
func (m Manifest) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("manifest of kernel %q: %w: %w", m.Kernel().Ref(), fmt.Errorf(format, args...), kb.ErrInvalid)
	}
	if err := m.Kernel().Validate(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.Format != manifestFormat:
		return fail("format %d, this program knows %d", m.Format, manifestFormat)
	case m.Floor > m.Version:
		return fail("floor %d is above the version itself", m.Floor)
	case !m.Expires.After(m.Made):
		return fail("it expires %s and was made %s", day(m.Expires), day(m.Made))
	}
	if err := validateCluster(m.Cluster); err != nil {
		return fail("%w", err)
	}
	return nil
}

var clusterName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// validateCluster accepts what Slurm accepts as ClusterName and more, but
// nothing that looks like another name on a screen.
func validateCluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("cluster name %s is not 1 to 64 letters, digits, dots, dashes and underscores", clip(name))
	}
	return nil
}

// encode writes the manifest in the one way that it is written in.
func (m Manifest) encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decodeManifest reads what encode wrote and nothing else: a key given twice,
// in other letters, or unknown would be read differently by different programs.
func decodeManifest(payload []byte) (Manifest, error) {
	var m Manifest
	if len(payload) > maxPayload {
		return m, fmt.Errorf("manifest of %d bytes, at most %d: %w", len(payload), maxPayload, ErrMalformed)
	}
	if err := strictjson.Decode(payload, &m); err != nil {
		return m, fmt.Errorf("manifest: %w: %w", ErrMalformed, err)
	}
	again, err := m.encode()
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !bytes.Equal(again, payload) {
		return m, fmt.Errorf("manifest: %w: not in canonical form", ErrMalformed)
	}
	return m, nil
}

// Describes compares the manifest with the kernel that is to be booted, whatever fields a kernel has.
func (m Manifest) Describes(k kb.Kernel) error {
	signed, have := reflect.ValueOf(normal(m.Kernel())), reflect.ValueOf(normal(k))
	for i := range signed.NumField() {
		if a, b := signed.Field(i).Interface(), have.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			name, _, _ := strings.Cut(signed.Type().Field(i).Tag.Get("json"), ",")
			name = strings.ReplaceAll(strings.Replace(name, "min_memory_mib", "least memory", 1), "_", " ")
			return &MismatchError{Field: name, Signed: strings.Trim(fmt.Sprint(a), "[]"), Have: strings.Trim(fmt.Sprint(b), "[]")}
		}
	}
	return nil
}

// normal has no list that is empty and not nil.
func normal(k kb.Kernel) kb.Kernel {
	k.Arguments, k.Drivers = append([]string(nil), k.Arguments...), append([]string(nil), k.Drivers...)
	return k
}
