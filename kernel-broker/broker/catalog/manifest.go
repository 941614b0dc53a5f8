// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/similar"
)

const manifestFormat = 1

// Manifest is the catalog's part of kernel.json, which describes a built kernel. Other keys are ignored.
type Manifest struct {
	Format       int    `json:"format"`
	Name         string `json:"name"`
	Release      string `json:"release"`
	BuildID      string `json:"build_id"`
	Architecture string `json:"architecture"`
	// Image, and the kernel's own initrd if any, relative to the manifest.
	Image  ManifestFile  `json:"image"`
	Initrd *ManifestFile `json:"initrd"`
	// ModuleArchive has the modules that a node loads after the boot.
	ModuleArchive *ManifestFile `json:"module_archive"`

	Drivers     Offer `json:"drivers"`
	Filesystems Offer `json:"filesystems"`
}

// ManifestFile is a file beside the manifest.
type ManifestFile struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   uint64 `json:"size"`
}

// Offer lists the drivers of a kernel by module name.
type Offer struct {
	BuiltIn []string `json:"builtin"`
	Modular []string `json:"modular"`
}

// Artifact is a file of a kernel for the broker to store.
type Artifact struct {
	Path   string
	Digest string
	Size   uint64
}

// KernelFiles are what nodes need of a kernel; Initrd and Modules are nil where it has none.
type KernelFiles struct {
	Image           Artifact
	Initrd, Modules *Artifact
}

// DescribeFiles reads the files of a kernel; initrd and modules may be empty.
func DescribeFiles(image, initrd, modules string) (KernelFiles, error) {
	var f KernelFiles
	var err error
	if f.Image, err = DescribeFile(image, MaxImage); err != nil {
		return f, err
	}
	for _, more := range []struct {
		path string
		most uint64
		to   **Artifact
	}{{initrd, MaxInitrd, &f.Initrd}, {modules, MaxModules, &f.Modules}} {
		if more.path == "" {
			continue
		}
		file, err := DescribeFile(more.path, more.most)
		if err != nil {
			return f, err
		}
		*more.to = &file
	}
	return f, nil
}

// All of the files, the image first.
func (f KernelFiles) All() []Artifact {
	all := []Artifact{f.Image}
	for _, more := range []*Artifact{f.Initrd, f.Modules} {
		if more != nil {
			all = append(all, *more)
		}
	}
	return all
}

// Describe names the files in a kernel, and no others any more.
func (f KernelFiles) Describe(k *kb.Kernel) {
	k.ImageDigest, k.ImageSize = f.Image.Digest, f.Image.Size
	k.InitrdDigest, k.InitrdSize, k.ModulesDigest, k.ModulesSize = "", 0, "", 0
	if f.Initrd != nil {
		k.InitrdDigest, k.InitrdSize = f.Initrd.Digest, f.Initrd.Size
	}
	if f.Modules != nil {
		k.ModulesDigest, k.ModulesSize = f.Modules.Digest, f.Modules.Size
	}
}

