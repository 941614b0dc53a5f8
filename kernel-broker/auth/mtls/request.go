// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// maxRequestBytes is several times what a request for a key on a curve needs.
const maxRequestBytes = 4096

// NewKey makes the key of a node, a broker or an authority. P-256 is what every
// site's rules for cryptography allow.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// NewRequest asks for a certificate for a key (PKCS #10, DER). It names nobody:
// whom the certificate stands for is decided by who signs it.
func NewRequest(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return der, nil
}

// ParseRequest returns the key that a request is for. Who made the request has
// the key, which its signature shows; whatever else it asks for is ignored.
func ParseRequest(der []byte) (crypto.PublicKey, error) {
	if len(der) > maxRequestBytes {
		return nil, fmt.Errorf("certificate request of %d bytes, at most %d are allowed: %w", len(der), maxRequestBytes, kb.ErrInvalid)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w: %w", kb.ErrInvalid, err)
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() {
			return nil, fmt.Errorf("certificate request: curve %s is neither P-256 nor P-384: %w", key.Curve.Params().Name, kb.ErrInvalid)
		}
	case ed25519.PublicKey:
	default:
		return nil, fmt.Errorf("certificate request: a key of kind %v is neither ECDSA nor Ed25519: %w", request.PublicKeyAlgorithm, kb.ErrInvalid)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w: %w", kb.ErrInvalid, err)
	}
	return request.PublicKey, nil
}

// RenewAt is when a certificate is to be replaced: two thirds through the time
// that it is used.
func RenewAt(since, end time.Time) time.Time { return since.Add(end.Sub(since) * 2 / 3) }
