// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/similar"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
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
	File string `yaml:"-"` // source file

	Name           string              `yaml:"name"`
	Application    string              `yaml:"application"`
	Description    string              `yaml:"description"`
	DefaultVersion uint32              `yaml:"default_version"`
	Reuse          kb.ReusePolicy      `yaml:"reuse"`
	Fallback       kb.FallbackPolicy   `yaml:"fallback"`
	BootAttempts   uint32              `yaml:"boot_attempts"`
	Timeout        string              `yaml:"boot_timeout"`
	BootTimeout    time.Duration       `yaml:"-"` // the same, parsed
	Requires       Requirements        `yaml:"requires"`
	Versions       []VersionDefinition `yaml:"versions"` // rising
}

// VersionDefinition is one version of a ProfileDefinition.
type VersionDefinition struct {
	Version   uint32   `yaml:"version"`
	Kernel    string   `yaml:"kernel"` // the recipe
	Arguments []string `yaml:"arguments"`
	Cores     *Cores   `yaml:"cores"`
}

// Cores is how a kernel divides the cores of each node.
type Cores struct {
	System uint32 `yaml:"system"` // the other cores are the application's
}

// systemCores is 0 for a version that divides none.
func (v VersionDefinition) systemCores() uint32 {
	if v.Cores == nil {
		return 0
	}
	return v.Cores.System
}

// Requirements on nodes, for every version.
type Requirements struct {
	Architecture string `yaml:"architecture"`
	MemoryMiB    uint64 `yaml:"memory_mib"`
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
	d := ProfileDefinition{
		File: file, Reuse: kb.ReuseSameProfile, Fallback: kb.FallbackHold,
		BootAttempts: defaultBootAttempts, Timeout: defaultBootTimeout.String(),
	}
	y, err := parseYAML(file, text, &d)
	if err != nil {
		return ProfileDefinition{}, err
	}
	d.Application, d.Description = strings.TrimSpace(d.Application), strings.Join(strings.Fields(d.Description), " ")
	var wrong []error
	note := func(err error, path ...any) {
		if err != nil {
			wrong = append(wrong, y.at(err, path...))
		}
	}
	note(kb.ValidateProfileName(d.Name), "name")
	note(required(d.Application), "application")
	note(required(d.Description), "description")
	note(oneOf(d.Reuse, kb.ReuseSameProfile, kb.ReuseNever), "reuse")
	note(oneOf(d.Fallback, kb.FallbackHold, kb.FallbackRequeue), "fallback")
	note(within(d.BootAttempts, 1, 5), "boot_attempts")
	if d.BootTimeout, err = time.ParseDuration(d.Timeout); err == nil && (d.BootTimeout < 5*time.Second || d.BootTimeout > time.Hour) {
		err = fmt.Errorf("%v is not within 5s to 1h: %w", d.BootTimeout, kb.ErrInvalid)
	}
	note(err, "boot_timeout")
	note(oneOf(d.Requires.Architecture, "x86_64", ""), "requires", "architecture")
	d.checkVersions(note)
	return d, errors.Join(wrong...)
}

func (d *ProfileDefinition) checkVersions(note func(err error, path ...any)) {
	if len(d.Versions) == 0 {
		note(fmt.Errorf("at least one is required: %w", kb.ErrInvalid), "versions")
	}
	numbers := map[uint32]bool{}
	contents := map[string]uint32{}
	for i, v := range d.Versions {
		switch content := strings.Join(append([]string{v.Kernel, fmt.Sprint(v.systemCores())}, v.Arguments...), " "); {
		case v.Version == 0 || v.Version > maxVersion:
			note(fmt.Errorf("%d is not within 1 to %d: %w", v.Version, maxVersion, kb.ErrInvalid), "versions", i, "version")
		case numbers[v.Version]:
			note(fmt.Errorf("version %d is given twice: %w", v.Version, kb.ErrExists), "versions", i, "version")
		case contents[content] != 0:
			note(fmt.Errorf("version %d has the same kernel, arguments and cores: %w", contents[content], kb.ErrExists), "versions", i, "kernel")
		default:
			numbers[v.Version], contents[content] = true, v.Version
		}
		// Recipes are named as profiles are.
		note(kb.ValidateProfileName(v.Kernel), "versions", i, "kernel")
		note(kb.ValidateArguments(v.Arguments), "versions", i, "arguments")
		if v.Cores != nil {
			note(kb.ValidateSystemCores(kb.Ref{Profile: d.Name, Version: v.Version}, v.Cores.System, v.Arguments), "versions", i, "cores")
		}
	}
	if len(d.Versions) > 0 && !slices.ContainsFunc(d.Versions, func(v VersionDefinition) bool { return v.Version == d.DefaultVersion }) {
		note(fmt.Errorf("version %d does not exist: %w", d.DefaultVersion, kb.ErrInvalid), "default_version")
	}
	slices.SortFunc(d.Versions, func(a, b VersionDefinition) int { return int(a.Version) - int(b.Version) })
}

func required(text string) error {
	if text == "" {
		return fmt.Errorf("is missing: %w", kb.ErrInvalid)
	}
	return nil
}

func oneOf[T ~string](text T, allowed ...T) error {
	if !slices.Contains(allowed, text) {
		return fmt.Errorf("%q is not one of %s: %w", text, strings.ReplaceAll(strings.Trim(fmt.Sprint(allowed), "[] "), " ", ", "), kb.ErrInvalid)
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

// yamlFile is a document with line numbers for error messages.
type yamlFile struct {
	name     string
	document yaml.Node
}

func parseYAML(name string, text []byte, into any) (*yamlFile, error) {
	y := &yamlFile{name: name}
	err := strictyaml.Decode(name, text, &y.document)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: is empty: %w", name, kb.ErrInvalid)
	}
	if err == nil {
		err = strictyaml.Decode(name, text, into)
	}
	var wrong *strictyaml.Error
	if errors.As(err, &wrong) {
		return nil, explain(wrong, keysOf(reflect.TypeOf(into)))
	}
	return y, err
}

// explain reports each mistake with file and line, and suggests the intended key.
func explain(wrong *strictyaml.Error, keys []string) error {
	var all []error
	for _, m := range wrong.Mistakes {
		where := wrong.File
		if m.Line > 0 {
			where = fmt.Sprintf("%s:%d", where, m.Line)
		}
		if m.UnknownKey != "" {
			if near := similar.Names(m.UnknownKey, keys); len(near) > 0 {
				m.Text += fmt.Sprintf("; did you mean %q?", near[0])
			}
		}
		all = append(all, fmt.Errorf("%s: %s: %w", where, m.Text, kb.ErrInvalid))
	}
	return errors.Join(all...)
}

// keysOf lists the YAML keys of a struct and of those in it.
func keysOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for i := range t.NumField() {
		keys = append(keys, t.Field(i).Tag.Get("yaml"))
		keys = append(keys, keysOf(t.Field(i).Type)...)
	}
	return keys
}

// at wraps an error about the value at a path of keys and indexes with file,
// line and key.
func (y *yamlFile) at(err error, path ...any) error {
	var key strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&key, "[%d]", step)
		case string:
			if key.Len() > 0 {
				key.WriteByte('.')
			}
			key.WriteString(step)
		}
	}
	return fmt.Errorf("%s:%d: %s: %w", y.name, strictyaml.Line(&y.document, path...), key.String(), err)
}