// ReadManifest reads kernel.json at path.
func ReadManifest(path string) (Manifest, error) {
	text, err := safeopen.Read(path, maxFileBytes, nil)
	if err != nil {
		return Manifest{}, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return Manifest{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func parseManifest(text []byte) (Manifest, error) {
	m := Manifest{}
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	if m.Format != manifestFormat {
		return Manifest{}, fmt.Errorf("format: %d, this program reads %d: %w", m.Format, manifestFormat, kb.ErrInvalid)
	}
	for key, file := range map[string]*ManifestFile{"image": &m.Image, "initrd": m.Initrd, "module_archive": m.ModuleArchive} {
		if file == nil {
			continue
		}
		if file.Name == "" || file.Name != filepath.Base(file.Name) || file.Name == ".." || file.Name == "." {
			return Manifest{}, fmt.Errorf("%s.name: %q is not a file beside the manifest: %w", key, file.Name, kb.ErrInvalid)
		}
		if err := kb.ValidateDigest(file.Digest); err != nil {
			return Manifest{}, fmt.Errorf("%s.digest: %w", key, err)
		}
	}
	return m, nil
}

// Size limits of a kernel's files; the broker has its own limit for any file.
const (
	MaxImage  = 256 << 20
	MaxInitrd = 1 << 30
	// MaxModules limits the archive of modules: the nodes hold it in memory while they load it.
	MaxModules = 512 << 20
	// MaxDocument limits documents, which clients read whole: reports have up to 3 MiB.
	MaxDocument = 16 << 20
)

// DescribeFile reads a file of at most the given size and returns its digest.
func DescribeFile(path string, most uint64) (Artifact, error) {
	file, info, err := safeopen.Open(path)
	if err != nil {
		return Artifact{}, err
	}
	defer func() { _ = file.Close() }() // only read from
	size, sum := info.Size(), sha256.New()
	if uint64(size) <= most {
		// The file may grow while it is read.
		size, err = io.Copy(sum, io.LimitReader(file, int64(most)+1))
	}
	if err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", path, err)
	}
	if uint64(size) > most {
		return Artifact{}, fmt.Errorf("%s has %d bytes, at most %d are possible: %w", path, size, most, kb.ErrInvalid)
	}
	return Artifact{Path: path, Digest: digest.Text(sum), Size: uint64(size)}, nil
}

// Kernel builds the version of a profile from the manifest and its files, which must match the manifest.
func (m Manifest) Kernel(ref kb.Ref, arguments []string, files KernelFiles) (kb.Kernel, error) {
	if files.Image.Digest != m.Image.Digest {
		return kb.Kernel{}, fmt.Errorf("kernel %q: %s is not the image of the manifest: it has digest %s, not %s: %w",
			ref, files.Image.Path, files.Image.Digest, m.Image.Digest, kb.ErrInvalid)
	}
	for _, more := range []struct {
		what  string
		named *ManifestFile
		given *Artifact
	}{{"initrd", m.Initrd, files.Initrd}, {"archive of modules", m.ModuleArchive, files.Modules}} {
		if more.named != nil && (more.given == nil || more.given.Digest != more.named.Digest) {
			return kb.Kernel{}, fmt.Errorf("kernel %q: its manifest names %s %s: %w", ref, more.what, more.named.Digest, kb.ErrInvalid)
		}
	}
	k := kb.Kernel{
		Profile: ref.Profile, Version: ref.Version, Arguments: arguments,
		BuildID: m.BuildID, Release: m.Release, Architecture: m.Architecture,
		Drivers: m.drivers(ref.IsStock() || files.Initrd != nil),
	}
	files.Describe(&k)
	return k, k.Validate()
}

// drivers lists the kernel's drivers. Modules count if they are in the kernel's initrd or on the node, as for stock.
func (m Manifest) drivers(withModules bool) []string {
	all := slices.Concat(m.Drivers.BuiltIn, m.Filesystems.BuiltIn)
	if withModules {
		all = slices.Concat(all, m.Drivers.Modular, m.Filesystems.Modular)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Names of documents: a kernel's manifest, and the factory's report about it.
const (
	Provenance = "provenance"
	Report     = "report"
)

// ReportFile is the name of the report beside a kernel that was measured.
const ReportFile = "report.json"

// manifestName is the manifest in the folder of each kernel.
const manifestName = "kernel.json"

// Resolve replaces a profile's recipes by the kernels in a directory, which has one subdirectory for each: bzImage,
// kernel.json and optionally an initrd. It verifies them against their manifests and returns the profile and the files
// to store before it can be applied, each once.
func Resolve(d ProfileDefinition, kernelsDir string) (kb.Profile, []Artifact, error) {
	p := kb.Profile{
		Name: d.Name, Application: d.Application, Description: d.Description, DefaultVersion: d.DefaultVersion,
		Reuse: d.Reuse, Fallback: d.Fallback, BootAttempts: d.BootAttempts, BootTimeout: d.BootTimeout,
	}
	var artifacts []Artifact
	seen := map[string]bool{}
	for _, v := range d.Versions {
		k, files, err := resolveVersion(d, v, kernelsDir)
		if err != nil {
			return kb.Profile{}, nil, err
		}
		provenance, err := DescribeFile(filepath.Join(kernelsDir, v.Kernel, manifestName), MaxDocument)
		if err != nil {
			return kb.Profile{}, nil, fmt.Errorf("profile %q: %w", d.Name, err)
		}
		p.Versions = append(p.Versions, kb.ProfileVersion{Kernel: k, Documents: []kb.Document{
			{Name: Provenance, Digest: provenance.Digest, Size: provenance.Size},
		}})
		files = append(files, provenance)
		report, err := DescribeFile(filepath.Join(kernelsDir, v.Kernel, ReportFile), MaxDocument)
		switch {
		case err == nil:
			documents := &p.Versions[len(p.Versions)-1].Documents
			*documents = append(*documents, kb.Document{Name: Report, Digest: report.Digest, Size: report.Size})
			files = append(files, report)
		case !missing(err):
			return kb.Profile{}, nil, fmt.Errorf("profile %q: %w", d.Name, err)
		}
		for _, file := range files {
			if !seen[file.Digest] {
				seen[file.Digest] = true
				artifacts = append(artifacts, file)
			}
		}
	}
	return p, artifacts, p.Validate()
}

// Built reports whether the directory has all kernels of a profile.
func (d ProfileDefinition) Built(kernelsDir string) bool {
	return !slices.ContainsFunc(d.Versions, func(v VersionDefinition) bool {
		_, err := os.Stat(filepath.Join(kernelsDir, v.Kernel, manifestName))
		return missing(err)
	})
}

func resolveVersion(d ProfileDefinition, v VersionDefinition, kernelsDir string) (kb.Kernel, []Artifact, error) {
	ref := kb.Ref{Profile: d.Name, Version: v.Version}
	none := kb.Kernel{}
	dir := filepath.Join(kernelsDir, v.Kernel)
	m, err := ReadManifest(filepath.Join(dir, manifestName))
	if missing(err) {
		return none, nil, fmt.Errorf("profile %q: kernel %q is not built: %w%s", ref, v.Kernel, kb.ErrNotFound, builtOnes(v.Kernel, kernelsDir))
	}
	if err != nil {
		return none, nil, fmt.Errorf("profile %q: %w", ref, err)
	}
	if m.Name != v.Kernel {
		return none, nil, fmt.Errorf("profile %q: %s holds kernel %q: %w", ref, dir, m.Name, kb.ErrInvalid)
	}
	beside := func(file *ManifestFile) string {
		if file == nil {
			return ""
		}
		return filepath.Join(dir, file.Name)
	}
	files, err := DescribeFiles(beside(&m.Image), beside(m.Initrd), beside(m.ModuleArchive))
	if err != nil {
		return none, nil, fmt.Errorf("profile %q: %w", ref, err)
	}
	k, err := m.Kernel(ref, v.Arguments, files)
	if err != nil {
		return none, nil, err
	}
	if a := d.Requires.Architecture; a != "" && a != k.Architecture {
		return none, nil, fmt.Errorf("profile %q: is for %s, its kernel is for %s: %w", ref, a, k.Architecture, kb.ErrInvalid)
	}
	k.MinMemoryMiB, k.SystemCores = d.Requires.MemoryMiB, v.systemCores()
	return k, files.All(), nil
}

// builtOnes ends the message about a kernel that is not there.
func builtOnes(name, kernelsDir string) string {
	entries, err := os.ReadDir(kernelsDir)
	if err != nil {
		return fmt.Sprintf(" (%v)", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	if near := similar.Names(name, names); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	return fmt.Sprintf(" (looked in %s)", kernelsDir)
}
