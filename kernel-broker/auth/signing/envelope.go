// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
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
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(envelope); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows it", ErrMalformed)
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
			return fmt.Errorf("signatures[%d]: keyid %s is no key's: it is sha256: and 64 hex digits, or left out; sign it anew", i, clip(s.KeyID))
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
		return fmt.Errorf("%d of its %d bytes say nothing, at most %d may", blanks, size, maxBlanks)
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
