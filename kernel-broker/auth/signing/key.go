// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// ErrKey means that a key cannot be used.
var ErrKey = errors.New("unusable key")

// Two kinds of keys are known: Ed25519, which is the one to take, and ECDSA on
// P-256 or P-384, which is what most hardware tokens offer.

// KeyID is the digest of a public key as X.509 writes it: the holder of the key
// can compute its name, and no list can give one key the name of another.
func KeyID(public crypto.PublicKey) (string, error) {
	if err := usable(public); err != nil {
		return "", err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	return digest.Of(der), nil
}

func usable(public crypto.PublicKey) error {
	switch key := public.(type) {
	case ed25519.PublicKey:
		if len(key) != ed25519.PublicKeySize {
			return fmt.Errorf("%w: ed25519 key of %d bytes", ErrKey, len(key))
		}
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() {
			return fmt.Errorf("%w: ECDSA on %s, known are P-256 and P-384", ErrKey, key.Curve.Params().Name)
		}
	default:
		return fmt.Errorf("%w: %T, known are Ed25519 and ECDSA", ErrKey, public)
	}
	return nil
}

// ParsePublicKey reads one PEM block of type PUBLIC KEY.
func ParsePublicKey(text []byte) (crypto.PublicKey, error) {
	block, rest := pem.Decode(bytes.TrimSpace(text))
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%w: not one PEM block of type PUBLIC KEY: %w", ErrKey, kb.ErrInvalid)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrKey, err, kb.ErrInvalid)
	}
	return public, usable(public)
}

// FormatPublicKey is the inverse of ParsePublicKey.
func FormatPublicKey(public crypto.PublicKey) ([]byte, error) {
	if err := usable(public); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// key verifies; it implements dsse.Verifier.
type key struct {
	id     string
	public crypto.PublicKey
}

func (k key) KeyID() (string, error)   { return k.id, nil }
func (k key) Public() crypto.PublicKey { return k.public }

func (k key) Verify(_ context.Context, data, signature []byte) error {
	good := false
	switch public := k.public.(type) {
	case ed25519.PublicKey:
		good = ed25519.Verify(public, data, signature)
	case *ecdsa.PublicKey:
		digest, _ := digestFor(public, data)
		good = ecdsa.VerifyASN1(public, digest, signature)
	}
	if !good {
		return ErrBadSignature
	}
	return nil
}

// digestFor is what an ECDSA key signs: a hash as long as its curve.
func digestFor(public *ecdsa.PublicKey, data []byte) ([]byte, crypto.Hash) {
	if public.Curve == elliptic.P384() {
		sum := sha512.Sum384(data)
		return sum[:], crypto.SHA384
	}
	sum := sha256.Sum256(data)
	return sum[:], crypto.SHA256
}

// signer makes a crypto.Signer sign whole messages; it implements dsse.Signer.
type signer struct {
	id string
	by crypto.Signer
}

func newSigner(by crypto.Signer) (signer, error) {
	id, err := KeyID(by.Public())
	return signer{id, by}, err
}

func (s signer) KeyID() (string, error) { return s.id, nil }

func (s signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	var signature []byte
	var err error
	if public, ok := s.by.Public().(*ecdsa.PublicKey); ok {
		digest, hash := digestFor(public, data)
		signature, err = s.by.Sign(rand.Reader, digest, hash)
	} else {
		signature, err = s.by.Sign(rand.Reader, data, crypto.Hash(0))
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", s.id, err)
	}
	return signature, nil
}
