// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// StockProfile is the reserved name of the distribution's own kernel.
const StockProfile = "stock"

// TokenParameter is the kernel parameter that carries the one-time token.
const TokenParameter = "kernelbroker.token"

// ModulesParameter tells the agent which modules to load after the boot: the archive's digest, a comma and its size in bytes.
const ModulesParameter = "kernelbroker.modules"

// BeginParameter is the first word of a command line that an agent wrote. Words before it are built into the kernel.
const BeginParameter = "kernelbroker.begin"

// Prefixes of the Reason that the product writes on Slurm nodes. They tell an armed return from a drain.
const (
	ReasonReturn = "kprof:"
	// ReasonForJob stands in such a reason before the job.
	ReasonForJob = " for job "
	ReasonDrain  = "kernel-broker:"
)

// ReservationPrefix is the prefix of the product's Slurm reservations.
const ReservationPrefix = "kernel-broker-"

const (
	maxNameLength    = 64
	maxVersionDigits = 9
	// MaxRequestID is the maximum length of a request id.
	MaxRequestID = maxNameLength
)

// ValidateProfileName accepts lower-case letters, digits, dot, dash and underscore; the first and last character must be
// a letter or digit.
func ValidateProfileName(name string) error {
	if name == "" {
		return fmt.Errorf("profile name is empty: %w", ErrInvalid)
	}
	if len(name) > maxNameLength {
		return fmt.Errorf("profile name has %d characters, at most %d are allowed: %w", len(name), maxNameLength, ErrInvalid)
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		inner := i > 0 && i < len(name)-1 && (c == '.' || c == '_' || c == '-')
		if lower := strings.ToLower(name); !alnum && c >= 'A' && c <= 'Z' && ValidateProfileName(lower) == nil {
			return fmt.Errorf("profile name %q: character %q at position %d: %w; did you mean %q?", name, c, i+1, ErrInvalid, lower)
		}
		if !alnum && !inner {
			return fmt.Errorf("profile name %q: character %q at position %d: %w", name, c, i+1, ErrInvalid)
		}
	}
	return nil
}

// Ref names a profile and, when Version is not 0, one version of it.
type Ref struct {
	Profile string
	Version uint32
}

// ParseRef reads NAME or NAME@VERSION.
func ParseRef(text string) (Ref, error) {
	name, version, has := strings.Cut(text, "@")
	if err := ValidateProfileName(name); err != nil {
		return Ref{}, err
	}
	if !has {
		return Ref{Profile: name}, nil
	}
	bad := version == "" || len(version) > maxVersionDigits || version[0] == '0'
	for i := range len(version) {
		bad = bad || version[i] < '0' || version[i] > '9'
	}
	if bad {
		return Ref{}, fmt.Errorf("profile %q: version %q is not a positive number: %w", name, version, ErrInvalid)
	}
	n, err := strconv.ParseUint(version, 10, 32)
	if err != nil {
		return Ref{}, fmt.Errorf("profile %q: version %q: %w", name, version, ErrInvalid)
	}
	return Ref{Profile: name, Version: uint32(n)}, nil
}

// String is the inverse of ParseRef.
func (r Ref) String() string {
	if r.Version == 0 {
		return r.Profile
	}
	return r.Profile + "@" + strconv.FormatUint(uint64(r.Version), 10)
}

// IsStock reports whether the reference names the distribution's kernel.
func (r Ref) IsStock() bool { return r.Profile == StockProfile }

// ValidateDigest accepts "sha256:" and 64 lower-case hex digits, the only notation: digests are compared as text, and name
// files.
func ValidateDigest(digest string) error {
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != 32 || sum != strings.ToLower(sum) {
		return fmt.Errorf("digest %.100q is not sha256: and 64 hex digits: %w", digest, ErrInvalid)
	}
	return nil
}

// ValidateToken accepts 32 lower-case hex digits.
func ValidateToken(token string) error {
	if raw, err := hex.DecodeString(token); err != nil || len(raw) != 16 || token != strings.ToLower(token) {
		return fmt.Errorf("token is not 32 hex digits: %w", ErrInvalid)
	}
	return nil
}

// plainName accepts letters, digits and the punctuation of versions, drivers and devices, none of which is special to a
// shell, a terminal or a path.
func plainName(text string, longest int) bool {
	for i := range len(text) {
		c := text[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && strings.IndexByte("._+~:@=-", c) < 0 {
			return false
		}
	}
	return len(text) <= longest && !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, ".")
}

// ValidateBuildID accepts a GNU build id: 8 to 64 bytes in lower-case hex.
func ValidateBuildID(id string) error {
	if raw, err := hex.DecodeString(id); err != nil || len(raw) < 8 || len(raw) > 64 || id != strings.ToLower(id) {
		return fmt.Errorf("build id %.150q is not a GNU build id in hex: %w", id, ErrInvalid)
	}
	return nil
}

// ValidateRelease accepts output of uname -r.
func ValidateRelease(release string) error {
	if release == "" || !plainName(release, maxWord) {
		return fmt.Errorf("release %.80q: %w", release, ErrInvalid)
	}
	return nil
}

// ValidateRequestID accepts the ids that callers give to their changes.
func ValidateRequestID(id string) error {
	if id == "" || len(id) > MaxRequestID {
		return fmt.Errorf("request id %.80q has a wrong length (1 to %d characters): %w", id, MaxRequestID, ErrInvalid)
	}
	if strings.IndexFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) >= 0 {
		return fmt.Errorf("request id %q is not printable ASCII: %w", id, ErrInvalid)
	}
	return nil
}

// ValidateNodeName accepts host names as slurm.conf has them.
func ValidateNodeName(name string) error {
	if name == "" || len(name) > maxNameLength {
		return fmt.Errorf("node name %q has a wrong length: %w", name, ErrInvalid)
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_' && c != '.') {
			return fmt.Errorf("node name %q: character %q: %w", name, c, ErrInvalid)
		}
	}
	return nil
}
