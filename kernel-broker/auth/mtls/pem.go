// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Kinds of PEM blocks.
const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// EncodeCertificates writes certificates, one block each.
func EncodeCertificates(list []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range list {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw}))
	}
	return out.Bytes()
}

// EncodeKey writes a key in PKCS #8.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// ParseCertificates reads every certificate of a file, of which there must be
// at least one.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w: %w", len(list)+1, kb.ErrInvalid, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no certificate in it: %w", kb.ErrInvalid)
	}
	return list, nil
}

// ParseDER reads certificates as messages have them.
func ParseDER(list [][]byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for i, der := range list {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w: %w", i+1, kb.ErrInvalid, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// ParsePair reads a certificate with its chain and its key, which may be in one
// text, and checks that they belong together. Errors name no part of the key.
func ParsePair(certificate, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kb.ErrInvalid, err)
	}
	return &pair, nil
}
