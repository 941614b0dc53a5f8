// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
)

// takeSamples puts a sample profile where the compiler finds it. Its digest is in
// its name, and the name among the compiler's flags: kbuild compiles each object
// again when it is another.
func (s *site) takeSamples(profile string) (*Use, error) {
	sum, err := autofdo.FolderDigest(profile)
	if err != nil {
		return nil, err
	}
	from := filepath.Join(profile, autofdo.ProfileFile)
	functions, err := autofdo.Functions(from)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	folder := profileFolder(s.obj)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	s.sampled = filepath.Join(folder, strings.TrimPrefix(sum, "sha256:")[:16]+".afdo")
	if err := copyFile(from, s.sampled); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return &Use{Digest: sum, Functions: functions}, nil
}

// flags are the compiler's besides kbuild's.
func (s site) flags() ([]string, error) {
	flags, err := s.plan.flags(s.variant, s.obj)
	if s.plan.lines() {
		flags = append(flags, autofdo.LineFlags()...)
	}
	if s.sampled != "" {
		flags = append(flags, autofdo.UseFlags(s.sampled)...)
	}
	return flags, err
}
