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
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

const (
	tokenScheme  = "pkcs11:"
	tokenProgram = "pkcs11-tool" //nolint:gosec // G101: the name of a program
	// tokenLimit is how long a token may take; a person may have to touch it.
	tokenLimit = time.Minute
	// pinVariable carries the PIN to pkcs11-tool alone: its arguments could be
	// read by every user of the host, its environment only by us and by root.
	pinVariable = "KERNEL_BROKER_PIN"
)

type token struct {
	ctx              context.Context
	module, name, id string
	pin              []byte
	public           crypto.PublicKey
}

// openToken reads the public key, and gets the PIN: from the file of pin-source
// or from a person. It is checked at the first signature.
func openToken(ctx context.Context, uri string, ask Ask) (crypto.Signer, error) {
	t, pinFile, err := parseTokenURI(uri)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", uri, err)
	}
	t.ctx = ctx
	if t.public, err = t.readPublic(); err != nil {
		return nil, fmt.Errorf("key %q: %w", uri, err)
	}
	if pinFile != "" {
		t.pin, err = safeopen.Read(pinFile, maxKeyFile, private)
	} else {
		t.pin, err = ask("PIN of token " + t.name)
	}
	if err != nil {
		return nil, fmt.Errorf("key %q: PIN: %w", uri, err)
	}
	t.pin = bytes.TrimRight(t.pin, "\r\n")
	return t, nil
}

// parseTokenURI reads pkcs11:token=NAME;id=%01?module-path=/x.so&pin-source=/y.
// A PIN in the URI itself would be in shell histories, so there is no pin-value.
func parseTokenURI(uri string) (*token, string, error) {
	attributes, query, _ := strings.Cut(strings.TrimPrefix(uri, tokenScheme), "?")
	values := map[string]string{}
	for _, part := range append(strings.Split(attributes, ";"), strings.Split(query, "&")...) {
		if part == "" {
			continue
		}
		name, escaped, _ := strings.Cut(part, "=")
		value, err := url.PathUnescape(escaped)
		if err != nil || values[name] != "" || !slices.Contains([]string{"token", "id", "module-path", "pin-source"}, name) {
			return nil, "", fmt.Errorf("attribute %q; known are token and id, and after a ? module-path and pin-source: %w", name, kb.ErrInvalid)
		}
		values[name] = value
	}
	t := &token{module: values["module-path"], name: values["token"], id: hex.EncodeToString([]byte(values["id"]))}
	pin := strings.TrimPrefix(values["pin-source"], "file:")
	switch {
	case t.name == "" || t.id == "":
		return nil, "", fmt.Errorf("token and id (as %%01) are needed: %w", kb.ErrInvalid)
	case !filepath.IsAbs(t.module):
		return nil, "", fmt.Errorf("module-path %q is not an absolute path: %w", t.module, kb.ErrInvalid)
	case pin != "" && !filepath.IsAbs(pin):
		return nil, "", fmt.Errorf("pin-source %q is not an absolute path: %w", pin, kb.ErrInvalid)
	}
	return t, pin, nil
}

func (t *token) readPublic() (crypto.PublicKey, error) {
	out, err := t.run(nil, "--read-object", "--type", "pubkey")
	if err != nil {
		return nil, err
	}
	// Ed25519 comes as PEM, ECDSA as bare DER.
	if block, _ := pem.Decode(out); block != nil {
		out = block.Bytes
	}
	public, err := x509.ParsePKIXPublicKey(out)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	_, err = signing.KeyID(public)
	return public, err
}

func (t *token) Public() crypto.PublicKey { return t.public }

func (t *token) Sign(_ io.Reader, message []byte, _ crypto.SignerOpts) ([]byte, error) {
	mechanism := []string{"--mechanism", "EDDSA"}
	if _, ok := t.public.(*ecdsa.PublicKey); ok {
		mechanism = []string{"--mechanism", "ECDSA", "--signature-format", "openssl"}
	}
	dir, err := os.MkdirTemp("", "kernelctl-sign-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing in it is secret
	input := filepath.Join(dir, "message")
	if err := os.WriteFile(input, message, 0o600); err != nil {
		return nil, err
	}
	result := filepath.Join(dir, "signature")
	args := append([]string{"--sign", "--login", "--pin", "env:" + pinVariable, "--input-file", input, "--output-file", result}, mechanism...)
	if _, err := t.run(t.pin, args...); err != nil {
		return nil, err
	}
	return os.ReadFile(result)
}

func (t *token) run(pin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.ctx, tokenLimit)
	defer cancel()
	args = append([]string{"--module", t.module, "--token-label", t.name, "--id", t.id}, args...)
	cmd := exec.CommandContext(ctx, tokenProgram, args...) //nolint:gosec // G204: a fixed program, no shell
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if pin != nil {
		cmd.Env = append(cmd.Env, pinVariable+"="+string(pin))
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := strings.Join(strings.Fields(complaint.String()), " ")
		return nil, fmt.Errorf("%s (Debian package opensc): %w: %s", tokenProgram, err, text[:min(len(text), 500)])
	}
	return out.Bytes(), nil
}
