// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kernel is one version of a profile: a bootable kernel, its arguments, and the evidence that proves it is running.
// Immutable.
type Kernel struct {
	Profile      string `json:"profile"`
	Version      uint32 `json:"version"`
	ImageDigest  string `json:"image_digest"`
	ImageSize    uint64 `json:"image_size"`
	InitrdDigest string `json:"initrd_digest,omitempty"`
	InitrdSize   uint64 `json:"initrd_size,omitempty"`
	// ModulesDigest is of the archive of modules that the node loads after the boot; empty for none.
	ModulesDigest string `json:"modules_digest,omitempty"`
	ModulesSize   uint64 `json:"modules_size,omitempty"`

	Arguments    []string `json:"arguments,omitempty"`
	BuildID      string   `json:"build_id"`
	Release      string   `json:"release"`
	Architecture string   `json:"architecture"`
	Drivers      []string `json:"drivers,omitempty"`
	MinMemoryMiB uint64   `json:"min_memory_mib,omitempty"`
	// SystemCores of each node are kept for the system, with the arguments that the node composes for that; 0 for none.
	SystemCores uint32 `json:"system_cores,omitempty"`
}

// Ref of this kernel.
func (k Kernel) Ref() Ref { return Ref{Profile: k.Profile, Version: k.Version} }

// File is one of a kernel's files in the broker's store.
type File struct {
	// What it is, for messages.
	What   string
	Digest string
	Size   uint64
}

// Files that a node needs of the kernel, the image first.
func (k Kernel) Files() []File {
	files := []File{{"image", k.ImageDigest, k.ImageSize}}
	if k.InitrdDigest != "" {
		files = append(files, File{"initrd", k.InitrdDigest, k.InitrdSize})
	}
	if k.ModulesDigest != "" {
		files = append(files, File{"modules", k.ModulesDigest, k.ModulesSize})
	}
	return files
}

// Validate checks everything that can be checked without the artifacts.
func (k Kernel) Validate() error {
	if err := ValidateProfileName(k.Profile); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("kernel %q: %w", k.Ref(), err) }
	if k.Version == 0 {
		return fail(fmt.Errorf("version is 0: %w", ErrInvalid))
	}
	for _, file := range k.Files() {
		if err := ValidateDigest(file.Digest); err != nil {
			return fail(fmt.Errorf("%s: %w", file.What, err))
		}
	}
	if k.ModulesDigest != "" && k.Ref().IsStock() {
		return fail(fmt.Errorf("stock has its modules on the node: %w", ErrInvalid))
	}
	if err := ValidateBuildID(k.BuildID); err != nil {
		return fail(err)
	}
	if err := ValidateRelease(k.Release); err != nil {
		return fail(err)
	}
	if k.Architecture != "x86_64" {
		return fail(fmt.Errorf("architecture %q, only x86_64 can be booted: %w", k.Architecture, ErrInvalid))
	}
	if err := ValidateArguments(k.Arguments); err != nil {
		return fail(err)
	}
	if k.SystemCores > 0 {
		if err := ValidateSystemCores(k.Ref(), k.SystemCores, k.Arguments); err != nil {
			return fail(err)
		}
	}
	for _, driver := range k.Drivers {
		if !plainName(driver, maxWord) {
			return fail(fmt.Errorf("driver %.80q: %w", driver, ErrInvalid))
		}
	}
	return nil
}

// Quarantine is the reason and the time at which a kernel was quarantined.
type Quarantine struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Retirement is the reason and the time at which a kernel was retired. It is final: bringing the kernel back takes a new
// version.
type Retirement struct {
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// ProfileVersion is a kernel with its lifecycle in the catalog.
type ProfileVersion struct {
	Kernel       Kernel    `json:"kernel"`
	RegisteredAt time.Time `json:"registered_at"`
	BootFailures uint32    `json:"boot_failures,omitempty"`
	// FailedOn are the nodes that it failed to boot on, the first few.
	FailedOn   []string    `json:"failed_on,omitempty"`
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	Retired    *Retirement `json:"retired,omitempty"`
	Documents  []Document  `json:"documents,omitempty"`
	// NoBTF: the kernel has no type information, without which collectors see nothing.
	NoBTF bool `json:"no_btf,omitempty"`
	// Measured is nil where nothing was measured, and in records from before it.
	Measured *Measurement `json:"measured,omitempty"`
	// Envelope is the signature (see package signing); it may be replaced.
	Envelope []byte `json:"envelope,omitempty"`
}

// Document is a stored file about a kernel that no node needs, such as its provenance and its benefit.
type Document struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   uint64 `json:"size"`
}

// maxDocuments of a version.
const maxDocuments = 8

// validateDocuments checks everything but whether they are stored.
func validateDocuments(documents []Document) error {
	if len(documents) > maxDocuments {
		return fmt.Errorf("%d documents, at most %d: %w", len(documents), maxDocuments, ErrInvalid)
	}
	seen := map[string]bool{}
	for _, d := range documents {
		if err := ValidateProfileName(d.Name); err != nil || seen[d.Name] {
			return fmt.Errorf("document %q is given twice or its name is not made of lower-case letters: %w", d.Name, ErrInvalid)
		}
		seen[d.Name] = true
		if err := ValidateDigest(d.Digest); err != nil {
			return fmt.Errorf("document %q: %w", d.Name, err)
		}
	}
	return nil
}

