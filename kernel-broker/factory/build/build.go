// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
)

// Files of a result.
const (
	ImageFile     = "bzImage"
	ConfigFile    = "config"
	SystemMapFile = "System.map"
	// LinkMapFile is there for the variant Traced.
	LinkMapFile = "vmlinux.map"
	// LinesFile is the kernel with the lines of its code, where the recipe's
	// profile is made of sampled branches.
	LinesFile    = "vmlinux"
	ManifestFile = "kernel.json"
)

// Builder makes the kernels of a catalog.
type Builder struct {
	Catalog  string
	Cache    Cache
	Jobs     int
	Progress Progress
	// FindSource finds an installed source package.
	FindSource func(ctx context.Context, name string) (SourcePackage, error)
	// Name of who builds, for the manifest. Empty leaves it out.
	Name string
}

// collect takes the result out of the object folder and writes the manifest.
func collect(ctx context.Context, at site, source Source, input CompileInput, dir string) (Manifest, error) {
	files := map[string]string{
		"arch/x86/boot/bzImage": ImageFile,
		".config":               ConfigFile,
		"System.map":            SystemMapFile,
	}
	if input.Variant == Traced {
		files["vmlinux.map"] = LinkMapFile
	}
	for from, to := range files {
		if err := copyFile(filepath.Join(at.obj, from), filepath.Join(dir, to)); err != nil {
			return Manifest{}, fmt.Errorf("result %q: %w", to, err)
		}
	}
	if at.plan.lines() {
		tools := autofdo.Tools{Compiler: at.plan.Compiler.Name}
		if err := tools.KeepLines(ctx, filepath.Join(at.obj, "vmlinux"), filepath.Join(dir, LinesFile)); err != nil {
			return Manifest{}, fmt.Errorf("lines: %w", err)
		}
	}
	if at.sampled != "" {
		if err := copyFile(at.sampled, filepath.Join(dir, autofdo.ProfileFile)); err != nil {
			return Manifest{}, fmt.Errorf("profile: %w", err)
		}
	}
	manifest, err := describeBuild(ctx, at, source, input, dir)
	if err != nil {
		return Manifest{}, err
	}
	return manifest, manifest.Write(dir)
}

// BuildError is a make that did not succeed, with the end of what it said.
type BuildError struct {
	Target string
	Tail   string
	Err    error
}

func (e *BuildError) Error() string { return fmt.Sprintf("make %s: %v\n%s", e.Target, e.Err, e.Tail) }

// Unwrap gives the cause, a cancelled context for example.
func (e *BuildError) Unwrap() error { return e.Err }

// stopped distinguishes a cancelled build from a failed one.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
