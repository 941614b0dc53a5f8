// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// NeededArtifacts returns what needs which artifact: every version of a profile, but for
// the image of one that was retired long ago and that no job and no node holds.
// Its documents stay: they are the record of what once ran. runs are the files of
// profiling runs by digest, with the runs that have them.
func NeededArtifacts(profiles []kb.Profile, held map[kb.Ref][]string, runs map[string][]string, now time.Time, retiredFor time.Duration) (map[string][]string, error) {
	needed := map[string][]string{}
	note := func(digest string, by ...string) error {
		if digest == "" || len(by) == 0 {
			return nil
		}
		needed[digest] = slices.Concat(needed[digest], by)
		return kb.ValidateDigest(digest)
	}
	var wrong []error
	for _, p := range profiles {
		for _, v := range p.Versions {
			k, by := v.Kernel, slices.Sorted(slices.Values(held[v.Kernel.Ref()]))
			if v.Retired == nil || now.Sub(v.Retired.Since) <= retiredFor {
				by = append([]string{k.Ref().String()}, by...)
			}
			for _, file := range k.Files() {
				wrong = append(wrong, note(file.Digest, by...))
			}
			for _, d := range v.Documents {
				wrong = append(wrong, note(d.Digest, "document of "+k.Ref().String()))
			}
		}
	}
	for digest, by := range runs {
		wrong = append(wrong, note(digest, by...))
	}
	return needed, errors.Join(wrong...)
}
