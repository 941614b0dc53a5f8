// SPDX-License-Identifier: Apache-2.0

// Package tarlimit limits the content of an untrusted archive. A few packed kilobytes can name a disk full of zeros or
// of empty files. It also adds files to archives that are the same each time.
package tarlimit

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
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

// maxPadding bounds what may follow the end of an archive: tar fills up its last
// record.
const maxPadding = 1 << 20

// Each calls take with every entry of an archive, while the budget lasts. It reads
// archive to its end, so that a checksum there is compared.
func (b *Budget) Each(archive io.Reader, take func(*tar.Header, io.Reader) error) error {
	for entries := tar.NewReader(archive); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.Take(header)
		}
		if err == nil {
			err = take(header, entries)
		}
		if err != nil {
			return err
		}
	}
	if _, err := io.CopyN(io.Discard, archive, maxPadding); err == nil {
		return fmt.Errorf("the archive goes on behind its end for more than %d bytes", maxPadding)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// WriteFile writes an entry to a new file, and makes its folders.
func WriteFile(path string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}

// Add writes a file into an archive, without time and owner, which would be others each time.
func Add(archive *tar.Writer, name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
