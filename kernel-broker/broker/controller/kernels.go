// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
)

// kernels is the catalog as a pass sees it: a picture that does not change.
type kernels struct {
	profiles map[string]kb.Profile
	builds   map[string][]kb.Ref
	counted  map[string]bool
	// restricted says of which profiles not everybody may use; nil for none.
	restricted func(profile string) bool
}

func newKernels(profiles []kb.Profile, counted map[string]bool) *kernels {
	k := &kernels{profiles: map[string]kb.Profile{}, builds: map[string][]kb.Ref{}, counted: counted}
	for _, p := range profiles {
		k.profiles[p.Name] = p
		for _, v := range p.Versions {
			k.builds[v.Kernel.BuildID] = append(k.builds[v.Kernel.BuildID], v.Kernel.Ref())
		}
	}
	return k
}

// Stock implements plan.Catalog.
func (k *kernels) Stock() (kb.Kernel, bool) {
	v, err := k.profiles[kb.StockProfile].Version(0)
	return v.Kernel, err == nil
}

// ByBuildID implements plan.Catalog.
func (k *kernels) ByBuildID(id string) []kb.Ref { return k.builds[id] }

// envelope is the signature that a kernel has; nil for none.
func (k *kernels) envelope(ref kb.Ref) []byte {
	v, err := k.profiles[ref.Profile].Version(ref.Version)
	if err != nil {
		return nil
	}
	return v.Envelope
}

// Resolve implements plan.Catalog.
func (k *kernels) Resolve(ref kb.Ref) (kb.Ref, error) {
	p, ok := k.profiles[ref.Profile]
	if !ok {
		return kb.Ref{}, fmt.Errorf("kernel profile %q: %w", ref.Profile, kb.ErrNotFound)
	}
	v, err := p.Version(ref.Version)
	if err != nil {
		return kb.Ref{}, err
	}
	if err := catalog.Choosable(p, v); err != nil {
		return kb.Ref{}, err
	}
	return v.Kernel.Ref(), nil
}

// Restricted implements plan.Catalog.
func (k *kernels) Restricted(profile string) bool {
	return k.restricted != nil && k.restricted(profile)
}

// FailedOn implements plan.Catalog.
func (k *kernels) FailedOn(ref kb.Ref, node string) bool {
	v, err := k.profiles[ref.Profile].Version(ref.Version)
	return err == nil && slices.Contains(v.FailedOn, node)
}

// Counted implements plan.Catalog.
func (k *kernels) Counted(f kb.Fault) bool { return k.counted[f.Token] }
