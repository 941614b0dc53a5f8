// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

// ManifestFormat is the version of kernel.json.
const ManifestFormat = 1

// Manifest is kernel.json: what a kernel is, what it was made of, and what the
// broker and the agents must know before they give it to a node.
type Manifest struct {
	Format       int    `json:"format"`
	Name         string `json:"name"`
	Description  string `json:"description,omitempty"`
	Release      string `json:"release"`
	BuildID      string `json:"build_id"`
	Architecture string `json:"architecture"`

	Image     File  `json:"image"`
	Config    File  `json:"config"`
	SystemMap *File `json:"system_map,omitempty"`
	// Modules is the folder of the module tree; empty when all is built in.
	Modules string `json:"modules,omitempty"`
	// ModuleArchive has the modules of others that a node loads after the boot.
	ModuleArchive *File `json:"module_archive,omitempty"`
	// ModulePackages are what they were built from.
	ModulePackages []modules.Package `json:"module_packages,omitempty"`

	Drivers     Offer  `json:"drivers"`
	Filesystems Offer  `json:"filesystems"`
	Limits      Limits `json:"argument_limits"`

	Source    Source    `json:"source"`
	Compiler  *Compiler `json:"compiler,omitempty"`
	Fragments []Part    `json:"fragments,omitempty"`
	InputsKey string    `json:"inputs_key,omitempty"`

	// What follows came later; a reader must not ask for it.
	Variant      Variant      `json:"variant,omitempty"`
	Optimisation Optimisation `json:"optimisation,omitempty"`
	// Flags are the compiler's besides kbuild's own, with OBJECTS for the
	// object folder.
	Flags []string `json:"flags,omitempty"`
	// LinkerFlags are the linker's, in the same form.
	LinkerFlags []string `json:"linker_flags,omitempty"`
	// Sections are the sizes of function text.
	Sections *pgo.Sections `json:"sections,omitempty"`
	Profile  *Use          `json:"profile,omitempty"`
	Workload string        `json:"workload,omitempty"`
	Builder  string        `json:"builder,omitempty"`
	// Runs are profiling runs of jobs that the kernel was made of.
	Runs []RunPart `json:"runs,omitempty"`
}

// RunPart is what one node delivered of a profiling run, and what it went into.
type RunPart struct {
	Run    uint64 `json:"run"`
	Node   string `json:"node"`
	Use    RunUse `json:"use"`
	Digest string `json:"digest"`
}

// RunUse is what a run's part went into.
type RunUse string

// The uses: what the job was seen to use stayed when the kernel was slimmed; what
// it counted is the profile.
const (
	RunForSlimming RunUse = "slimming"
	RunForProfile  RunUse = "profile"
)

type File struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Part is an input by name and digest.
type Part struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// Offer lists what a kernel has, by module name with underscores.
type Offer struct {
	BuiltIn []string `json:"builtin"`
	Modular []string `json:"modular"`
}

// Limits of the kernel's command line.
type Limits struct {
	CommandLineBytes int `json:"command_line_bytes"`
}

// describeBuild makes the manifest of what make left in the object folder; the
// files of the result are in dir already.
func describeBuild(ctx context.Context, at site, source Source, in CompileInput, dir string) (Manifest, error) {
	release, err := os.ReadFile(filepath.Join(at.obj, "include/config/kernel.release"))
	if err != nil {
		return Manifest{}, fmt.Errorf("release: %w", err)
	}
	id, err := ReadBuildID(filepath.Join(at.obj, "vmlinux"))
	if err != nil {
		return Manifest{}, err
	}
	sections, err := readSections(filepath.Join(at.obj, "vmlinux.o"))
	if err != nil {
		return Manifest{}, err
	}
	plan := at.plan
	name, description := plan.names(in.Variant)
	manifest := Manifest{
		Name: name, Description: description,
		Release: strings.TrimSpace(string(release)), BuildID: id,
		Source:       source,
		Compiler:     &plan.Compiler,
		InputsKey:    "sha256:" + plan.Key,
		Variant:      in.Variant,
		Optimisation: plan.optimisation(at.variant),
		Sections:     &sections,
		Profile:      in.used,
		Workload:     plan.Recipe.Workload,
		Builder:      at.builder,
	}
	if manifest.Flags, err = at.flags(); err != nil {
		return Manifest{}, err
	}
	manifest.LinkerFlags = at.linkerFlags()
	for _, flags := range [][]string{manifest.Flags, manifest.LinkerFlags} {
		for i, flag := range flags {
			flags[i] = strings.ReplaceAll(flag, at.obj, "OBJECTS")
		}
	}
	for _, fragment := range plan.Fragments {
		manifest.Fragments = append(manifest.Fragments, Part{Name: fragment.Name, Digest: fragment.Digest})
	}
	if err := manifest.addOffer(at.obj, dir); err != nil {
		return Manifest{}, err
	}
	if plan.carriesModules(in.Variant) {
		archive, err := describeFile(dir, modules.ArchiveFile)
		if err != nil {
			return Manifest{}, err
		}
		manifest.ModuleArchive, manifest.ModulePackages = &archive, in.packages
	}
	systemMap, err := describeFile(dir, SystemMapFile)
	if err != nil {
		return Manifest{}, err
	}
	manifest.SystemMap = &systemMap
	return manifest, manifest.addImage(ctx, dir)
}

