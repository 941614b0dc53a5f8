// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// maxFileBytes of a profile or a manifest; both are written by people or about
// one kernel.
const maxFileBytes = 1 << 20

// maxVersion is the largest that a user can write after NAME@.
const maxVersion = 999_999_999

// Defaults of optional settings of a profile.
const (
	defaultBootAttempts = 2
	defaultBootTimeout  = 2 * time.Minute
)

// ProfileDefinition is a profile as written in YAML: it names kernels by their recipes, which Resolve replaces by built
// kernels.
type ProfileDefinition struct {
	File string // source file

	Name           string
	Application    string
	Description    string
	DefaultVersion uint32
	Reuse          kb.ReusePolicy
	Fallback       kb.FallbackPolicy
	BootAttempts   uint32
	BootTimeout    time.Duration
	Requires       Requirements
	Versions       []VersionDefinition // rising
}

// VersionDefinition is one version of a ProfileDefinition.
type VersionDefinition struct {
	Version   uint32
	Kernel    string // the recipe
	Arguments []string
}

// Requirements on nodes, for every version.
type Requirements struct {
	Architecture string
	MemoryMiB    uint64
}

// profileFile is the YAML of a profile.
type profileFile struct {
	Name           string        `yaml:"name"`
	Application    string        `yaml:"application"`
	Description    string        `yaml:"description"`
	DefaultVersion uint32        `yaml:"default_version"`
	Reuse          string        `yaml:"reuse"`
	Fallback       string        `yaml:"fallback"`
	BootAttempts   uint32        `yaml:"boot_attempts"`
	BootTimeout    string        `yaml:"boot_timeout"`
	Requires       requiresFile  `yaml:"requires"`
	Versions       []versionFile `yaml:"versions"`
}

type requiresFile struct {
	Architecture string `yaml:"architecture"`
	MemoryMiB    uint64 `yaml:"memory_mib"`
}

type versionFile struct {
	Version   uint32   `yaml:"version"`
	Kernel    string   `yaml:"kernel"`
	Arguments []string `yaml:"arguments"`
}

// Load reads all profiles of a folder, sorted by name. It reports every file
// that is wrong, each with file, line and key.
func Load(dir string) ([]ProfileDefinition, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("profiles: %w", err)
	}
	var definitions []ProfileDefinition
	var wrong []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch filepath.Ext(entry.Name()) {
		case ".yaml":
		case ".yml":
			wrong = append(wrong, fmt.Errorf("%s: profiles end in .yaml: %w", path, kb.ErrInvalid))
			continue
		default:
			continue
		}
		text, err := safeopen.Read(path, maxFileBytes, nil)
		if err == nil {
			var d ProfileDefinition
			if d, err = ParseProfile(path, text); err == nil {
				definitions = append(definitions, d)
			}
		}
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	return definitions, errors.Join(append(wrong, duplicates(definitions)...)...)
}

// duplicates rejects two files with one name: the order of files must not decide which one counts.
func duplicates(definitions []ProfileDefinition) []error {
	slices.SortStableFunc(definitions, func(a, b ProfileDefinition) int { return strings.Compare(a.Name, b.Name) })
	var wrong []error
	for i := 1; i < len(definitions); i++ {
		if definitions[i].Name == definitions[i-1].Name {
			wrong = append(wrong, fmt.Errorf("%s: profile %q is already defined in %s: %w",
				definitions[i].File, definitions[i].Name, definitions[i-1].File, kb.ErrExists))
		}
	}
	return wrong
}

// ParseProfile reads one profile. file is its name for errors.
func ParseProfile(file string, text []byte) (ProfileDefinition, error) {
	raw := profileFile{
		Reuse: string(kb.ReuseSameProfile), Fallback: string(kb.FallbackHold),
		BootAttempts: defaultBootAttempts, BootTimeout: defaultBootTimeout.String(),
	}
	y, err := parseYAML(file, text, &raw)
	if err != nil {
		return ProfileDefinition{}, err
	}
	return raw.definition(y)
}

