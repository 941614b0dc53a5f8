// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Paths of PEM files. Certificate and Key may be the same file, and are empty
// where an end has nothing to show.
type Paths struct {
	Certificate string
	Key         string
	Authorities string
}

// NodePaths are the files that an agent keeps in its folder. Key and
// certificate are one file, so that they change together.
func NodePaths(dir string) Paths {
	own := filepath.Join(dir, "node.pem")
	return Paths{Certificate: own, Key: own, Authorities: filepath.Join(dir, "ca.pem")}
}

// Files is a Source that reads its files each time, so that new ones count at once: a handshake costs several times as much.
type Files struct{ paths Paths }

// NewFiles reads nothing yet: files may come later.
func NewFiles(paths Paths) *Files { return &Files{paths} }

// Certificate implements Source.
func (f *Files) Certificate() (*tls.Certificate, error) {
	if f.paths.Certificate == "" {
		return nil, nil
	}
	certificate, err := os.ReadFile(f.paths.Certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := readKey(f.paths.Key)
	if err != nil {
		return nil, err
	}
	pair, err := ParsePair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %q: %w", f.paths.Certificate, err)
	}
	return pair, nil
}

// readKey refuses a key that others can read: it is no secret any more.
func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key %q: others may read it (mode %04o): chmod 600, and have a new one made: %w",
			path, info.Mode().Perm(), kb.ErrDenied)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return key, nil
}

// Authorities implements Source.
func (f *Files) Authorities() ([]*x509.Certificate, error) {
	text, err := os.ReadFile(f.paths.Authorities)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	list, err := ParseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("authorities %q: %w", f.paths.Authorities, err)
	}
	return list, nil
}

// Own returns the certificate and who it stands for; os.ErrNotExist where there
// is none.
func (f *Files) Own() (Peer, error) {
	pair, err := f.Certificate()
	if err != nil {
		return Peer{}, err
	}
	if pair == nil {
		return Peer{}, os.ErrNotExist
	}
	name, err := NameOf(pair.Leaf)
	return Peer{Name: name, Certificate: pair.Leaf}, err
}

// Keep writes what a node got for its key. The authorities come first: with the
// new ones and the old certificate a node still is understood, and the other
// way round it might not be.
func (p Paths) Keep(key crypto.Signer, chain, authorities []*x509.Certificate) error {
	private, err := EncodeKey(key)
	if err != nil {
		return err
	}
	own := append(EncodeCertificates(chain), private...)
	if _, err := ParsePair(own, own); err != nil {
		return fmt.Errorf("certificate for node: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.Certificate), 0o700); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return errors.Join(
		atomicfile.Write(p.Authorities, EncodeCertificates(authorities), 0o644),
		atomicfile.Write(p.Certificate, own, 0o600))
}

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
