// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// ErrLarge: the archive would exceed its limit.
var ErrLarge = errors.New("the counters exceed the size limit")

type packed struct{ files, bytes uint64 }

type packer struct {
	out  *tar.Writer
	left int64
	packed
}

// pack puts an archive at its place when it is whole.
func pack(path string, most int64, fill func(*packer) error) (packed, error) {
	var done packed
	err := atomicfile.Fill(path, 0o600, func(file *os.File) error {
		zipped := gzip.NewWriter(file)
		p := &packer{out: tar.NewWriter(zipped), left: most}
		err := errors.Join(fill(p), p.out.Close(), zipped.Close())
		done = p.packed
		return err
	})
	return done, err
}

// copy adds all counters below root under a folder of that name. The size of a counter file is only known after reading
// it.
func (p *packer) copy(root, folder string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".gcda" {
			return err
		}
		file, err := os.Open(path) //nolint:gosec // G122: below debugfs, which root and the kernel alone write
		if err != nil {
			return err
		}
		defer file.Close()
		content, err := io.ReadAll(io.LimitReader(file, p.left+1))
		if err != nil {
			return fmt.Errorf("file %q: %w", path, err)
		}
		if p.left -= int64(len(content)); p.left < 0 {
			return ErrLarge
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		err = p.out.WriteHeader(&tar.Header{
			Name: filepath.Join(folder, name), Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX,
		})
		if err != nil {
			return err
		}
		_, err = p.out.Write(content)
		p.files++
		p.bytes += uint64(len(content))
		return err
	})
}
