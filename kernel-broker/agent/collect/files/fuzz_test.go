// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unicode/utf8"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// FuzzRecord adds records from the kernel's table, which may be half written, to a small store. The result can be
// written.
func FuzzRecord(f *testing.F) {
	record := fileRecord{Opens: 2, Size: 4096, Magic: 0xef53, WholePath: 1}
	copy(record.Path[:], "/data/a\xff")
	record.Traffic[writing] = traffic{Calls: 3, Bytes: 30, Least: 10, Most: 10}
	record.Traffic[writing].Sizes[3] = 3
	var text bytes.Buffer
	if err := binary.Write(&text, binary.NativeEndian, record); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes(), uint64(5), uint32(8<<20|17))
	f.Add(bytes.Repeat([]byte{0xff}, text.Len()), ^uint64(0), ^uint32(0))
	f.Fuzz(func(t *testing.T, text []byte, inode uint64, device uint32) {
		var record fileRecord
		if binary.Read(bytes.NewReader(text), binary.NativeEndian, &record) != nil {
			return
		}
		s := newStore()
		s.most = 2
		for i := range uint64(4) {
			key := fileKey{Inode: inode + i, Device: device}
			file := record.file(key, "n1")
			if !utf8.ValidString(file.Path) {
				t.Fatalf("path %q", file.Path)
			}
			s.add(key, file)
			s.add(key, file)
		}
		found := s.result()
		found.Bound(profiling.MostFiles)
		if _, err := (profiling.Result{Format: profiling.Format, IO: found}).JSON(); err != nil {
			t.Error(err)
		}
	})
}
