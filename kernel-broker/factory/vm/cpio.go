// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"io"
)

// Kinds of archive entries, with their modes.
const (
	kindFolder = 0o040000
	kindFile   = 0o100000
	kindLink   = 0o120000
	kindDevice = 0o020000
)

// archive writes the "newc" cpio format of an initramfs. The same entries in
// the same order give the same bytes: there are no times and no owners.
type archive struct {
	to      io.Writer
	inode   int
	written int64
	err     error
}

type device struct{ major, minor int }

func (a *archive) add(name string, mode int, size int64, data io.Reader, dev device) {
	if a.err != nil {
		return
	}
	if size > 0xffffffff {
		a.err = fmt.Errorf("file %q: %d bytes are more than the format can say", name, size)
		return
	}
	a.inode++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, dev.major, dev.minor, len(name)+1, 0, name)
	a.bytes([]byte(head))
	a.pad()
	if size == 0 || a.err != nil {
		return
	}
	n, err := io.Copy(a.to, data)
	a.written += n
	if err == nil && n != size {
		err = fmt.Errorf("file %q: %d bytes, %d were announced", name, n, size)
	}
	a.err = err
	a.pad()
}

func (a *archive) bytes(data []byte) {
	if a.err == nil {
		_, a.err = a.to.Write(data)
		a.written += int64(len(data))
	}
}

func (a *archive) pad() {
	if over := a.written % 4; over != 0 {
		a.bytes(make([]byte, 4-over))
	}
}

// end writes the trailer and says whether all went well.
func (a *archive) end() error {
	a.add("TRAILER!!!", 0, 0, nil, device{})
	return a.err
}
