// SPDX-License-Identifier: Apache-2.0

// Package keys opens what a person signs kernels with: a private key in a file,
// or one that never leaves a hardware token.
//
// Both come out as a crypto.Signer. A file holds PKCS#8 as openssl writes it,
// with a passphrase or without. A token is named by a PKCS#11 URI (RFC 7512)
// and reached through pkcs11-tool of OpenSC: PKCS#11 modules are C libraries of
// vendors, which so never run inside a program of ours, and our programs stay
// free of cgo.
package keys

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"github.com/youmark/pkcs8"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// maxKeyFile in bytes.
const maxKeyFile = 64 << 10

// Ask gets a secret from a person: a passphrase, or a token's PIN.
type Ask func(what string) ([]byte, error)

// Open opens the key that name stands for: a PKCS#11 URI or a file.
func Open(ctx context.Context, name string, ask Ask) (crypto.Signer, error) {
	if strings.HasPrefix(name, tokenScheme) {
		return openToken(ctx, name, ask)
	}
	text, err := safeopen.Read(name, maxKeyFile, private)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", name, err)
	}
	by, err := Parse(text, func() ([]byte, error) { return ask("Passphrase of " + name) })
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", name, err)
	}
	return by, nil
}

// private refuses a file that others may read or change.
func private(info os.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("others than its owner may use it (mode %04o); chmod 600: %w", mode, kb.ErrFailedPrecondition)
	}
	return nil
}

// Parse reads one PEM block, PRIVATE KEY or ENCRYPTED PRIVATE KEY; passphrase
// is only asked for the latter.
func Parse(text []byte, passphrase func() ([]byte, error)) (crypto.Signer, error) {
	block, rest := pem.Decode(bytes.TrimSpace(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("not one PEM block: %w", kb.ErrInvalid)
	}
	var private any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		var secret []byte
		if secret, err = passphrase(); err == nil {
			private, err = pkcs8.ParsePKCS8PrivateKey(block.Bytes, secret)
		}
	default:
		err = fmt.Errorf("PEM block %q, known is PKCS#8 (openssl genpkey, or openssl pkcs8 -topk8): %w", block.Type, kb.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	by, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: %T cannot sign", signing.ErrKey, private)
	}
	_, err = signing.KeyID(by.Public())
	return by, err
}

// Generate makes a new Ed25519 key as PEM, encrypted when there is a
// passphrase, and its public half.
func Generate(passphrase []byte) (private, public []byte, err error) {
	half, whole, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	kind := "PRIVATE KEY"
	if len(passphrase) > 0 {
		kind = "ENCRYPTED PRIVATE KEY"
	}
	der, err := pkcs8.MarshalPrivateKey(whole, passphrase, nil)
	if err != nil {
		return nil, nil, err
	}
	public, err = signing.FormatPublicKey(half)
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), public, err
}
