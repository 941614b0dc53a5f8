// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
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
		if err := copyFile(at.samples, filepath.Join(dir, autofdo.ProfileFile)); err != nil {
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

// open puts the tree into dir, as a folder of the source's name, and returns
// the digest of what it was taken from.
func (p SourcePackage) open(ctx context.Context, dir string) (string, error) {
	switch {
	case p.Git != "":
		return "git:" + p.Commit, p.openGit(ctx, dir)
	case p.Digest != "":
		return p.Digest, p.openTarball(ctx, dir)
	}
	sum, _, err := digest.File(p.Tarball)
	if err != nil {
		return "", err
	}
	_, err = output(ctx, "tar", "-C", dir, "-xf", p.Tarball)
	return sum, err
}

// openTarball takes a tarball with any one folder in it.
func (p SourcePackage) openTarball(ctx context.Context, dir string) error {
	tarball := p.Tarball
	if strings.HasPrefix(tarball, "http://") || strings.HasPrefix(tarball, "https://") {
		tarball = filepath.Join(dir, "download")
		if err := download(ctx, p.Tarball, tarball); err != nil {
			return err
		}
	}
	sum, _, err := digest.File(tarball)
	if err != nil {
		return err
	}
	if sum != p.Digest {
		return fmt.Errorf("%s has digest %s, the recipe says %s", p.Tarball, sum, p.Digest)
	}
	tree := filepath.Join(dir, p.Name)
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, "tar", "-C", tree, "--strip-components=1", "-xf", tarball); err != nil {
		return err
	}
	return removeIfThere(filepath.Join(dir, "download"))
}

func download(ctx context.Context, address, to string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // only read from
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, response.Body)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

// openGit takes one commit, without the history.
func (p SourcePackage) openGit(ctx context.Context, dir string) error {
	repository := filepath.Join(dir, "repository")
	tree := filepath.Join(dir, p.Name)
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(dir, "archive.tar")
	for _, args := range [][]string{
		{"git", "init", "-q", "--bare", repository},
		{"git", "-C", repository, "fetch", "-q", "--depth=1", "--", p.Git, p.Commit},
		// The commit's time becomes the files', and thus the build's date.
		{"git", "-C", repository, "archive", "--format=tar", "-o", archive, p.Commit},
		{"tar", "-C", tree, "-xf", archive},
	} {
		if _, err := output(ctx, args[0], args[1:]...); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(repository), os.Remove(archive))
}

// patch applies the patches, all of which must fit without guessing. The
// Makefile keeps its time, which stands for the source's date.
func (p SourcePackage) patch(ctx context.Context, tree string) error {
	if len(p.Patches) == 0 {
		return nil
	}
	makefile := filepath.Join(tree, "Makefile")
	info, err := os.Stat(makefile)
	if err != nil {
		return fmt.Errorf("source %q: %w", p.Name, err)
	}
	for _, patch := range p.Patches {
		file, err := filepath.Abs(patch.path)
		if err != nil {
			return fmt.Errorf("patch %q: %w", patch.Name, err)
		}
		if sum, _, err := digest.File(file); err != nil || sum != patch.Digest {
			return fmt.Errorf("patch %q changed since it was read: %w", patch.Name, errors.Join(err, errChanged))
		}
		said, err := output(ctx, "patch", "-p1", "--batch", "--forward", "--fuzz=0", "--no-backup-if-mismatch", "-d", tree, "-i", file)
		if err != nil {
			return fmt.Errorf("patch %q does not fit %s %s: %w\n%s", patch.Name, p.Name, p.Version, err, said)
		}
	}
	return os.Chtimes(makefile, info.ModTime(), info.ModTime())
}

var errChanged = errors.New("another digest")
