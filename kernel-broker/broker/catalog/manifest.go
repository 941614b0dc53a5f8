// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
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
	return Artifact{Path: path, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: uint64(size)}, nil
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
