// SPDX-License-Identifier: Apache-2.0

// Package mtls is how nodes and brokers prove to each other who they are: what
// a certificate says of its owner, where a key and its certificate are kept,
// and the TLS settings of both ends that follow from it.
//
// The idea is that a certificate stands for one role in one cluster. It says so
// in a URI, kernel-broker://CLUSTER/node/NAME or /broker/NAME, and nothing else
// in it is believed: neither its common name nor the address that its owner
// dials from. Whoever signs certificates, the broker's own authority (package
// ca) or the site's, has to put that URI in.
//
// Both ends read key, certificate and authorities again when the files change,
// at the next handshake: nothing has to be restarted for a new certificate.
package mtls

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Role is what a certificate's owner may act as.
type Role string

// The roles.
const (
	Node   Role = "node"
	Broker Role = "broker"
)

// scheme of the URI in a certificate.
const scheme = "kernel-broker"

// Name is who a certificate stands for. The zero value is nobody.
type Name struct {
	Cluster string
	Role    Role
	Name    string
}

// IsZero says that it is nobody's.
func (n Name) IsZero() bool { return n == Name{} }

// String is the name as the URI in a certificate has it.
func (n Name) String() string {
	return scheme + "://" + n.Cluster + "/" + string(n.Role) + "/" + n.Name
}

// URI of a certificate for this name.
func (n Name) URI() (*url.URL, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	return url.Parse(n.String())
}

// Validate refuses what cannot stand in a certificate.
func (n Name) Validate() error {
	if err := ValidateCluster(n.Cluster); err != nil {
		return err
	}
	if n.Role != Node && n.Role != Broker {
		return fmt.Errorf("role %q is neither %s nor %s: %w", n.Role, Node, Broker, kb.ErrInvalid)
	}
	return kb.ValidateNodeName(n.Name)
}

var clusterName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// ValidateCluster accepts the names that a cluster may have where certificates are used, of at most Slurm's 40 characters.
func ValidateCluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("cluster name %q cannot stand in a certificate: 1 to 40 lower-case letters, digits, dashes and underscores can, beginning with a letter or digit: %w", name, kb.ErrInvalid)
	}
	return nil
}

// ParseName reads a name as String writes it, and nothing that only looks like
// one.
func ParseName(text string) (Name, error) {
	parts := strings.Split(strings.TrimPrefix(text, scheme+"://"), "/")
	if len(parts) == 3 {
		n := Name{Cluster: parts[0], Role: Role(parts[1]), Name: parts[2]}
		if n.Validate() == nil && n.String() == text {
			return n, nil
		}
	}
	return Name{}, fmt.Errorf("name %q is not %s://CLUSTER/ROLE/NAME: %w", text, scheme, kb.ErrInvalid)
}

// NameOf reads who a certificate stands for. One that stands for two is for
// nobody; URIs of other kinds are somebody else's business.
func NameOf(certificate *x509.Certificate) (Name, error) {
	var found []Name
	for _, uri := range certificate.URIs {
		if uri.Scheme != scheme {
			continue
		}
		n, err := ParseName(uri.String())
		if err != nil {
			return Name{}, err
		}
		found = append(found, n)
	}
	if len(found) != 1 {
		return Name{}, fmt.Errorf("certificate with the serial number %x has %d names of the form %s://CLUSTER/ROLE/NAME, one is wanted: %w",
			certificate.SerialNumber, len(found), scheme, kb.ErrUnauthenticated)
	}
	return found[0], nil
}

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
	if !IsFingerprint(fingerprint) {
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

// IsFingerprint reports whether a text may be one.
func IsFingerprint(text string) bool { return encodes(text, sha256.Size) }

// Fingerprint of an authority is that of its key, so that it stays the same when
// the same key gets another certificate.
func Fingerprint(authority *x509.Certificate) string {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return encoding.EncodeToString(sum[:])
}
