// SPDX-License-Identifier: Apache-2.0

// Package catalog holds what users can choose: profiles and their kernels.
//
// It has two halves. The first reads files: strict YAML profiles and the manifest of a built kernel (Load, Resolve). The
// second is the state in the broker's store (Catalog): the registered versions, their boot failures and quarantines.
//
// A registered version never changes: mitgcm@3 has the same bytes tomorrow as yesterday. So Apply only adds versions and
// rejects other content under an old number. The rest (description, default version, policies) may change at any time.
//
// The snapshot connects the catalog to the submit hosts: a small text file in which a plugin looks names up without a
// network.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/similar"
)

// Options of a Catalog.
type Options struct {
	// Store holds the state; required. The catalog never closes it.
	Store store.Store
	// History gets an event for each change of a profile; nil: none are kept.
	History *history.Journal
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

// Catalog is the state of all profiles. It caches nothing but the published snapshot: every other method reads the store,
// and changes are fenced by revision. Its methods are safe for concurrent use.
type Catalog struct {
	o         Options
	republish chan struct{}          // holds one token when a republish is due
	snapshot  atomic.Pointer[string] // nil before the first one
}

// New returns the catalog in a store.
func New(o Options) *Catalog {
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Catalog{o: o, republish: make(chan struct{}, 1)}
}

// List returns all profiles, sorted by name.
func (c *Catalog) List(ctx context.Context) ([]kb.Profile, error) {
	records, _, err := c.o.Store.List(ctx, keyPrefix)
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

// Names returns those of all profiles, of retired ones too.
func (c *Catalog) Names(ctx context.Context) ([]string, error) {
	records, _, err := c.o.Store.List(ctx, keyPrefix)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = strings.TrimPrefix(r.Key, keyPrefix)
	}
	return names, nil
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
	if text := c.snapshot.Load(); text != nil {
		return unknownProfile(name, profilesIn(*text))
	}
	known, err := c.Names(ctx)
	if err != nil {
		return fmt.Errorf("profile %q: %w", name, err)
	}
	return unknownProfile(name, known)
}

// profilesIn are the names in a snapshot's text.
func profilesIn(snapshot string) (names []string) {
	for line := range strings.Lines(snapshot) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "profile" {
			names = append(names, words[1])
		}
	}
	return names
}

func (c *Catalog) read(ctx context.Context, name string) (*record, int64, error) {
	stored, err := c.o.Store.Get(ctx, key(name))
	if err != nil {
		return nil, 0, fmt.Errorf("profile %q: %w", name, err)
	}
	r, err := decode(name, stored.Value)
	return r, stored.Revision, err
}

// refusal is an error of the domain whose text users see as it is.
type refusal struct {
	is   error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.is }

// quotedList names at most similar.Most.
func quotedList(names []kb.Ref) string {
	var quoted []string
	for _, name := range names[:min(len(names), similar.Most)] {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	return strings.Join(quoted, " or ")
}

// unknownProfile is kb.ErrNotFound with names like it.
func unknownProfile(name string, known []string) error {
	text := fmt.Sprintf("unknown kernel profile %q", name)
	var near []kb.Ref
	for _, like := range similar.Names(name, known) {
		near = append(near, kb.Ref{Profile: like})
	}
	if len(near) > 0 {
		text += "; did you mean " + quotedList(near) + "?"
	}
	return &refusal{kb.ErrNotFound, text}
}
