// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

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
				Since:  c.now().UTC().Truncate(time.Second),
			}
			c.note(ctx, &r.Profile, kb.ChangeQuarantined, ref.Version, v.Quarantine.Reason)
		}
		after = *v
		return nil
	})
	if err != nil || !counted {
		return after.Quarantine != nil, err
	}
	c.log.Warn("kernel failed to boot", "kernel", ref.String(), "node", f.Node, "cause", cause, "failures", after.BootFailures)
	if quarantined {
		c.log.Warn("kernel quarantined", "kernel", ref.String(), "reason", after.Quarantine.Reason)
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
