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
	for key, file := range map[string]*ManifestFile{"image": &m.Image, "initrd": m.Initrd} {
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

// Kernel builds the version of a profile from the manifest and its files, which must match the manifest. initrd is nil
// if there is none.
func (m Manifest) Kernel(ref kb.Ref, arguments []string, image Artifact, initrd *Artifact) (kb.Kernel, error) {
	if image.Digest != m.Image.Digest {
		return kb.Kernel{}, fmt.Errorf("kernel %q: %s is not the image of the manifest: it has digest %s, not %s: %w",
			ref, image.Path, image.Digest, m.Image.Digest, kb.ErrInvalid)
	}
	if m.Initrd != nil && (initrd == nil || initrd.Digest != m.Initrd.Digest) {
		return kb.Kernel{}, fmt.Errorf("kernel %q: its manifest names initrd %s: %w", ref, m.Initrd.Digest, kb.ErrInvalid)
	}
	k := kb.Kernel{
		Profile: ref.Profile, Version: ref.Version,
		ImageDigest: image.Digest, ImageSize: image.Size, Arguments: arguments,
		BuildID: m.BuildID, Release: m.Release, Architecture: m.Architecture,
		Drivers: m.drivers(ref.IsStock() || initrd != nil),
	}
	if initrd != nil {
		k.InitrdDigest, k.InitrdSize = initrd.Digest, initrd.Size
	}
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
	image, err := DescribeFile(filepath.Join(dir, m.Image.Name), MaxImage)
	if err != nil {
		return none, nil, fmt.Errorf("profile %q: %w", ref, err)
	}
	files := []Artifact{image}
	var initrd *Artifact
	if m.Initrd != nil {
		file, err := DescribeFile(filepath.Join(dir, m.Initrd.Name), MaxInitrd)
		if err != nil {
			return none, nil, fmt.Errorf("profile %q: %w", ref, err)
		}
		initrd, files = &file, append(files, file)
	}
	k, err := m.Kernel(ref, v.Arguments, image, initrd)
	if err != nil {
		return none, nil, err
	}
	if a := d.Requires.Architecture; a != "" && a != k.Architecture {
		return none, nil, fmt.Errorf("profile %q: is for %s, its kernel is for %s: %w", ref, a, k.Architecture, kb.ErrInvalid)
	}
	k.MinMemoryMiB, k.SystemCores = d.Requires.MemoryMiB, v.systemCores()
	return k, files, nil
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
	if near := nearMisses(name, names); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	return fmt.Sprintf(" (looked in %s)", kernelsDir)
}
