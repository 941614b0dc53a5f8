// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// secretBytes of a token: nobody guesses them, so a plain hash of them may be
// kept.
const secretBytes = 32

// MaxTokenBytes bounds a token's text: the longest node name and two values.
const MaxTokenBytes = 192

var encoding = base64.RawURLEncoding.Strict()

// Token lets a node get its first certificate: it proves the node to the
// broker, by the secret, and the broker to the node, by the fingerprint. Its
// text is NODE.SECRET.FINGERPRINT.
type Token struct {
	Node        string
	Secret      string
	Fingerprint string
}

// NewToken makes one with a fresh secret.
func NewToken(node, fingerprint string) (Token, error) {
	if err := kb.ValidateNodeName(node); err != nil {
		return Token{}, err
	}
	secret := make([]byte, secretBytes)
	rand.Read(secret)
	return Token{Node: node, Secret: encoding.EncodeToString(secret), Fingerprint: fingerprint}, nil
}

// Text is the whole token, for its one recipient.
func (t Token) Text() string { return t.Node + "." + t.Secret + "." + t.Fingerprint }

// String leaves the secret out, so that no log has it by accident.
func (t Token) String() string { return "token of node " + t.Node }

// GoString is String.
func (t Token) GoString() string { return t.String() }

// ParseToken reads a token's text. Its errors do not repeat what they were
// given: a token with a typing error still is most of a secret.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if len(text) > MaxTokenBytes {
		return Token{}, fmt.Errorf("token has %d characters, at most %d are possible: %w", len(text), MaxTokenBytes, kb.ErrInvalid)
	}
	// From the end, since a node's name may have dots.
	rest, fingerprint, ok := cutLast(text)
	node, secret, ok2 := cutLast(rest)
	if !ok || !ok2 {
		return Token{}, fmt.Errorf("token is not NODE.SECRET.FINGERPRINT: %w", kb.ErrInvalid)
	}
	if kb.ValidateNodeName(node) != nil {
		return Token{}, fmt.Errorf("token does not begin with a node's name: %w", kb.ErrInvalid)
	}
	if err := ValidateSecret(secret); err != nil {
		return Token{}, err
	}
	if !encodes(fingerprint, sha256.Size) {
		return Token{}, fmt.Errorf("token does not end with the fingerprint of an authority: %w", kb.ErrInvalid)
	}
	return Token{Node: node, Secret: secret, Fingerprint: fingerprint}, nil
}

// ValidateSecret accepts the middle part of a token.
func ValidateSecret(secret string) error {
	if !encodes(secret, secretBytes) {
		return fmt.Errorf("secret of a token is damaged: %w", kb.ErrInvalid)
	}
	return nil
}

// encodes says whether a text stands for so many bytes. The length is compared
// too, because decoding skips over line ends.
func encodes(text string, size int) bool {
	raw, err := encoding.DecodeString(text)
	return err == nil && len(raw) == size && len(text) == encoding.EncodedLen(size)
}

func cutLast(text string) (before, after string, ok bool) {
	i := strings.LastIndexByte(text, '.')
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// Fingerprint of an authority is that of its key, so that it stays the same when
// the same key gets another certificate.
func Fingerprint(authority *x509.Certificate) string {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return encoding.EncodeToString(sum[:])
}
