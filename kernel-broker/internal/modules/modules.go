// SPDX-License-Identifier: Apache-2.0

// Package modules is the archive of a kernel's modules, as the factory packs it and a node unpacks it: modules.json, which
// says what to load and in which order, and lib/modules/RELEASE as depmod leaves it, in a tar compressed with zstd.
package modules

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/tarlimit"
)

// ArchiveFile is the archive's name beside its kernel.
const ArchiveFile = "modules.tar.zst"

const (
	format   = 1
	listFile = "modules.json"
)

// What an archive may unpack to. The largest drivers that sites load, for graphics and networks, are some hundred megabytes.
const (
	mostBytes   = 2 << 30
	mostEntries = 1 << 15
	mostList    = 1 << 20
	mostWindow  = 128 << 20
)

// List says what is in an archive.
type List struct {
	Format int `json:"format"`
	// Release of the kernel that the modules were built for.
	Release string `json:"release"`
	// Load are the files to load, below lib/modules/RELEASE, each after those that it needs.
	Load []string `json:"load"`
	// Packages that they were built from.
	Packages []Package `json:"packages"`
}

// Package is a source of modules.
type Package struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Modules []string `json:"modules"`
}

// Tree is the folder of the modules below dir.
func (l List) Tree(dir string) string { return filepath.Join(dir, "lib/modules", l.Release) }

// Missing are the names of modules to load that are not among the loaded ones, which stand one in a line.
func (l List) Missing(loaded string) []string {
	var missing []string
	have := strings.Fields(loaded)
	for _, file := range l.Load {
		name := strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// validate refuses a list that names anything but modules of its own.
func (l List) validate() error {
	if l.Format != format {
		return fmt.Errorf("%s: format %d, only %d is known: %w", listFile, l.Format, format, kb.ErrInvalid)
	}
	if err := kb.ValidateRelease(l.Release); err != nil {
		return fmt.Errorf("%s: %w", listFile, err)
	}
	if len(l.Load) == 0 {
		return fmt.Errorf("%s: names nothing to load: %w", listFile, kb.ErrInvalid)
	}
	for _, file := range l.Load {
		if !filepath.IsLocal(file) || path.Clean(file) != file || path.Ext(file) != ".ko" {
			return fmt.Errorf("%s: %q is no module below its folder: %w", listFile, file, kb.ErrInvalid)
		}
	}
	return nil
}

// Pack writes the archive of dir, which has lib/modules/RELEASE. The same content gives the same bytes.
func Pack(to io.Writer, list List, dir string) error {
	list.Format = format
	if err := list.validate(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	files, err := regularFiles(list.Tree(dir))
	if err != nil {
		return err
	}
	for _, file := range list.Load {
		if !slices.Contains(files, file) {
			return fmt.Errorf("%s: %q is not there: %w", list.Tree(dir), file, kb.ErrNotFound)
		}
	}
	// One encoder at a time: several cut the input by chance.
	compressor, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressor)
	err = tarlimit.Add(archive, listFile, append(text, '\n'))
	for _, file := range files {
		if err != nil {
			break
		}
		var content []byte
		if content, err = os.ReadFile(filepath.Join(list.Tree(dir), file)); err == nil {
			err = tarlimit.Add(archive, path.Join("lib/modules", list.Release, file), content)
		}
	}
	return errors.Join(err, archive.Close(), compressor.Close())
}

// regularFiles below dir, in order.
func regularFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err // links to build and source lead out of the tree
		}
		inside, err := filepath.Rel(dir, p)
		files = append(files, filepath.ToSlash(inside))
		return err
	})
	slices.Sort(files)
	return files, err
}

// UnpackFile unpacks the archive at a path, and returns the files to load, in their order.
func UnpackFile(archive, dir string) (List, []string, error) {
	from, err := os.Open(archive)
	if err != nil {
		return List{}, nil, err
	}
	defer from.Close()
	list, err := Unpack(from, dir)
	if err != nil {
		return List{}, nil, err
	}
	files := make([]string, 0, len(list.Load))
	for _, file := range list.Load {
		files = append(files, filepath.Join(list.Tree(dir), file))
	}
	return list, files, nil
}

// Unpack unpacks an archive into an empty folder. Nothing in it leaves the folder.
func Unpack(from io.Reader, dir string) (List, error) {
	plain, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostBytes), zstd.WithDecoderMaxWindow(mostWindow))
	if err != nil {
		return List{}, err
	}
	defer plain.Close()
	var list List
	budget := tarlimit.Budget{Bytes: mostBytes, Entries: mostEntries}
	err = budget.Each(plain, func(header *tar.Header, entry io.Reader) error {
		if list.Format == 0 {
			return readList(header, entry, &list)
		}
		name := header.Name
		inside, belongs := strings.CutPrefix(name, path.Join("lib/modules", list.Release)+"/")
		if header.Typeflag != tar.TypeReg || !belongs || !filepath.IsLocal(inside) || path.Clean(name) != name {
			return fmt.Errorf("%q does not belong in an archive of modules: %w", name, kb.ErrInvalid)
		}
		return tarlimit.WriteFile(filepath.Join(dir, name), entry) //nolint:gosec // G305: the name is local and clean
	})
	if err == nil && list.Format == 0 {
		err = fmt.Errorf("no %s in it: %w", listFile, kb.ErrInvalid)
	}
	if err != nil {
		return List{}, fmt.Errorf("archive of modules: %w", err)
	}
	return list, nil
}

// readList reads the first entry.
func readList(header *tar.Header, entry io.Reader, list *List) error {
	if header.Name != listFile || header.Typeflag != tar.TypeReg || header.Size > mostList {
		return fmt.Errorf("%q is where %s has to be: %w", header.Name, listFile, kb.ErrInvalid)
	}
	text, err := io.ReadAll(entry)
	if err != nil {
		return err
	}
	if err := strictjson.Decode(text, list); err != nil {
		return fmt.Errorf("%s: %w: %w", listFile, err, kb.ErrInvalid)
	}
	return list.validate()
}
