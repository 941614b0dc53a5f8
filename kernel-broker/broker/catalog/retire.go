// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// RetiredError is kb.ErrRetired with the reason. Its text is shown to
// users as it is.
type RetiredError struct {
	Ref        kb.Ref
	Retirement kb.Retirement
	Others     []kb.Ref // versions that can be chosen, newest first
}

func (e *RetiredError) Error() string {
	text := fmt.Sprintf("kernel %q is retired since %s", e.Ref, e.Retirement.Since.UTC().Format(time.RFC3339))
	if e.Retirement.Reason != "" {
		text += ": " + e.Retirement.Reason
	}
	return text + youCanChoose(e.Others, "")
}

// Is makes errors.Is(err, kb.ErrRetired) hold.
func (e *RetiredError) Is(target error) bool { return target == kb.ErrRetired }

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
		return &RetiredError{Ref: v.Kernel.Ref(), Retirement: *v.Retired, Others: others}
	case v.Quarantine != nil:
		return &QuarantinedError{Ref: v.Kernel.Ref(), Quarantine: *v.Quarantine, Others: others}
	}
	return nil
}

// Retire takes a version out of use, or all versions if version is 0. It returns the current profile and whether the
// call changed it. Retiring stock is kb.ErrFailedPrecondition, and so is retiring the default version while others can
// be chosen: the bare name would resolve to nothing.
func (c *Catalog) Retire(ctx context.Context, requestID string, ref kb.Ref, reason string) (kb.Profile, bool, error) {
	if ref.IsStock() {
		return kb.Profile{}, false, fmt.Errorf("nodes return to profile %q: %w", ref.Profile, kb.ErrFailedPrecondition)
	}
	reason = kb.OneLine(reason)
	p, changed, err := c.alter(ctx, requestID, ref.Profile, []any{"retire", ref, reason}, func(p *kb.Profile) (bool, error) {
		altered, err := retire(p, ref, kb.Retirement{Reason: reason, Since: c.now().UTC().Truncate(time.Second)})
		if altered {
			c.note(ctx, p, kb.ChangeRetired, ref.Version, reason)
		}
		return altered, err
	})
	if changed {
		c.log.Info("profile retired", "kernel", ref.String(), "reason", reason, "request", requestID)
	}
	return p, changed, err
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
