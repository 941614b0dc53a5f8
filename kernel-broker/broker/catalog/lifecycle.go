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
	reason = cmp.Or(reason, why)
	p.Note(kb.Change{At: c.o.Now().UTC().Truncate(time.Second), Who: who, What: what, Version: version, Reason: reason})
}

// checkEnvelope rejects a signature that the nodes would reject.
func (c *Catalog) checkEnvelope(k kb.Kernel, envelope []byte) error {
	if c.o.CheckEnvelope == nil {
		return nil
	}
	if err := c.o.CheckEnvelope(k, envelope); err != nil {
		return fmt.Errorf("signature of kernel %q: %w: %w", k.Ref(), err, kb.ErrFailedPrecondition)
	}
	return nil
}

// opApply is the one change that may create a profile.
const opApply = "apply"

// alter makes one change of a profile by a person, once per request id. asked is what was requested, its name first.
// change reports whether it altered anything. A dry run ends before the write, has no request id, and returns what would be.
func (c *Catalog) alter(ctx context.Context, requestID string, ref kb.Ref, asked []any, change func(*kb.Profile) (bool, error)) (kb.Profile, bool, error) {
	none := kb.Profile{}
	dry := kb.DryRun(ctx)
	digest, err := digestOf(asked...)
	if !dry {
		err = cmp.Or(kb.ValidateRequestID(requestID), err)
	}
	if err = cmp.Or(err, kb.ValidateProfileName(ref.Profile)); err != nil {
		return none, false, err
	}
	altered := false
	r, written, err := c.update(ctx, ref.Profile, func(r *record) error {
		// What an earlier try altered counts if it was applied and its answer lost.
		if done, err := r.done(requestID, digest); err != nil || done {
			return cmp.Or(err, errNoChange)
		}
		altered = false
		if r.Profile.Name == "" && asked[0] != opApply {
			return c.unknown(ctx, ref.Profile)
		}
		var err error
		altered, err = change(&r.Profile)
		if dry {
			return cmp.Or(err, errNoChange)
		}
		// Remembered even without a change: a late repeat must not undo another client's change.
		r.remember(requestID, digest)
		return err
	})
	if err != nil {
		return none, false, err
	}
	if dry {
		return r.Profile, altered, nil
	}
	if written && altered {
		c.o.Log.Info("profile changed", "change", asked[0], "kernel", ref.String(), "default_version", r.Profile.DefaultVersion, "request", requestID)
	}
	return r.Profile, written && altered, nil
}

