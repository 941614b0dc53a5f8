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

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

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
