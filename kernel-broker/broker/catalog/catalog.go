// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Options of a Catalog.
type Options struct {
	// Store holds the state; required. The catalog never closes it.
	Store store.Store
	// HasArtifact reports whether a digest is stored with that size. If nil, Apply does not check.
	HasArtifact func(digest string, size uint64) (bool, error)
	// CheckEnvelope verifies a version's signature, if any, before it is stored. If nil, any signature is stored.
	CheckEnvelope func(kernel kb.Kernel, envelope []byte) error
	// Restricted reports whether a profile is restricted to some users, for the snapshot; nil if none is.
	Restricted func(profile string) bool
	// Now defaults to time.Now.
	Now func() time.Time
	// Log defaults to slog.Default.
	Log *slog.Logger
}

// Catalog is the state of all profiles. It caches nothing: every method reads the store, and changes are fenced by
// revision, so several catalogs may share one store. Its methods are safe for concurrent use.
type Catalog struct {
	store           store.Store
	hasArtifact     func(string, uint64) (bool, error)
	verifySignature func(kb.Kernel, []byte) error
	restricted      func(profile string) bool
	republish       chan struct{} // holds one token when a republish is due
	now             func() time.Time
	log             *slog.Logger
}

// New returns the catalog in a store.
func New(o Options) *Catalog {
	c := &Catalog{store: o.Store, hasArtifact: o.HasArtifact, verifySignature: o.CheckEnvelope, now: o.Now, log: o.Log,
		restricted: o.Restricted, republish: make(chan struct{}, 1)}
	if c.now == nil {
		c.now = time.Now
	}
	c.log = cmp.Or(c.log, slog.Default())
	return c
}

// List returns all profiles, sorted by name.
func (c *Catalog) List(ctx context.Context) ([]kb.Profile, error) {
	records, _, err := c.store.List(ctx, keyPrefix)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	profiles := make([]kb.Profile, 0, len(records))
	for _, stored := range records {
		r, err := decode(strings.TrimPrefix(stored.Key, keyPrefix), stored.Value)
		if err != nil {
			return nil, err
		}
		profiles = append(profiles, r.Profile)
	}
	return profiles, nil
}

// Get returns one profile.
func (c *Catalog) Get(ctx context.Context, name string) (kb.Profile, error) {
	if err := kb.ValidateProfileName(name); err != nil {
		return kb.Profile{}, err
	}
	r, _, err := c.read(ctx, name)
	if errors.Is(err, kb.ErrNotFound) {
		return kb.Profile{}, c.unknown(ctx, name)
	}
	if err != nil {
		return kb.Profile{}, err
	}
	return r.Profile, nil
}

// Check reports whether a job may choose ref now, and which version that is. Errors: kb.ErrNotFound, kb.ErrQuarantined,
// kb.ErrRetired, kb.ErrInvalid, kb.ErrUnavailable.
func (c *Catalog) Check(ctx context.Context, ref kb.Ref) (kb.ProfileVersion, error) {
	profile, err := c.Get(ctx, ref.Profile)
	if err != nil {
		return kb.ProfileVersion{}, err
	}
	version, err := profile.Version(ref.Version)
	if err != nil {
		return kb.ProfileVersion{}, err
	}
	if err := Choosable(profile, version); err != nil {
		return kb.ProfileVersion{}, err
	}
	return version, nil
}

// unknown makes the error for a name that no profile has. When the other names
// cannot be read either, that is the error.
func (c *Catalog) unknown(ctx context.Context, name string) error {
	records, _, err := c.store.List(ctx, keyPrefix)
	if err != nil {
		return fmt.Errorf("profile %q: %w", name, err)
	}
	known := make([]string, len(records))
	for i, r := range records {
		known[i] = strings.TrimPrefix(r.Key, keyPrefix)
	}
	return unknownProfile(name, known)
}

func (c *Catalog) read(ctx context.Context, name string) (*record, int64, error) {
	stored, err := c.store.Get(ctx, key(name))
	if err != nil {
		return nil, 0, fmt.Errorf("profile %q: %w", name, err)
	}
	r, err := decode(name, stored.Value)
	return r, stored.Revision, err
}
