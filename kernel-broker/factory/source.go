package factory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Source is an unpacked kernel tree and what it was unpacked from.
type Source struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Tree    string `json:"-"`
}

// SourcePackage finds an installed Debian source package: its version and the
// tarball's place. The package manager vouches that the two belong together.
type SourcePackage struct {
	Name    string
	Version string
	Tarball string
}

// FindSource asks dpkg for the source package.
func FindSource(ctx context.Context, name string) (SourcePackage, error) {
	version, err := output(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name)
	if err != nil {
		return SourcePackage{}, fmt.Errorf("source package %q is not installed (apt-get install %s): %w", name, name, err)
	}
	version, installed := strings.CutPrefix(version, "installed ")
	if !installed {
		return SourcePackage{}, fmt.Errorf("source package %q is not installed: apt-get install %s", name, name)
	}
	tarball := filepath.Join("/usr/src", name+".tar.xz")
	if !exists(tarball) {
		return SourcePackage{}, fmt.Errorf("source package %q has no %s", name, tarball)
	}
	return SourcePackage{Name: name, Version: version, Tarball: tarball}, nil
}

// Unpack puts the tree into the cache, once for each version.
func (c Cache) Unpack(ctx context.Context, source SourcePackage, progress Progress) (Source, error) {
	key := source.Name + "_" + source.Version
	dir, err := c.Entry(ctx, "source", key, progress.Waiting("unpacking "+key), func(dir string) error {
		progress.Say("unpacking %s %s", source.Name, source.Version)
		digest, _, err := digestFile(source.Tarball)
		if err != nil {
			return fmt.Errorf("source %q: %w", source.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "digest"), []byte(digest+"\n"), 0o644); err != nil {
			return fmt.Errorf("source %q: %w", source.Name, err)
		}
		_, err = output(ctx, "tar", "-C", dir, "-xf", source.Tarball)
		return err
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
