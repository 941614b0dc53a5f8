// SPDX-License-Identifier: Apache-2.0

// Package tarlimit limits the content of an untrusted archive. A few packed kilobytes can name a disk full of zeros or
// of empty files.
package tarlimit

import (
	"archive/tar"
	"fmt"
	"path"
)

// longest name that Linux accepts. A tar name can have a megabyte of directories.
const longest = 4096

// Budget is the remaining allowance for an archive.
type Budget struct {
	Bytes int64
	// Entries are files and folders, those too that are only part of a name.
	Entries int

	folders map[string]bool
}

// Take subtracts an entry from the budget before it is unpacked.
func (b *Budget) Take(h *tar.Header) error {
	if len(h.Name) > longest {
		return fmt.Errorf("%.60q... has a name of %d bytes, %d over the limit", h.Name, len(h.Name), len(h.Name)-longest)
	}
	b.Entries--
	for folder := path.Dir(path.Clean(h.Name)); folder != "." && folder != "/" && !b.folders[folder]; folder = path.Dir(folder) {
		if b.folders == nil {
			b.folders = map[string]bool{}
		}
		b.folders[folder] = true
		b.Entries--
	}
	if b.Entries < 0 {
		return fmt.Errorf("%q exceeds the limit of files and folders", h.Name)
	}
	if h.Size < 0 || h.Size > b.Bytes {
		return fmt.Errorf("%q has %d bytes, %d over the limit", h.Name, h.Size, h.Size-b.Bytes)
	}
	b.Bytes -= h.Size
	return nil
}
