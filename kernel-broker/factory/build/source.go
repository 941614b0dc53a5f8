// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Source is an unpacked kernel tree and what it was unpacked from.
type Source struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	// Patches that were applied.
	Patches []Patch `json:"patches,omitempty"`
	Tree    string  `json:"-"`
}

// SourcePackage is a source that was found but not opened: its name, its
// version, and the tarball's place or the repository's. For a Debian package
// the package manager ensures that version and tarball belong together, for the
// others a digest does, which then is the version.
type SourcePackage struct {
	Name    string
	Version string
	Tarball string
	// Config is the file of the distribution's configuration of this source, where a
	// recipe begins with it and it is installed.
	Config string
	// Digest that the tarball must have; "" leaves it to the package manager.
	Digest string
	// Git is a repository instead of a tarball, Commit what is taken of it.
	Git    string
	Commit string
	// Patches are applied in this order.
	Patches []Patch
}

// Patch is a change to the source, with where it stands in Linux itself.
type Patch struct {
	Name     string `json:"name"`
	Digest   string `json:"digest"`
	Upstream string `json:"upstream"`
	path     string
}

// key names the tree in the cache.
func (p SourcePackage) key() string {
	key := p.Name + "_" + p.Version
	if len(p.Patches) == 0 {
		return key
	}
	hash := sha256.New()
	for _, patch := range p.Patches {
		_, _ = fmt.Fprintln(hash, patch.Digest) // a hash takes everything
	}
	return key + "-patched-" + hex.EncodeToString(hash.Sum(nil)[:6])
}

// sourcePackage finds what a recipe names, and reads its patches.
func (b *Builder) sourcePackage(ctx context.Context, recipe Recipe) (SourcePackage, error) {
	var source SourcePackage
	var err error
	switch from := recipe.Source; {
	case from.Git != "":
		source = SourcePackage{Name: "git", Version: from.Commit, Git: from.Git, Commit: from.Commit}
	case from.Tarball != "":
		hexDigest := strings.TrimPrefix(from.Digest, "sha256:")
		source = SourcePackage{Name: "tarball", Version: hexDigest, Tarball: from.Tarball, Digest: from.Digest}
	default:
		if source, err = b.FindSource(ctx, from.Debian); err != nil {
			return SourcePackage{}, err
		}
		if recipe.Base == BaseDistribution && source.Config == "" {
			source.Config = findConfig(ctx, source)
		}
	}
	for _, named := range recipe.Patches {
		path := filepath.Join(b.Catalog, "patches", named.File)
		sum, _, err := digest.File(path)
		if err != nil {
			return SourcePackage{}, fmt.Errorf("patch %q: %w", named.File, err)
		}
		source.Patches = append(source.Patches, Patch{Name: named.File, Digest: sum, Upstream: named.Upstream, path: path})
	}
	return source, nil
}

// installedVersion asks dpkg for a package that a kernel is made of.
func installedVersion(ctx context.Context, name string) (string, error) {
	version, err := output(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name)
	if err != nil {
		return "", fmt.Errorf("package %q is not installed (apt-get install %s): %w", name, name, err)
	}
	version, installed := strings.CutPrefix(version, "installed ")
	if !installed {
		return "", fmt.Errorf("package %q is not installed: apt-get install %s", name, name)
	}
	return version, nil
}

// FindSource asks dpkg for the source package.
func FindSource(ctx context.Context, name string) (SourcePackage, error) {
	version, err := installedVersion(ctx, name)
	if err != nil {
		return SourcePackage{}, fmt.Errorf("source %w", err)
	}
	tarball := filepath.Join("/usr/src", name+".tar.xz")
	if !exists(tarball) {
		return SourcePackage{}, fmt.Errorf("source package %q has no %s", name, tarball)
	}
	return SourcePackage{Name: name, Version: version, Tarball: tarball}, nil
}

// Fetch has the plan's source in the cache, unpacked and patched, and returns
// it. It is the first step of a build, and may be called before each other one.
func (b *Builder) Fetch(ctx context.Context, plan Plan) (Source, error) {
	return b.Cache.Unpack(ctx, plan.Source, b.Progress)
}

// Unpack puts the tree into the cache, once for each version.
func (c Cache) Unpack(ctx context.Context, source SourcePackage, progress Progress) (Source, error) {
	key := source.key()
	dir, err := c.Entry(ctx, "source", key, progress.Waiting("unpacking "+key), func(dir string) error {
		progress.Say("unpacking %s %s", source.Name, source.Version)
		digest, err := source.open(ctx, dir)
		if err != nil {
			return fmt.Errorf("source %q: %w", source.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "digest"), []byte(digest+"\n"), 0o644); err != nil {
			return fmt.Errorf("source %q: %w", source.Name, err)
		}
		return source.patch(ctx, filepath.Join(dir, source.Name))
	})
	if err != nil {
		return Source{}, err
	}
	digest, err := os.ReadFile(filepath.Join(dir, "digest"))
	if err != nil {
		return Source{}, fmt.Errorf("source %q: %w", source.Name, err)
	}
	tree := filepath.Join(dir, source.Name)
	if !exists(filepath.Join(tree, "Makefile")) {
		return Source{}, fmt.Errorf("source %q: %s holds no tree %s", source.Name, source.Tarball, source.Name)
	}
	return Source{
		Package: source.Name,
		Version: source.Version,
		Digest:  strings.TrimSpace(string(digest)),
		Patches: source.Patches,
		Tree:    tree,
	}, nil
}

// Date is when the distribution last changed the tree. It stands in the kernel
// as the build's date, so that the same source gives the same bytes on any day.
func (s Source) Date() (time.Time, error) {
	info, err := os.Stat(filepath.Join(s.Tree, "Makefile"))
	if err != nil {
		return time.Time{}, fmt.Errorf("source %q: %w", s.Package, err)
	}
	return info.ModTime().UTC(), nil
}
