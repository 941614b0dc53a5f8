// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
