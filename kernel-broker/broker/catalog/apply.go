// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Apply registers or changes a profile: new versions are added, existing versions must have the same content, versions
// not listed stay, everything else is replaced. Default version 0 keeps the default of an existing profile; the default
// only moves to a version that jobs may choose, otherwise the error is kb.ErrQuarantined or kb.ErrRetired. Registration
// times, boot failures, quarantines and retirements belong to the catalog and are ignored in profile. Apply returns the
// current profile and whether the call changed it.
//
// Repeating a request id with the same profile has no further effect.
func (c *Catalog) Apply(ctx context.Context, requestID string, profile kb.Profile) (kb.Profile, bool, error) {
	wanted := strip(profile)
	for _, v := range wanted.Versions {
		// First of all: a figure that is no number has no digest.
		if err := v.ValidateMeasured(); err != nil {
			return kb.Profile{}, false, fmt.Errorf("kernel %q: %w", v.Kernel.Ref(), err)
		}
	}
	return c.alter(ctx, requestID, kb.Ref{Profile: profile.Name}, []any{opApply, wanted}, func(p *kb.Profile) (bool, error) {
		before := *p
		if err := c.merge(ctx, p, wanted); err != nil {
			return false, err
		}
		return !reflect.DeepEqual(before, *p), checkRecordSize(before, *p, c.o.Store.Limits().Bytes)
	})
}

// strip removes fields that callers do not control.
func strip(profile kb.Profile) kb.Profile {
	versions := make([]kb.ProfileVersion, len(profile.Versions))
	for i, v := range profile.Versions {
		versions[i] = kb.ProfileVersion{Kernel: normalise(v.Kernel), Documents: v.Documents, Envelope: v.Envelope, NoBTF: v.NoBTF}
		if v.Measured != nil {
			measured := *v.Measured
			measured.Reason = kb.OneLine(measured.Reason)
			versions[i].Measured = &measured
		}
	}
	profile.Versions, profile.History, profile.Previous = versions, nil, nil
	profile.SortVersions()
	return profile
}

// normalise makes kernels comparable after JSON or protobuf, which do not distinguish empty from absent.
func normalise(k kb.Kernel) kb.Kernel {
	if len(k.Arguments) == 0 {
		k.Arguments = nil
	}
	if len(k.Drivers) == 0 {
		k.Drivers = nil
	}
	return k
}

// merge brings wanted into the profile. The signature of a version that is there
// stays: see Sign.
func (c *Catalog) merge(ctx context.Context, p *kb.Profile, wanted kb.Profile) error {
	merged := wanted
	if merged.DefaultVersion == 0 {
		// A caller that only adds a version need not know the default, which may have moved in the meantime.
		merged.DefaultVersion = p.DefaultVersion
	}
	merged.Versions = append([]kb.ProfileVersion(nil), p.Versions...)
	merged.History, merged.Previous = slices.Clone(p.History), slices.Clone(p.Previous)
	for _, v := range wanted.Versions {
		old, exists := find(*p, v.Kernel.Version)
		if exists && reflect.DeepEqual(normalise(old.Kernel), v.Kernel) {
			if err := c.document(ctx, &merged, v); err != nil {
				return err
			}
			continue
		}
		if exists {
			return fmt.Errorf("kernel %q exists with other content (%s); give the new one a new version: %w",
				v.Kernel.Ref(), difference(old.Kernel, v.Kernel), kb.ErrFailedPrecondition)
		}
		if err := c.checkArtifacts(ctx, v); err != nil {
			return err
		}
		// A dry run comes before the key is asked for.
		if !kb.DryRun(ctx) || len(v.Envelope) > 0 {
			if err := c.checkEnvelope(v.Kernel, v.Envelope); err != nil {
				return err
			}
		}
		v.RegisteredAt = c.o.Now().UTC()
		merged.Versions = append(merged.Versions, v)
		c.note(ctx, &merged, kb.ChangeRegistered, v.Kernel.Version, "")
	}
	merged.SortVersions()
	c.noteSettings(ctx, &merged, *p)
	if err := merged.Validate(); err != nil {
		return err
	}
	if err := cmp.Or(defaultMoves(*p, merged), checkDefaultChoosable(merged)); err != nil {
		return err
	}
	*p = merged
	return nil
}

