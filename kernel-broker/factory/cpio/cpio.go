// SPDX-License-Identifier: Apache-2.0

// Package cpio writes the "newc" cpio format of an initramfs. The same entries in
// the same order give the same bytes: there are no times and no owners.
package cpio

import (
	"fmt"
	"io"
)

// Kinds of entries, to which their permissions are added.
const (
	Folder = 0o040000
	File   = 0o100000
	Link   = 0o120000
	Device = 0o020000
)

// Writer keeps its first error until Close.
type Writer struct {
	to      io.Writer
	inode   int
	written int64
	err     error
}

// Number names a device.
type Number struct{ Major, Minor int }

// NewWriter writes an archive to a stream.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Add writes an entry of a name, a kind with permissions, and so many bytes.
func (w *Writer) Add(name string, mode int, size int64, data io.Reader, dev Number) error {
	w.add(name, mode, size, data, dev)
	return w.err
}

func (w *Writer) add(name string, mode int, size int64, data io.Reader, dev Number) {
	if w.err != nil {
		return
	}
	if size > 0xffffffff {
		w.err = fmt.Errorf("file %q: %d bytes are more than the format can say", name, size)
		return
	}
	w.inode++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.inode, mode, 0, 0, 1, 0, size, 0, 0, dev.Major, dev.Minor, len(name)+1, 0, name)
	w.bytes([]byte(head))
	w.pad()
	if size == 0 || w.err != nil {
		return
	}
	n, err := io.Copy(w.to, data)
	w.written += n
	if err == nil && n != size {
		err = fmt.Errorf("file %q: %d bytes, %d were announced", name, n, size)
	}
	w.err = err
	w.pad()
}

func (w *Writer) bytes(data []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(data)
		w.written += int64(len(data))
	}
}

func (w *Writer) pad() {
	if over := w.written % 4; over != 0 {
		w.bytes(make([]byte, 4-over))
	}
}

// Close writes the trailer and says whether all went well.
func (w *Writer) Close() error {
	w.add("TRAILER!!!", 0, 0, nil, Number{})
	return w.err
}