func (raw profileFile) definition(y *yamlFile) (ProfileDefinition, error) {
	d := ProfileDefinition{
		File: y.name, Name: raw.Name, Application: strings.TrimSpace(raw.Application),
		Description: strings.Join(strings.Fields(raw.Description), " "), DefaultVersion: raw.DefaultVersion,
		Reuse: kb.ReusePolicy(raw.Reuse), Fallback: kb.FallbackPolicy(raw.Fallback),
		BootAttempts: raw.BootAttempts,
		Requires:     Requirements{Architecture: raw.Requires.Architecture, MemoryMiB: raw.Requires.MemoryMiB},
	}
	var wrong []error
	note := func(err error, path ...any) {
		if err != nil {
			wrong = append(wrong, y.at(err, path...))
		}
	}
	note(kb.ValidateProfileName(raw.Name), "name")
	note(required(d.Application), "application")
	note(required(d.Description), "description")
	note(oneOf(raw.Reuse, string(kb.ReuseSameProfile), string(kb.ReuseNever)), "reuse")
	note(oneOf(raw.Fallback, string(kb.FallbackHold), string(kb.FallbackRequeue)), "fallback")
	note(within(d.BootAttempts, 1, 5), "boot_attempts")
	timeout, err := time.ParseDuration(raw.BootTimeout)
	if err == nil && (timeout < 5*time.Second || timeout > time.Hour) {
		err = fmt.Errorf("%v is not within 5s to 1h: %w", timeout, kb.ErrInvalid)
	}
	note(err, "boot_timeout")
	d.BootTimeout = timeout
	if d.Requires.Architecture != "" {
		note(oneOf(d.Requires.Architecture, "x86_64"), "requires", "architecture")
	}
	d.Versions = raw.versions(note)
	if len(d.Versions) > 0 && !slices.ContainsFunc(d.Versions, func(v VersionDefinition) bool { return v.Version == d.DefaultVersion }) {
		note(fmt.Errorf("version %d does not exist: %w", d.DefaultVersion, kb.ErrInvalid), "default_version")
	}
	if wrong != nil {
		return ProfileDefinition{}, errors.Join(wrong...)
	}
	return d, nil
}

func (raw profileFile) versions(note func(err error, path ...any)) []VersionDefinition {
	if len(raw.Versions) == 0 {
		note(fmt.Errorf("at least one is required: %w", kb.ErrInvalid), "versions")
	}
	numbers := map[uint32]bool{}
	contents := map[string]uint32{}
	var versions []VersionDefinition
	for i, v := range raw.Versions {
		switch content := strings.Join(append([]string{v.Kernel}, v.Arguments...), " "); {
		case v.Version == 0 || v.Version > maxVersion:
			note(fmt.Errorf("%d is not within 1 to %d: %w", v.Version, maxVersion, kb.ErrInvalid), "versions", i, "version")
		case numbers[v.Version]:
			note(fmt.Errorf("version %d is given twice: %w", v.Version, kb.ErrExists), "versions", i, "version")
		case contents[content] != 0:
			note(fmt.Errorf("version %d has the same kernel and arguments: %w", contents[content], kb.ErrExists), "versions", i, "kernel")
		default:
			numbers[v.Version], contents[content] = true, v.Version
		}
		// Recipes are named as profiles are.
		note(kb.ValidateProfileName(v.Kernel), "versions", i, "kernel")
		note(kb.ValidateArguments(v.Arguments), "versions", i, "arguments")
		versions = append(versions, VersionDefinition(v))
	}
	slices.SortFunc(versions, func(a, b VersionDefinition) int { return int(a.Version) - int(b.Version) })
	return versions
}

func required(text string) error {
	if text == "" {
		return fmt.Errorf("is missing: %w", kb.ErrInvalid)
	}
	return nil
}

func oneOf(text string, allowed ...string) error {
	if !slices.Contains(allowed, text) {
		return fmt.Errorf("%q is not one of %s: %w", text, strings.Join(allowed, ", "), kb.ErrInvalid)
	}
	return nil
}

func within(n, low, high uint32) error {
	if n < low || n > high {
		return fmt.Errorf("%d is not within %d to %d: %w", n, low, high, kb.ErrInvalid)
	}
	return nil
}

// missing reports whether a file or folder is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
