// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// note adds a change to a profile's history with the author in the context. A change's own reason takes precedence.
func (c *Catalog) note(ctx context.Context, p *kb.Profile, what string, version uint32, reason string) {
	who, why := kb.AuthorOf(ctx)
	if reason == "" {
		reason = why
	}
	p.Note(kb.Change{At: c.now().UTC().Truncate(time.Second), Who: who, What: what, Version: version, Reason: reason})
}

// checkEnvelope rejects a signature that the nodes would reject.
func (c *Catalog) checkEnvelope(k kb.Kernel, envelope []byte) error {
	if c.verifySignature == nil {
		return nil
	}
	if err := c.verifySignature(k, envelope); err != nil {
		return fmt.Errorf("signature of kernel %q: %w: %w", k.Ref(), err, kb.ErrFailedPrecondition)
	}
	return nil
}

// alter makes one change of a profile by a person: once per request id, on a
// profile that is there. change reports whether it altered anything.
func (c *Catalog) alter(ctx context.Context, requestID, name string, asked []any, change func(*kb.Profile) (bool, error)) (kb.Profile, bool, error) {
	none := kb.Profile{}
	if err := kb.ValidateRequestID(requestID); err != nil {
		return none, false, err
	}
	if err := kb.ValidateProfileName(name); err != nil {
		return none, false, err
	}
	digest, err := digestOf(asked...)
	if err != nil {
		return none, false, err
	}
	altered := false
	r, written, err := c.update(ctx, name, func(r *record) error {
		altered = false
		if done, err := r.done(requestID, digest); err != nil || done {
			return cmp.Or(err, errNoChange)
		}
		if r.Profile.Name == "" {
			return c.unknown(ctx, name)
		}
		var err error
		altered, err = change(&r.Profile)
		r.remember(requestID, digest)
		return err
	})
	if err != nil {
		return none, false, err
	}
	return r.Profile, written && altered, nil
}

// Promote makes a version the default; version 0 rolls back to the previous choosable default. A version that jobs may
// not choose is *QuarantinedError or *RetiredError.
func (c *Catalog) Promote(ctx context.Context, requestID string, ref kb.Ref) (kb.Profile, bool, error) {
	p, changed, err := c.alter(ctx, requestID, ref.Profile, []any{"promote", ref}, func(p *kb.Profile) (bool, error) {
		if ref.Version == 0 {
			return true, c.rollBack(ctx, p)
		}
		v, err := p.Version(ref.Version)
		if err != nil {
			return false, err
		}
		if err := Choosable(*p, v); err != nil {
			return false, err
		}
		if p.DefaultVersion == ref.Version {
			return false, nil
		}
		p.SetDefault(ref.Version)
		c.note(ctx, p, kb.ChangePromoted, ref.Version, "")
		return true, nil
	})
	if changed {
		c.log.Info("default version changed", "profile", ref.Profile, "version", p.DefaultVersion, "request", requestID)
	}
	return p, changed, err
}

func (c *Catalog) rollBack(ctx context.Context, p *kb.Profile) error {
	if !p.StepBack(func(v kb.ProfileVersion) bool { return Choosable(*p, v) == nil }) {
		return fmt.Errorf("profile %q: no default version before %d is available to jobs: %w",
			p.Name, p.DefaultVersion, kb.ErrFailedPrecondition)
	}
	c.note(ctx, p, kb.ChangeRolledBack, p.DefaultVersion, "")
	return nil
}

// Quarantine keeps jobs from choosing a version until it is released. Stock is
// kb.ErrFailedPrecondition.
func (c *Catalog) Quarantine(ctx context.Context, requestID string, ref kb.Ref, reason string) (kb.Profile, bool, error) {
	if ref.IsStock() {
		return kb.Profile{}, false, fmt.Errorf("nodes return to profile %q: %w", ref.Profile, kb.ErrFailedPrecondition)
	}
	reason = kb.OneLine(reason)
	p, changed, err := c.alter(ctx, requestID, ref.Profile, []any{"quarantine", ref, reason}, func(p *kb.Profile) (bool, error) {
		v, err := pickIn(p, ref)
		if err != nil || v.Quarantine != nil {
			return false, err
		}
		v.Quarantine = &kb.Quarantine{Reason: reason, Since: c.now().UTC().Truncate(time.Second)}
		c.note(ctx, p, kb.ChangeQuarantined, ref.Version, reason)
		return true, nil
	})
	if changed {
		c.log.Warn("kernel quarantined", "kernel", ref.String(), "reason", reason, "request", requestID)
	}
	return p, changed, err
}

// Sign replaces the signature of a version. The kernel stays as it is.
func (c *Catalog) Sign(ctx context.Context, requestID string, ref kb.Ref, envelope []byte) (kb.Profile, bool, error) {
	p, changed, err := c.alter(ctx, requestID, ref.Profile, []any{"sign", ref, envelope}, func(p *kb.Profile) (bool, error) {
		v, err := pickIn(p, ref)
		if err != nil || bytes.Equal(v.Envelope, envelope) {
			return false, err
		}
		if err := c.checkEnvelope(v.Kernel, envelope); err != nil {
			return false, err
		}
		before := *p
		before.Versions = slices.Clone(p.Versions)
		v.Envelope = envelope
		if err := checkRecordSize(before, *p); err != nil {
			return false, err
		}
		c.note(ctx, p, kb.ChangeSigned, ref.Version, "")
		return true, nil
	})
	if changed {
		c.log.Info("kernel signed", "kernel", ref.String(), "request", requestID)
	}
	return p, changed, err
}
