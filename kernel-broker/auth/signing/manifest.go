// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	manifestFormat = 1
	// PayloadType tells these manifests from whatever else a key may sign.
	PayloadType = "application/vnd.kernelbroker.kernel+json"
	// maxPayload is far above what the drivers of a distribution's kernel take.
	maxPayload = 256 << 10
)

// Manifest is what is signed of a kernel. The order of the fields is that of
// the signed bytes.
type Manifest struct {
	Format    int      `json:"format"`
	Cluster   string   `json:"cluster"`
	Profile   string   `json:"profile"`
	Version   uint32   `json:"version"`
	Image     File     `json:"image"`
	Initrd    *File    `json:"initrd,omitempty"`
	Arguments []string `json:"arguments,omitempty"`

	// What the kernel must show after the boot.
	BuildID string `json:"build_id"`
	Release string `json:"release"`

	// What it asks of a node.
	Architecture string   `json:"architecture"`
	Drivers      []string `json:"drivers,omitempty"`
	MinMemoryMiB uint64   `json:"min_memory_mib,omitempty"`

	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
	// Floor: who has seen this manifest boots no version of the profile below
	// it any more. It is never above Version.
	Floor uint32 `json:"floor,omitempty"`
}

// File is an artifact by its content.
type File struct {
	Digest string `json:"digest"`
	Size   uint64 `json:"size"`
}

// Terms is what a manifest says besides the kernel.
type Terms struct {
	Cluster       string
	Made, Expires time.Time
	Floor         uint32
}

// ManifestOf describes a kernel.
func ManifestOf(k kb.Kernel, t Terms) Manifest {
	m := Manifest{
		Format: manifestFormat, Cluster: t.Cluster, Profile: k.Profile, Version: k.Version,
		Image: File{k.ImageDigest, k.ImageSize}, Arguments: slices.Clone(k.Arguments),
		BuildID: k.BuildID, Release: k.Release, Architecture: k.Architecture,
		Drivers: slices.Clone(k.Drivers), MinMemoryMiB: k.MinMemoryMiB,
		Made: t.Made.UTC().Truncate(time.Second), Expires: t.Expires.UTC().Truncate(time.Second), Floor: t.Floor,
	}
	if k.InitrdDigest != "" {
		m.Initrd = &File{k.InitrdDigest, k.InitrdSize}
	}
	return m
}

// Kernel is the kernel that the manifest describes.
func (m Manifest) Kernel() kb.Kernel {
	k := kb.Kernel{
		Profile: m.Profile, Version: m.Version, ImageDigest: m.Image.Digest, ImageSize: m.Image.Size,
		Arguments: m.Arguments, BuildID: m.BuildID, Release: m.Release, Architecture: m.Architecture,
		Drivers: m.Drivers, MinMemoryMiB: m.MinMemoryMiB,
	}
	if m.Initrd != nil {
		k.InitrdDigest, k.InitrdSize = m.Initrd.Digest, m.Initrd.Size
	}
	return k
}

// Validate refuses what nobody should sign.
func (m Manifest) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("manifest of kernel %q: %w: %w", m.Kernel().Ref(), fmt.Errorf(format, args...), kb.ErrInvalid)
	}
	if err := m.Kernel().Validate(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.Format != manifestFormat:
		return fail("format %d, this program knows %d", m.Format, manifestFormat)
	case m.Floor > m.Version:
		return fail("floor %d is above the version itself", m.Floor)
	case !m.Expires.After(m.Made):
		return fail("it expires %s and was made %s", day(m.Expires), day(m.Made))
	}
	if err := validateCluster(m.Cluster); err != nil {
		return fail("%w", err)
	}
	return nil
}

var clusterName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// validateCluster accepts what Slurm accepts as ClusterName and more, but
// nothing that looks like another name on a screen.
func validateCluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("cluster name %s is not 1 to 64 letters, digits, dots, dashes and underscores", clip(name))
	}
	return nil
}

// encode writes the manifest in the one way that it is written in.
func (m Manifest) encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decodeManifest reads what encode wrote and nothing else: a key given twice,
// in other letters, or unknown would be read differently by different programs.
func decodeManifest(payload []byte) (Manifest, error) {
	var m Manifest
	if len(payload) > maxPayload {
		return m, fmt.Errorf("manifest of %d bytes, at most %d: %w", len(payload), maxPayload, ErrMalformed)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("manifest: %w: %w", ErrMalformed, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, fmt.Errorf("manifest: %w: something follows it", ErrMalformed)
	}
	again, err := m.encode()
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !bytes.Equal(again, payload) {
		return m, fmt.Errorf("manifest: %w: it is not written in the one way that counts", ErrMalformed)
	}
	return m, nil
}

// Describes compares the manifest with the kernel that is to be booted.
func (m Manifest) Describes(k kb.Kernel) error {
	signed := m.Kernel()
	for _, field := range []struct{ name, signed, have string }{
		{"profile", signed.Profile, k.Profile},
		{"version", number(uint64(signed.Version)), number(uint64(k.Version))},
		{"image digest", signed.ImageDigest, k.ImageDigest},
		{"image size", number(signed.ImageSize), number(k.ImageSize)},
		{"initrd digest", signed.InitrdDigest, k.InitrdDigest},
		{"initrd size", number(signed.InitrdSize), number(k.InitrdSize)},
		{"arguments", list(signed.Arguments), list(k.Arguments)},
		{"build id", signed.BuildID, k.BuildID},
		{"release", signed.Release, k.Release},
		{"architecture", signed.Architecture, k.Architecture},
		{"drivers", list(signed.Drivers), list(k.Drivers)},
		{"least memory", number(signed.MinMemoryMiB), number(k.MinMemoryMiB)},
	} {
		if field.signed != field.have {
			return &MismatchError{Field: field.name, Signed: field.signed, Have: field.have}
		}
	}
	// One argument with a blank in it reads like two, but no valid kernel has
	// such arguments; a publisher who skipped that check is caught here.
	if !slices.Equal(signed.Arguments, k.Arguments) || !slices.Equal(signed.Drivers, k.Drivers) {
		return &MismatchError{Field: "list of arguments or drivers", Signed: list(signed.Arguments), Have: list(k.Arguments)}
	}
	return nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
