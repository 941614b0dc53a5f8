// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
)

// unpackAll returns, for each package, the folder that it is unpacked in. What
// apt would download now, by name, version and digest, is the key, so that a
// new version of a package is another folder and nothing is downloaded twice.
func unpackAll(ctx context.Context, cache string, packages []string) ([]string, error) {
	said, err := build.Output(ctx, "", "apt-get", append([]string{"-q", "download", "--print-uris"}, packages...)...)
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
	return build.Cache{Dir: cache}.Entry(ctx, "package", key, nil, func(dir string) error { return fetch(ctx, name, dir) })
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

// fetch unpacks the package in dir. apt checks what it downloads.
func fetch(ctx context.Context, name, dir string) error {
	if _, err := build.Output(ctx, dir, "apt-get", "-q", "download", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("apt-get left %d files", len(files))
	}
	if _, err := build.Output(ctx, dir, "dpkg", "-x", files[0], dir); err != nil {
		return err
	}
	return os.Remove(files[0])
}
