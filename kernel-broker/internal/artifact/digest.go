// SPDX-License-Identifier: Apache-2.0

// Package artifact keeps kernels, initial ram disks and module trees as files named by the digest of their content.
//
// Such a name can be checked against the file. So transfers, disks and other hosts need not be trusted, and two versions
// cannot be confused. A file appears under its name only when it is complete, checked and on disk.
//
// Dir is the plain directory that the broker uses. Cache, on top of it, is the node agent's: bounded in bytes, filled on
// demand.
package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Errors for errors.Is.
var (
	ErrInvalidDigest  = errors.New("invalid digest")
	ErrDigestMismatch = errors.New("content does not match its digest")
	ErrNotFound       = errors.New("artifact not found")
	ErrTooLarge       = errors.New("artifact too large")
	ErrTruncated      = errors.New("artifact truncated")
	ErrDiskFull       = errors.New("no space on the disk")
	ErrCacheFull      = errors.New("cache is full of pinned artifacts")
)

const digestPrefix = "sha256:"

// Digest is the SHA-256 of an artifact. It can be compared and be a map key.
type Digest struct{ sum [sha256.Size]byte }

// ParseDigest reads "sha256:" and 64 lower-case hex digits, the only notation, so that digests can be compared as text.
func ParseDigest(text string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(text, digestPrefix)
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) || strings.ToLower(digits) != digits {
		return Digest{}, fmt.Errorf("digest %q: %w: want sha256: and 64 lower-case hex digits", shorten(text), ErrInvalidDigest)
	}
	if _, err := hex.Decode(d.sum[:], []byte(digits)); err != nil {
		return Digest{}, fmt.Errorf("digest %q: %w: %w", shorten(text), ErrInvalidDigest, err)
	}
	return d, nil
}

// DigestOf hashes content that is in memory.
func DigestOf(content []byte) Digest { return Digest{sha256.Sum256(content)} }

// String is the form that ParseDigest reads.
func (d Digest) String() string { return digestPrefix + d.hex() }

// IsZero reports whether the digest is unset.
func (d Digest) IsZero() bool { return d == Digest{} }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

func (d Digest) hex() string { return hex.EncodeToString(d.sum[:]) }

// shorten keeps foreign input out of logs in bulk.
func shorten(text string) string {
	const most = 100
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// mismatch names both digests.
func mismatch(want, have Digest) error {
	return fmt.Errorf("%w: want %s, have %s", ErrDigestMismatch, want, have)
}
