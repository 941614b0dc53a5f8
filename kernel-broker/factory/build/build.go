// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Files of a result.
const (
	ImageFile     = "bzImage"
	ConfigFile    = "config"
	SystemMapFile = "System.map"
	// LinkMapFile is there for the variant Traced.
	LinkMapFile  = "vmlinux.map"
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
	if err := plan.unattended(); err != nil {
		return Result{}, fmt.Errorf("kernel %q: %w", name, err)
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

// ErrNeedsRun is in the error about a recipe that cannot be followed without
// running a kernel, which is more than this package does.
var ErrNeedsRun = errors.New("needs a run of its workload: kernelctl kernel build")

// unattended refuses what only the whole pipeline can make.
func (p Plan) unattended() error {
	switch {
	case p.Recipe.Optimisation.Profiled():
		return fmt.Errorf("optimisation %s %w", p.Recipe.Optimisation, ErrNeedsRun)
	case p.Recipe.Slimming == SlimmingTrace:
		return fmt.Errorf("slimming %s %w", p.Recipe.Slimming, ErrNeedsRun)
	}
	return nil
}

// make runs the steps and puts the result into dir.
func (b *Builder) make(ctx context.Context, plan Plan, dir string) error {
	source, err := b.Fetch(ctx, plan)
	if err != nil {
		return err
	}
	return b.withObjects(ctx, plan, Plain, source.Tree, func(at site) error {
		b.Progress.Say("configuring: %s, %d options from %d fragments", plan.Recipe.Base,
			len(plan.Merged.Options), len(plan.Fragments))
		if _, err := b.configure(ctx, at, plan.Merged, nil); err != nil {
			return err
		}
		return b.logged(at, func(watch Watch) error {
			if err := b.compile(ctx, source, at, watch); err != nil {
				return err
			}
			_, err := collect(ctx, at, source, CompileInput{Variant: Plain}, dir)
			return err
		})
	})
}

// logged keeps the build's log beside the results, since a failed build has no
// result folder, and shows its progress.
func (b *Builder) logged(at site, work func(watch Watch) error) error {
	path := filepath.Join(b.Cache.Dir, "log", at.plan.Recipe.Name+"-"+at.plan.Key[:12]+".log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	log, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	var shown *meter
	compiled := 0
	err = work(Watch{Log: log, LogPath: path, Units: func(done, total int) {
		if shown == nil {
			b.Progress.Say("compiling with %s, %d jobs (log: %s)", at.plan.ccCommand(at.variant), b.Jobs, path)
			shown = b.Progress.meter()
		}
		compiled = done
		shown.report(done, total, false)
	}})
	if shown != nil && err == nil {
		shown.report(compiled, compiled, true)
	}
	return errors.Join(err, log.Close())
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
	manifest, err := describeBuild(ctx, at, source, input, dir)
	if err != nil {
		return Manifest{}, err
	}
	return manifest, manifest.Write(dir)
}

// BuildError is a make that did not succeed, with the end of what it said.
type BuildError struct {
	Target string
	Log    string
	Tail   string
	Err    error
}

func (e *BuildError) Error() string {
	text := fmt.Sprintf("make %s: %v\n%s", e.Target, e.Err, e.Tail)
	if e.Log != "" {
		text += fmt.Sprintf("\n(whole log: %s)", e.Log)
	}
	return text
}

// Unwrap gives the cause, a cancelled context for example.
func (e *BuildError) Unwrap() error { return e.Err }

// stopped distinguishes a cancelled build from a failed one.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
