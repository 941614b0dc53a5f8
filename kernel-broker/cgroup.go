// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"regexp"
)

// sluid is an id of Slurm's that no other job has: s and 13 digits of Crockford's base 32.
var sluid = regexp.MustCompile(`^s[0-9A-HJKMNP-TV-Z]{13}$`)

// ValidateCgroup accepts the name of a job's cgroup that is not job_ID: its SLUID.
func ValidateCgroup(name string) error {
	if !sluid.MatchString(name) {
		return fmt.Errorf("cgroup %.40q of a job is no SLUID: %w", name, ErrInvalid)
	}
	return nil
}