// ReusePolicy says whether a node may pass from job to job without a boot.
type ReusePolicy string

// The two reuse policies.
const (
	ReuseSameProfile ReusePolicy = "same-profile"
	ReuseNever       ReusePolicy = "never"
)

// FallbackPolicy is what happens to a job whose kernel is unavailable.
type FallbackPolicy string

// The two fallback policies. No policy runs the job on another kernel.
const (
	FallbackHold    FallbackPolicy = "hold"
	FallbackRequeue FallbackPolicy = "requeue"
)

// Profile is what a user names: an application and the kernels made for it.
type Profile struct {
	Name           string           `json:"name"`
	Application    string           `json:"application"`
	Description    string           `json:"description"`
	DefaultVersion uint32           `json:"default_version"`
	Versions       []ProfileVersion `json:"versions"`
	Reuse          ReusePolicy      `json:"reuse"`
	Fallback       FallbackPolicy   `json:"fallback"`
	BootAttempts   uint32           `json:"boot_attempts"`
	BootTimeout    time.Duration    `json:"boot_timeout"`
	// History lists changes to the profile, oldest first.
	History []Change `json:"history,omitempty"`
	// Previous are the default versions before the present one, oldest first.
	Previous []uint32 `json:"previous,omitempty"`
}

// Validate checks the profile as a whole.
func (p Profile) Validate() error {
	if err := ValidateProfileName(p.Name); err != nil {
		return err
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("profile %q: %s: %w", p.Name, fmt.Sprintf(format, args...), ErrInvalid)
	}
	if len(p.Versions) == 0 {
		return fail("no versions")
	}
	seen := map[uint32]bool{}
	builds := map[string]uint32{}
	for _, v := range p.Versions {
		if v.Kernel.Profile != p.Name {
			return fail("version %d belongs to profile %q", v.Kernel.Version, v.Kernel.Profile)
		}
		if seen[v.Kernel.Version] {
			return fail("version %d is given twice", v.Kernel.Version)
		}
		seen[v.Kernel.Version] = true
		same := fmt.Sprintf("%s %s %s %d %s", v.Kernel.ImageDigest, v.Kernel.InitrdDigest, v.Kernel.ModulesDigest, v.Kernel.SystemCores,
			strings.Join(v.Kernel.Arguments, " "))
		if other, dup := builds[same]; dup {
			return fail("versions %d and %d are the same kernel with the same arguments and cores", other, v.Kernel.Version)
		}
		builds[same] = v.Kernel.Version
		if err := v.Kernel.Validate(); err != nil {
			return fmt.Errorf("profile %q: %w", p.Name, err)
		}
		if err := validateDocuments(v.Documents); err != nil {
			return fmt.Errorf("profile %q: version %d: %w", p.Name, v.Kernel.Version, err)
		}
		if err := v.ValidateMeasured(); err != nil {
			return fmt.Errorf("profile %q: version %d: %w", p.Name, v.Kernel.Version, err)
		}
	}
	if !seen[p.DefaultVersion] {
		return fail("default version %d does not exist", p.DefaultVersion)
	}
	if p.Reuse != ReuseSameProfile && p.Reuse != ReuseNever {
		return fail("reuse %q is neither %s nor %s", p.Reuse, ReuseSameProfile, ReuseNever)
	}
	if p.Fallback != FallbackHold && p.Fallback != FallbackRequeue {
		return fail("fallback %q is neither %s nor %s", p.Fallback, FallbackHold, FallbackRequeue)
	}
	if p.BootAttempts < 1 || p.BootAttempts > 5 {
		return fail("boot attempts %d are not within 1 to 5", p.BootAttempts)
	}
	if p.BootTimeout < 5*time.Second || p.BootTimeout > time.Hour {
		return fail("boot timeout %v is not within 5s to 1h", p.BootTimeout)
	}
	return nil
}

// Version returns version n; 0 asks for the default one.
func (p Profile) Version(n uint32) (ProfileVersion, error) {
	if n == 0 {
		n = p.DefaultVersion
	}
	for _, v := range p.Versions {
		if v.Kernel.Version == n {
			return v, nil
		}
	}
	var have []string
	for _, v := range p.Versions {
		have = append(have, fmt.Sprint(v.Kernel.Version))
	}
	return ProfileVersion{}, fmt.Errorf("kernel profile %q has no version %d (it has %s): %w",
		p.Name, n, strings.Join(have, ", "), ErrNotFound)
}

// Retired reports whether every version is.
func (p Profile) Retired() bool {
	return len(p.Versions) > 0 && !slices.ContainsFunc(p.Versions, func(v ProfileVersion) bool { return v.Retired == nil })
}

// SortVersions brings the versions into rising order.
func (p *Profile) SortVersions() {
	slices.SortFunc(p.Versions, func(a, b ProfileVersion) int { return cmp.Compare(a.Kernel.Version, b.Kernel.Version) })
}
