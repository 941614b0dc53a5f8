// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
)

// archive writes a "newc" cpio archive, the format of an initramfs.
type archive struct {
	buf   bytes.Buffer
	inode int
}

const (
	modeFolder = 0o040755
	modeFile   = 0o100644
	modeExec   = 0o100755
	modeDevice = 0o020600
)

func (a *archive) add(name string, mode int, data []byte, major, minor int) {
	a.inode++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

func (a *archive) folder(name string)            { a.add(name, modeFolder, nil, 0, 0) }
func (a *archive) file(name string, text []byte) { a.add(name, modeFile, text, 0, 0) }
func (a *archive) program(name string, t []byte) { a.add(name, modeExec, t, 0, 0) }
func (a *archive) device(name string, j, n int)  { a.add(name, modeDevice, nil, j, n) }

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.add("TRAILER!!!", 0, nil, 0, 0)
	return a.buf.Bytes()
}
