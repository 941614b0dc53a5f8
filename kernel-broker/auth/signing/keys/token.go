// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
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

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

const (
	tokenScheme  = "pkcs11:"
	tokenProgram = "pkcs11-tool" //nolint:gosec // G101: the name of a program
	// tokenLimit is how long a token may take; a person may have to touch it.
	tokenLimit = time.Minute
	// pinVariable carries the PIN to pkcs11-tool alone: its arguments could be
	// read by every user of the host, its environment only by us and by root.
	pinVariable = "KERNEL_BROKER_PIN"
)

// token is a key on a token.
type token struct {
	ctx                   context.Context
	uri, module, name, id string
	pin                   []byte
	public                crypto.PublicKey
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
	t := &token{uri: uri, module: values["module-path"], name: values["token"], id: hex.EncodeToString([]byte(values["id"]))}
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

// Public implements crypto.Signer.
func (t *token) Public() crypto.PublicKey { return t.public }

// Sign implements crypto.Signer.
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
