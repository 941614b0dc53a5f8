// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// ModulePackage is a source of modules that are built against exactly this kernel, as dkms builds them for others.
type ModulePackage struct {
	// Debian is a package with such a source (openafs-modules-dkms), Folder one with a dkms.conf.
	Debian string `yaml:"debian" json:",omitempty"`
	Folder string `yaml:"folder" json:",omitempty"`
	// Load names the modules that a node loads; all that were built if it is empty.
	Load []string `yaml:"load" json:",omitempty"`
}

// name for messages.
func (m ModulePackage) name() string {
	if m.Debian != "" {
		return m.Debian
	}
	return m.Folder
}

// moduleSource is a package with its version, or the digest of its folder.
type moduleSource struct {
	ModulePackage
	Version string
}

// moduleSources finds which versions a recipe's packages have now.
func moduleSources(ctx context.Context, recipe Recipe) ([]moduleSource, error) {
	var sources []moduleSource
	for _, m := range recipe.Modules {
		source := moduleSource{ModulePackage: m}
		var err error
		if m.Folder != "" {
			source.Version, err = versionOf(m.Folder)
		} else {
			source.Version, err = candidateVersion(ctx, m.Debian)
		}
		if err != nil {
			return nil, fmt.Errorf("modules of %q: %w", m.name(), err)
		}
		sources = append(sources, source)
	}
	return sources, nil
}

// candidateVersion is what apt would install.
func candidateVersion(ctx context.Context, name string) (string, error) {
	text, err := described(ctx, name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if version, is := strings.CutPrefix(line, "Version: "); is {
			return strings.TrimSpace(version), nil
		}
	}
	return "", errors.New("apt knows no version (run apt-get update?)")
}

// versionOf a folder is its digest.
func versionOf(dir string) (string, error) {
	if !exists(filepath.Join(dir, "dkms.conf")) {
		return "", errors.New("no dkms.conf in it")
	}
	return digest.Tree(dir)
}

// loads refuses a list of modules to load that the package does not have.
func (m ModulePackage) loads(built []string) error {
	for _, name := range m.Load {
		if !slices.Contains(built, name) {
			return fmt.Errorf("load: it has no %q, but %s", name, strings.Join(built, ", "))
		}
	}
	return nil
}

// packageSource is the folder with the package's dkms.conf: the recipe's own, or that of the Debian package, which the cache keeps.
func (b *Builder) packageSource(ctx context.Context, m moduleSource) (string, error) {
	if m.Folder != "" {
		return m.Folder, nil
	}
	key := m.Debian + "_" + m.Version
	dir, err := b.Cache.Entry(ctx, "dkms", key, b.Progress.Waiting("fetching "+key), func(dir string) error {
		root := filepath.Join(dir, "package")
		if _, err := Unpack(ctx, m.Debian+"="+m.Version, root); err != nil {
			return err
		}
		found, err := filepath.Glob(filepath.Join(root, "usr/src/*/dkms.conf"))
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("the package has %d dkms.conf below usr/src, 1 is expected", len(found))
		}
		if err != nil {
			return err
		}
		return errors.Join(os.CopyFS(filepath.Join(dir, "source"), os.DirFS(filepath.Dir(found[0]))), os.RemoveAll(root))
	})
	return filepath.Join(dir, "source"), err
}

// CheckPackages reads the dkms.conf of each package with modules as its build will, after hours of other work. What depends on the kernel's
// configuration shows then.
func (b *Builder) CheckPackages(ctx context.Context, plan Plan) error {
	for _, m := range plan.Modules {
		if err := b.checkPackage(ctx, plan, m); err != nil {
			return fmt.Errorf("kernel %q: modules of %q: %w", plan.Recipe.Name, m.name(), err)
		}
	}
	return nil
}

func (b *Builder) checkPackage(ctx context.Context, plan Plan, m moduleSource) error {
	dir, err := b.packageSource(ctx, m)
	if err != nil {
		return err
	}
	conf, err := readDKMS(ctx, dir, dir, plan.expectedRelease(), dir, nil)
	if err != nil {
		return err
	}
	for _, patch := range conf.Patches {
		if !exists(filepath.Join(dir, "patches", patch)) {
			return fmt.Errorf("dkms.conf: there is no patches/%s", patch)
		}
	}
	var names []string
	for _, module := range conf.Modules {
		names = append(names, strings.ReplaceAll(path.Base(module), "-", "_"))
	}
	return m.loads(names)
}

// released is a version of Linux whose release begins with it. Of others only the source says it.
var released = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)

// expectedRelease by the version of Debian's source package; empty where that does not say it.
func (p Plan) expectedRelease() string {
	upstream, _, _ := strings.Cut(p.Source.Version, "-")
	if !strings.HasPrefix(p.Source.Name, sourcePrefix) || !released.MatchString(upstream) {
		return ""
	}
	return upstream + p.Recipe.LocalVersion
}
