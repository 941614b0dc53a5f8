// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"os"
	"path/filepath"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Provenance is the name of the document that is a kernel's manifest.
const Provenance = "provenance"

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
	k.MinMemoryMiB = d.Requires.MemoryMiB
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
