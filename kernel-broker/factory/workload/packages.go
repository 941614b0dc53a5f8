// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
		folder, err := build.Cache{Dir: cache}.Entry(ctx, "package", key, nil, func(dir string) error {
			_, err := build.Unpack(ctx, name, dir)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("package %q: %w", name, err)
		}
		folders = append(folders, folder)
	}
	return folders, nil
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