// Promote makes a version the default; version 0 rolls back to the previous choosable default. A version that jobs may
// not choose is kb.ErrQuarantined or kb.ErrRetired.
func (c *Catalog) Promote(ctx context.Context, requestID string, ref kb.Ref) (kb.Profile, bool, error) {
	return c.alter(ctx, requestID, ref, []any{"promote", ref}, func(p *kb.Profile) (bool, error) {
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
	return c.alter(ctx, requestID, ref, []any{"quarantine", ref, reason}, func(p *kb.Profile) (bool, error) {
		v, err := pickIn(p, ref)
		if err != nil || v.Quarantine != nil {
			return false, err
		}
		v.Quarantine = &kb.Quarantine{Reason: reason, Since: c.o.Now().UTC().Truncate(time.Second)}
		c.note(ctx, p, kb.ChangeQuarantined, ref.Version, reason)
		return true, nil
	})
}

// Sign replaces the signature of a version. The kernel stays as it is.
func (c *Catalog) Sign(ctx context.Context, requestID string, ref kb.Ref, envelope []byte) (kb.Profile, bool, error) {
	return c.alter(ctx, requestID, ref, []any{"sign", ref, envelope}, func(p *kb.Profile) (bool, error) {
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
		if err := checkRecordSize(before, *p, c.o.Store.Limits().Bytes); err != nil {
			return false, err
		}
		c.note(ctx, p, kb.ChangeSigned, ref.Version, "")
		return true, nil
	})
}

// ReleaseQuarantine lets jobs choose a version again and forgets its failures.
// It is kb.ErrFailedPrecondition when the version is not quarantined, unless
// this request released it.
func (c *Catalog) ReleaseQuarantine(ctx context.Context, requestID string, ref kb.Ref) error {
	_, _, err := c.alter(ctx, requestID, ref, []any{"release", ref}, func(p *kb.Profile) (bool, error) {
		v, err := pickIn(p, ref)
		if err != nil {
			return false, err
		}
		if v.Quarantine == nil {
			return false, fmt.Errorf("kernel %q is not quarantined: %w", ref, kb.ErrFailedPrecondition)
		}
		v.Quarantine, v.BootFailures, v.FailedOn = nil, 0, nil
		c.note(ctx, p, kb.ChangeReleased, ref.Version, "")
		return true, nil
	})
	return err
}

// Choosable is the error for a version that no job may choose, or nil. Retirement is final, so it takes precedence.
func Choosable(p kb.Profile, v kb.ProfileVersion) error {
	var others []kb.Ref
	for i := len(p.Versions) - 1; i >= 0; i-- {
		if o := p.Versions[i]; o.Quarantine == nil && o.Retired == nil {
			others = append(others, o.Kernel.Ref())
		}
	}
	switch {
	case v.Retired != nil:
		text := fmt.Sprintf("kernel %q is retired since %s", v.Kernel.Ref(), v.Retired.Since.UTC().Format(time.RFC3339))
		if v.Retired.Reason != "" {
			text += ": " + v.Retired.Reason
		}
		return &refusal{kb.ErrRetired, text + youCanChoose(others, "")}
	case v.Quarantine != nil:
		text := fmt.Sprintf("kernel %q is quarantined since %s: %s", v.Kernel.Ref(), v.Quarantine.Since.UTC().Format(time.RFC3339), v.Quarantine.Reason)
		return &refusal{kb.ErrQuarantined, text + youCanChoose(others, "; an administrator can release it")}
	}
	return nil
}

// youCanChoose ends the text of a refusal. others are the newest first.
func youCanChoose(others []kb.Ref, none string) string {
	if len(others) == 0 {
		return none
	}
	return "; you can choose " + quotedList(others)
}

// Retire takes a version out of use, or all versions if version is 0. It returns the current profile and whether the
// call changed it. Retiring stock is kb.ErrFailedPrecondition, and so is retiring the default version while others can
// be chosen: the bare name would resolve to nothing.
func (c *Catalog) Retire(ctx context.Context, requestID string, ref kb.Ref, reason string) (kb.Profile, bool, error) {
	if ref.IsStock() {
		return kb.Profile{}, false, fmt.Errorf("nodes return to profile %q: %w", ref.Profile, kb.ErrFailedPrecondition)
	}
	reason = kb.OneLine(reason)
	return c.alter(ctx, requestID, ref, []any{"retire", ref, reason}, func(p *kb.Profile) (bool, error) {
		altered, err := retire(p, ref, kb.Retirement{Reason: reason, Since: c.o.Now().UTC().Truncate(time.Second)})
		if altered {
			c.note(ctx, p, kb.ChangeRetired, ref.Version, reason)
		}
		return altered, err
	})
}

func retire(p *kb.Profile, ref kb.Ref, how kb.Retirement) (altered bool, err error) {
	if ref.Version != 0 {
		if _, err := p.Version(ref.Version); err != nil {
			return false, err
		}
	}
	for i := range p.Versions {
		v := &p.Versions[i]
		if v.Retired == nil && (ref.Version == 0 || ref.Version == v.Kernel.Version) {
			retirement := how
			v.Retired, altered = &retirement, true
		}
	}
	return altered, checkDefaultChoosable(*p)
}

// checkDefaultChoosable refuses a profile whose default version cannot be chosen while others can.
func checkDefaultChoosable(p kb.Profile) error {
	v, err := p.Version(0)
	if err != nil || v.Retired == nil || p.Retired() {
		return err
	}
	return fmt.Errorf("kernel %q is the default version; make another version the default, or retire the whole profile: %w",
		v.Kernel.Ref(), kb.ErrFailedPrecondition)
}

// BootFailure is one failed boot of a kernel.
type BootFailure struct {
	// ID names the boot: one that was counted before is not counted again.
	ID    string
	Ref   kb.Ref
	Node  string
	Cause string
	// Only: no other node has booted this version or tried to.
	Only bool
	// Threshold is the number of failures that quarantine a version.
	Threshold uint32
}

// maxFailedOn of a version's nodes are remembered; two decide.
const maxFailedOn = 4

// proves reports whether the failures are the kernel's fault: failures of a single node are that node's fault, unless no
// other node has tried the kernel.
func (f BootFailure) proves(v *kb.ProfileVersion) bool {
	return v.BootFailures >= f.Threshold && (f.Only || len(v.FailedOn) > 1)
}

// RecordBootFailure counts one failed boot of a kernel. Failures since registration or release quarantine the version
// when they reach the threshold on at least two nodes. Stock is exempt: nodes need a kernel to return to. It reports
// whether the version is quarantined afterwards.
func (c *Catalog) RecordBootFailure(ctx context.Context, f BootFailure) (bool, error) {
	id, ref := f.ID, f.Ref
	if err := kb.ValidateRequestID(id); err != nil {
		return false, err
	}
	cause := kb.OneLine(f.Cause)
	var after kb.ProfileVersion
	quarantined := false
	_, counted, err := c.update(ctx, ref.Profile, func(r *record) error {
		v, err := pick(r, ref)
		if err != nil {
			return err
		}
		if slices.Contains(r.Failures, id) {
			after = *v
			return errNoChange
		}
		r.Failures = append(r.Failures, id)
		r.Failures = r.Failures[max(0, len(r.Failures)-maxFailures):]
		v.BootFailures++
		if f.Node != "" && !slices.Contains(v.FailedOn, f.Node) && len(v.FailedOn) < maxFailedOn {
			v.FailedOn = append(slices.Clone(v.FailedOn), f.Node)
		}
		quarantined = v.Quarantine == nil && f.proves(v) && !ref.IsStock()
		if quarantined {
			v.Quarantine = &kb.Quarantine{
				Reason: failedToBoot(v.BootFailures, cause),
				Since:  c.o.Now().UTC().Truncate(time.Second),
			}
			c.note(ctx, &r.Profile, kb.ChangeQuarantined, ref.Version, v.Quarantine.Reason)
		}
		after = *v
		return nil
	})
	if err != nil || !counted {
		return after.Quarantine != nil, err
	}
	c.o.Log.Warn("kernel failed to boot", "kernel", ref.String(), "node", f.Node, "cause", cause, "failures", after.BootFailures)
	if quarantined {
		c.o.Log.Warn("kernel quarantined", "kernel", ref.String(), "reason", after.Quarantine.Reason)
	}
	return after.Quarantine != nil, nil
}

// pick returns the version that ref names, for changing it in place.
func pick(r *record, ref kb.Ref) (*kb.ProfileVersion, error) {
	if r.Profile.Name == "" {
		return nil, unknownProfile(ref.Profile, nil)
	}
	return pickIn(&r.Profile, ref)
}

func pickIn(p *kb.Profile, ref kb.Ref) (*kb.ProfileVersion, error) {
	if ref.Version == 0 {
		return nil, fmt.Errorf("kernel %q names no version: %w", ref, kb.ErrInvalid)
	}
	for i := range p.Versions {
		if p.Versions[i].Kernel.Version == ref.Version {
			return &p.Versions[i], nil
		}
	}
	_, err := p.Version(ref.Version)
	return nil, err
}

func failedToBoot(failures uint32, last string) string {
	return fmt.Sprintf("failed to boot %s, last: %s", times(failures), last)
}

func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
