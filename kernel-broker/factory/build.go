package factory

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Files of a result.
const (
	ImageFile     = "bzImage"
	ConfigFile    = "config"
	SystemMapFile = "System.map"
	ManifestFile  = "kernel.json"
)

// Builder makes the kernels of a catalog.
type Builder struct {
	Catalog  string
	Cache    Cache
	Jobs     int
	Progress Progress
	// FindSource finds an installed source package.
	FindSource func(ctx context.Context, name string) (SourcePackage, error)
}

// Result is a kernel, built now or before.
type Result struct {
	Manifest Manifest
	Dir      string
	Cached   bool
	Took     time.Duration
}

// Build makes the kernel of that name, or finds it in the cache, and leaves a
// copy of the result in the folder out.
func (b *Builder) Build(ctx context.Context, name, out string) (Result, error) {
	started := time.Now()
	plan, err := b.Plan(ctx, name)
	if err != nil {
		return Result{}, err
	}
	cached := true
	dir, err := b.Cache.Entry(ctx, "kernel", plan.Key, b.Progress.Waiting("building this kernel"), func(dir string) error {
		cached = false
		return b.make(ctx, plan, dir)
	})
	if err != nil {
		return Result{}, fmt.Errorf("kernel %q: %w", name, err)
	}
	manifest, err := ReadManifest(dir)
	if err != nil {
		return Result{}, fmt.Errorf("kernel %q: %w", name, err)
	}
	if err := manifest.Verify(dir); err != nil {
		return Result{}, fmt.Errorf("kernel %q: damaged in the cache, remove %s: %w", name, dir, err)
	}
	if err := publish(dir, out, ImageFile, ConfigFile, SystemMapFile, ManifestFile); err != nil {
		return Result{}, fmt.Errorf("kernel %q: %w", name, err)
	}
	return Result{Manifest: manifest, Dir: dir, Cached: cached, Took: time.Since(started)}, nil
}

// make runs the steps and puts the result into dir.
func (b *Builder) make(ctx context.Context, plan Plan, dir string) error {
	source, err := b.Cache.Unpack(ctx, plan.Source, b.Progress)
	if err != nil {
		return err
	}
	return b.withObjects(ctx, plan, source.Tree, func(at site) error {
		b.Progress.Say("configuring: %s, %d options from %d fragments", plan.Recipe.Base,
			len(plan.Merged.Options), len(plan.Fragments))
		if err := b.configure(ctx, at); err != nil {
			return err
		}
		if err := b.compile(ctx, source, at); err != nil {
			return err
		}
		return b.collect(ctx, plan, source, at.obj, dir)
	})
}

// collect takes the result out of the object folder and writes the manifest.
func (b *Builder) collect(ctx context.Context, plan Plan, source Source, obj, dir string) error {
	files := map[string]string{
		"arch/x86/boot/bzImage": ImageFile,
		".config":               ConfigFile,
		"System.map":            SystemMapFile,
	}
	for from, to := range files {
		if err := copyFile(filepath.Join(obj, from), filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("result %q: %w", to, err)
		}
	}
	manifest, err := describeBuild(ctx, plan, source, obj, dir)
	if err != nil {
		return err
	}
	return manifest.Write(dir)
}

// BuildError is a make that did not succeed, with the end of what it said.
type BuildError struct {
	Target string
	Log    string
	Tail   string
	Err    error
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("make %s: %v\n%s\n(whole log: %s)", e.Target, e.Err, e.Tail, e.Log)
}

// Unwrap gives the cause, a cancelled context for example.
func (e *BuildError) Unwrap() error { return e.Err }

// stopped tells a build that was cancelled from one that failed.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
