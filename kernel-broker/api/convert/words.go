// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// States of a profile's version, as people read them.
const (
	VersionAvailable   = "available"
	VersionQuarantined = "quarantined"
	VersionRetired     = "retired"
)

// VersionState is whether jobs can request a version.
func VersionState(v *api.ProfileVersion) string {
	switch {
	case v.GetRetired() != nil:
		return VersionRetired
	case v.GetQuarantine() != nil:
		return VersionQuarantined
	}
	return VersionAvailable
}

// FindVersion returns a version of a profile; nil if it is not there.
func FindVersion(p *api.Profile, version uint32) *api.ProfileVersion {
	for _, v := range p.GetVersions() {
		if v.GetKernel().GetVersion() == version {
			return v
		}
	}
	return nil
}

// JobName is the job's name in Slurm.
func JobName(j *api.Job) string { return cmp.Or(j.GetReference(), fmt.Sprint(j.GetJobId())) }
