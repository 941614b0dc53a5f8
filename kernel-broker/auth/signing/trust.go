// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// MaxTrust is the largest trust list in bytes.
const MaxTrust = 1 << 20

// Trust is the list of what a node trusts; trust.sample.yaml explains it.
type Trust struct {
	Cluster string
	Keys    []TrustedKey
	// RevokedKeys are key ids, RevokedDigests images and initrds.
	RevokedKeys, RevokedDigests []string
	// Floors are the lowest versions that may be booted, by profile.
	Floors map[string]uint32
}

// TrustedKey is a key with what it is good for.
type TrustedKey struct {
	Name string
	ID   string
	// NotBefore and NotAfter bound when its signatures count; zero is no bound.
	NotBefore, NotAfter time.Time
	// Profiles are patterns of the names that it may sign; none is all.
	Profiles []string
	key      key
}

type trustFile struct {
	Cluster string    `yaml:"cluster"`
	Keys    []keyFile `yaml:"keys"`
	Revoked struct {
		Keys    []string `yaml:"keys"`
		Digests []string `yaml:"digests"`
	} `yaml:"revoked"`
	Floors map[string]uint32 `yaml:"floors"`
}

type keyFile struct {
	Name      string    `yaml:"name"`
	ID        string    `yaml:"id"`
	Public    string    `yaml:"public"`
	NotBefore time.Time `yaml:"not_before"`
	NotAfter  time.Time `yaml:"not_after"`
	Profiles  []string  `yaml:"profiles"`
}

// ParseTrust reads a trust list; name is for errors. Whatever is not understood
// is an error: a revocation that was passed over would be worse than none.
func ParseTrust(name string, text []byte) (Trust, error) {
	fail := func(err error) (Trust, error) {
		return Trust{}, fmt.Errorf("trust list %q: %w: %w", name, err, kb.ErrInvalid)
	}
	if len(text) > MaxTrust {
		return fail(fmt.Errorf("%d bytes, at most %d", len(text), MaxTrust))
	}
	var f trustFile
	if err := strictyaml.Decode(name, text, &f); err != nil {
		return fail(err)
	}
	if err := validateCluster(f.Cluster); err != nil {
		return fail(fmt.Errorf("cluster: %w", err))
	}
	t := Trust{Cluster: f.Cluster, RevokedKeys: f.Revoked.Keys, RevokedDigests: f.Revoked.Digests, Floors: f.Floors}
	var wrong []error
	for i, k := range f.Keys {
		trusted, err := k.trusted()
		if err == nil && slices.ContainsFunc(t.Keys, func(o TrustedKey) bool { return o.ID == trusted.ID }) {
			err = errors.New("is there twice")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("keys[%d] %s: %w", i, clip(k.Name), err))
		}
		t.Keys = append(t.Keys, trusted)
	}
	if len(f.Keys) == 0 {
		wrong = append(wrong, errors.New("keys: there is none"))
	}
	wrong = append(wrong, t.validate()...)
	if wrong != nil {
		return fail(errors.Join(wrong...))
	}
	return t, nil
}

func (t Trust) validate() []error {
	var wrong []error
	for _, digest := range slices.Concat(t.RevokedKeys, t.RevokedDigests) {
		if err := kb.ValidateDigest(digest); err != nil {
			wrong = append(wrong, fmt.Errorf("revoked: %w", err))
		}
	}
	for profile := range t.Floors {
		if err := kb.ValidateProfileName(profile); err != nil {
			wrong = append(wrong, fmt.Errorf("floors: %w", err))
		}
	}
	return wrong
}

func (f keyFile) trusted() (TrustedKey, error) {
	if strings.TrimSpace(f.Name) == "" {
		return TrustedKey{}, errors.New("has no name")
	}
	public, err := ParsePublicKey([]byte(f.Public))
	if err != nil {
		return TrustedKey{}, err
	}
	id, err := KeyID(public)
	if err != nil {
		return TrustedKey{}, err
	}
	if f.ID != "" && f.ID != id {
		return TrustedKey{}, fmt.Errorf("its id is %s, not %s", id, clip(f.ID))
	}
	if !f.NotAfter.IsZero() && !f.NotAfter.After(f.NotBefore) {
		return TrustedKey{}, fmt.Errorf("not_after %s is not after not_before", day(f.NotAfter))
	}
	for _, pattern := range f.Profiles {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return TrustedKey{}, fmt.Errorf("profiles: pattern %s", clip(pattern))
		}
	}
	return TrustedKey{
		Name: f.Name, ID: id, NotBefore: f.NotBefore, NotAfter: f.NotAfter, Profiles: f.Profiles, key: key{id, public},
	}, nil
}

// revoked reports whether the list takes back the key.
func (t Trust) revoked(k TrustedKey) bool { return slices.Contains(t.RevokedKeys, k.ID) }

func (k TrustedKey) inPeriod(now time.Time) bool {
	return !now.Before(k.NotBefore) && (k.NotAfter.IsZero() || now.Before(k.NotAfter))
}

func (k TrustedKey) maySign(profile string) bool {
	return len(k.Profiles) == 0 || slices.ContainsFunc(k.Profiles, func(pattern string) bool {
		match, err := path.Match(pattern, profile)
		return err == nil && match
	})
}
