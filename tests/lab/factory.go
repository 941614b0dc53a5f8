// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// builderPrefix is the prefix of kernelctl and kernel-factory in the lab's folder, filled as by make install, since both
// find the catalog, the workloads' programs and the emulator's plugin relative to it.
const builderPrefix = "product/usr"

// builders are its programs, which the front-end calls by links.
var builders = map[string]bool{"kernelctl": true, "kernel-factory": true}

// installFactory copies the further requirements of a kernel build. Plugin and programs are optional; a build reports
// missing ones.
func (l *Lab) installFactory() error {
	o := l.state.Options
	libexec := l.layout.path(builderPrefix, "libexec", "kernel-broker")
	for _, part := range []struct{ from, to string }{
		{filepath.Join(o.Repo, "catalog"), l.layout.path(builderPrefix, "share", "kernel-broker", "catalog")},
		{filepath.Join(o.Product, "measure", "kbcount.so"), filepath.Join(libexec, "kbcount.so")},
		{filepath.Join(o.Product, "workloads"), filepath.Join(libexec, "workloads")},
	} {
		if err := copyTree(part.from, part.to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("what kernels are built with: %w", err)
		}
	}
	return nil
}

// copyTree copies regular files, with the right to run them.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return copyFile(path, filepath.Join(to, below), mode)
	})
}
