// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// unpackAll returns, for each package, the folder that it is unpacked in. What
// apt would download now, by name, version and digest, is the key, so that a
// new version of a package is another folder and nothing is downloaded twice.
func unpackAll(ctx context.Context, cache string, packages []string) ([]string, error) {
	said, err := command(ctx, "", "apt-get", append([]string{"-q", "download", "--print-uris"}, packages...)...)
	if err != nil {
		return nil, err
	}
	folders := make([]string, 0, len(packages))
	for _, name := range packages {
		key, err := identity(said, name)
		if err != nil {
			return nil, fmt.Errorf("package %q: %w", name, err)
		}
		folder, err := unpack(ctx, cache, name, key)
		if err != nil {
			return nil, fmt.Errorf("package %q: %w", name, err)
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

func unpack(ctx context.Context, cache, name, key string) (string, error) {
	place := filepath.Join(cache, "package", key)
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Acquire(ctx, place+".lock", nil)
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	partial := place + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755)); err != nil {
		return "", err
	}
	if err := fetch(ctx, name, partial); err != nil {
		return "", errors.Join(err, os.RemoveAll(partial))
	}
	return place, errors.Join(os.Rename(filepath.Join(partial, "root"), place), os.RemoveAll(partial))
}

// identity finds the package among what apt would download: the file's name,
// which holds the version, and a digest of its line.
func identity(said, name string) (string, error) {
	for line := range strings.Lines(said) {
		// 'ADDRESS' FILE SIZE DIGEST; the address is this machine's own matter.
		fields := strings.Fields(line)
		if len(fields) != 4 || !strings.HasPrefix(fields[1], name+"_") {
			continue
		}
		sum := sha256.Sum256([]byte(strings.Join(fields[1:], " ")))
		return name + "-" + hex.EncodeToString(sum[:8]), nil
	}
	return "", fmt.Errorf("apt-get would not download it: %q", said)
}

// fetch leaves the package unpacked in dir/root. apt checks what it downloads.
func fetch(ctx context.Context, name, dir string) error {
	if _, err := command(ctx, dir, "apt-get", "-q", "download", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("apt-get left %d files", len(files))
	}
	if _, err := command(ctx, dir, "dpkg", "-x", files[0], filepath.Join(dir, "root")); err != nil {
		return err
	}
	return os.Remove(files[0])
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // G204: Debian's programs, without a shell
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return string(out), nil
}
