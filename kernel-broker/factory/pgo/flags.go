// SPDX-License-Identifier: Apache-2.0

package pgo

import "fmt"

// Mode is how far the compiler may go with a profile.
type Mode string

// The modes; doc.go says what they differ in.
const (
	ModeFull Mode = "pgo"
	ModeSafe Mode = "pgo-safe"
)

// Flags for the compiler: the profile in the folder dir, for objects below the
// folder objects. Both are absolute.
func (m Mode) Flags(dir, objects string) ([]string, error) {
	var use []string
	switch m {
	case ModeFull:
		use = []string{"-fprofile-use=" + dir}
	case ModeSafe:
		use = []string{"-fbranch-probabilities", "-fprofile-dir=" + dir}
	default:
		return nil, fmt.Errorf("%q is no way to use a profile", string(m))
	}
	return append(use,
		"-fprofile-prefix-path="+objects,
		// Counters of several processors may be a little apart.
		"-fprofile-correction",
		"-Wmissing-profile",
		"-Wno-error=coverage-mismatch",
	), nil
}
