// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/cpio"
)

// archive is an initramfs in memory. Its first error is what bytes returns.
type archive struct {
	buf bytes.Buffer
	to  *cpio.Writer
}

func newArchive() *archive {
	a := &archive{}
	a.to = cpio.NewWriter(&a.buf)
	return a
}

func (a *archive) add(name string, mode int, data []byte) {
	_ = a.to.Add(name, mode, int64(len(data)), bytes.NewReader(data), cpio.Number{})
}

func (a *archive) folder(name string)            { a.add(name, cpio.Folder|0o755, nil) }
func (a *archive) file(name string, text []byte) { a.add(name, cpio.File|0o644, text) }
func (a *archive) program(name string, t []byte) { a.add(name, cpio.File|0o755, t) }
func (a *archive) device(name string, j, n int) {
	_ = a.to.Add(name, cpio.Device|0o600, 0, nil, cpio.Number{Major: j, Minor: n})
}

// bytes ends the archive.
func (a *archive) bytes() ([]byte, error) {
	err := a.to.Close()
	return a.buf.Bytes(), err
}