// defaultMoves refuses an unavailable version as the new default. An unchanged default may be quarantined: that was
// decided elsewhere.
func defaultMoves(old, merged kb.Profile) error {
	if merged.DefaultVersion == old.DefaultVersion {
		return nil
	}
	v, err := merged.Version(merged.DefaultVersion)
	if err != nil {
		return err
	}
	return Choosable(merged, v)
}

// noteSettings records changes other than versions.
func (c *Catalog) noteSettings(ctx context.Context, merged *kb.Profile, old kb.Profile) {
	if old.Name == "" {
		return
	}
	if next := merged.DefaultVersion; next != old.DefaultVersion {
		merged.DefaultVersion = old.DefaultVersion
		merged.SetDefault(next)
		c.note(ctx, merged, kb.ChangePromoted, next, "")
	}
	if merged.Application != old.Application || merged.Description != old.Description || merged.Reuse != old.Reuse ||
		merged.Fallback != old.Fallback || merged.BootAttempts != old.BootAttempts || merged.BootTimeout != old.BootTimeout {
		c.note(ctx, merged, kb.ChangeChanged, 0, "")
	}
}

// document gives a version without documents those of wanted, and one of which nothing is measured the measurement with its
// report. What is there is as immutable as the kernel.
func (c *Catalog) document(ctx context.Context, merged *kb.Profile, wanted kb.ProfileVersion) error {
	i := slices.IndexFunc(merged.Versions, func(v kb.ProfileVersion) bool { return v.Kernel.Version == wanted.Kernel.Version })
	v := &merged.Versions[i]
	switch {
	case len(v.Documents) == 0 && len(wanted.Documents) > 0:
		v.Documents, v.Measured = wanted.Documents, wanted.Measured
	case v.Measured == nil && wanted.Measured != nil:
		report := wanted.Documents[slices.IndexFunc(wanted.Documents, func(d kb.Document) bool { return d.Digest == wanted.Measured.Report })]
		if !slices.Contains(v.Documents, report) {
			if slices.ContainsFunc(v.Documents, func(d kb.Document) bool { return d.Name == report.Name }) {
				return nil
			}
			v.Documents = append(slices.Clone(v.Documents), report)
		}
		v.Measured = wanted.Measured
	default:
		return nil
	}
	if v.Measured != nil {
		c.note(ctx, merged, kb.ChangeChanged, v.Kernel.Version, "measured: "+string(v.Measured.Outcome))
	}
	return c.checkArtifacts(ctx, wanted)
}

func find(p kb.Profile, version uint32) (kb.ProfileVersion, bool) {
	for _, v := range p.Versions {
		if v.Kernel.Version == version {
			return v, true
		}
	}
	return kb.ProfileVersion{}, false
}

// difference names the first field in which two kernels differ.
func difference(old, wanted kb.Kernel) string {
	a, b := reflect.ValueOf(normalise(old)), reflect.ValueOf(normalise(wanted))
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			return fmt.Sprintf("%s: %v, not %v", name, a.Field(i), b.Field(i))
		}
	}
	return "nothing"
}

// checkArtifacts rejects a version with missing files or oversized documents. Before a dry run nothing is uploaded.
func (c *Catalog) checkArtifacts(ctx context.Context, v kb.ProfileVersion) error {
	k := v.Kernel
	if err := k.Validate(); err != nil {
		return err
	}
	for _, d := range v.Documents {
		// Checked here and not in Validate: documents from before this limit must not block changes of the profile.
		if d.Size > MaxDocument {
			return fmt.Errorf("kernel %q: document %q has %d bytes, at most %d are possible: %w", k.Ref(), d.Name, d.Size, MaxDocument, kb.ErrInvalid)
		}
	}
	if c.o.HasArtifact == nil || kb.DryRun(ctx) {
		return nil
	}
	files := k.Files()
	for _, d := range v.Documents {
		files = append(files, kb.File{What: "document " + d.Name, Digest: d.Digest, Size: d.Size})
	}
	for _, file := range files {
		has, err := c.o.HasArtifact(file.Digest, file.Size)
		if err != nil {
			return fmt.Errorf("kernel %q: %s: %w", k.Ref(), file.What, err)
		}
		if !has {
			return fmt.Errorf("kernel %q: %s %s with %d bytes is not stored; upload it first: %w",
				k.Ref(), file.What, file.Digest, file.Size, kb.ErrFailedPrecondition)
		}
	}
	return nil
}