// addOffer fills in what the kernel can drive.
func (m *Manifest) addOffer(obj, dir string) error {
	config, err := kconfig.ReadConfig(filepath.Join(dir, ConfigFile))
	if err != nil {
		return err
	}
	builtin, err := readBuiltin(filepath.Join(obj, "modules.builtin"))
	if err != nil {
		return err
	}
	names, err := readFilesystemNames(filepath.Join(obj, "modules.builtin.modinfo"))
	if err != nil {
		return err
	}
	m.Drivers = Offer{BuiltIn: driverNames(builtin), Modular: []string{}}
	m.Filesystems = Offer{BuiltIn: filesystems(names, config), Modular: []string{}}
	return nil
}

// addImage fills in what image and configuration in dir say, and refuses an
// image that is another kernel than the manifest describes.
func (m *Manifest) addImage(ctx context.Context, dir string) error {
	m.Format, m.Architecture = ManifestFormat, "x86_64"
	image, err := ReadImage(ctx, filepath.Join(dir, ImageFile))
	if err != nil {
		return err
	}
	if m.BuildID != "" && m.BuildID != image.BuildID {
		return fmt.Errorf("image has build id %s, vmlinux has %s", image.BuildID, m.BuildID)
	}
	if m.Release != "" && m.Release != image.Release {
		return fmt.Errorf("image is release %q, the tree says %q", image.Release, m.Release)
	}
	m.BuildID, m.Release = image.BuildID, image.Release
	m.Limits.CommandLineBytes = image.CommandLineBytes
	if m.Image, err = describeFile(dir, ImageFile); err != nil {
		return err
	}
	m.Config, err = describeFile(dir, ConfigFile)
	return err
}

func describeFile(dir, name string) (File, error) {
	sum, size, err := digest.File(filepath.Join(dir, name))
	if err != nil {
		return File{}, fmt.Errorf("result %q: %w", name, err)
	}
	return File{Name: name, Digest: sum, Size: size}, nil
}

// Write puts the manifest into a folder.
func (m Manifest) Write(dir string) error {
	if err := atomicfile.WriteJSON(filepath.Join(dir, ManifestFile), m, 0o644); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// ReadManifest reads kernel.json from a folder.
func ReadManifest(dir string) (Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	manifest, err := ParseManifest(text)
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest in %q: %w", dir, err)
	}
	return manifest, nil
}

// ParseManifest reads the text of a kernel.json. What it names is beside it:
// another host may have written it.
func ParseManifest(text []byte) (Manifest, error) {
	var manifest Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return Manifest{}, err
	}
	if manifest.Format != ManifestFormat {
		return Manifest{}, fmt.Errorf("format %d, this program reads %d", manifest.Format, ManifestFormat)
	}
	if err := manifest.beside(); err != nil {
		return Manifest{}, err
	}
	return manifest, nil
}

func (m Manifest) beside() error {
	files := map[string]string{"image": m.Image.Name, "config": m.Config.Name}
	if m.SystemMap != nil {
		files["system_map"] = m.SystemMap.Name
	}
	if m.ModuleArchive != nil {
		files["module_archive"] = m.ModuleArchive.Name
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		if name := files[key]; strings.Contains(name, "/") || name == "." || name == ".." {
			return fmt.Errorf("%s: %q is no file beside it", key, name)
		}
	}
	if m.Modules != "" && !filepath.IsLocal(m.Modules) {
		return fmt.Errorf("modules: %q is no folder beside it", m.Modules)
	}
	return nil
}

// Verify compares the files in a folder with their digests.
func (m Manifest) Verify(dir string) error {
	files := []File{m.Image, m.Config}
	for _, more := range []*File{m.SystemMap, m.ModuleArchive} {
		if more != nil {
			files = append(files, *more)
		}
	}
	var wrong []error
	for _, file := range files {
		now, err := describeFile(dir, file.Name)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if now != file {
			wrong = append(wrong, fmt.Errorf("%s has digest %s and %d bytes, the manifest says %s and %d",
				file.Name, now.Digest, now.Size, file.Digest, file.Size))
		}
	}
	return errors.Join(wrong...)
}

// readSections measures vmlinux.o, in which all objects are but not yet linked:
// vmlinux itself has one .text.
func readSections(path string) (pgo.Sections, error) {
	file, err := elf.Open(path)
	if err != nil {
		return pgo.Sections{}, fmt.Errorf("text sections: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	var sizes pgo.Sections
	for _, section := range file.Sections {
		if section.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		size := int64(section.Size)
		switch name := section.Name; {
		case name == ".text.unlikely" || strings.HasPrefix(name, ".text.unlikely.") || strings.HasPrefix(name, ".text.split."):
			sizes.Unlikely += size
		case name == ".text.hot" || strings.HasPrefix(name, ".text.hot."):
			sizes.Hot += size
		case name == ".text" || strings.HasPrefix(name, ".text.") && !strings.HasPrefix(name, ".text.."):
			sizes.Text += size // with ThinLTO each function has a section of its own
		default:
			sizes.Others += size
		}
	}
	return sizes, nil
}
