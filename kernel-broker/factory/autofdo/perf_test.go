// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

// perfData writes what "perf record -b" leaves of a kernel: where it lies, its build
// id, and samples of which each has a loop's last two branches.
func perfData(t *testing.T, buildID string, loop branch, samples int) string {
	t.Helper()
	const (
		headerSize, attrSize, idsSize = 104, 128, 16
		sampleIP, sampleTID           = 1 << 0, 1 << 1
		sampleBranches                = 1 << 11
		branchKernel, branchAny       = 1 << 1, 1 << 3
		recordMmap, recordSample      = 1, 9
		recordBuildID                 = 67
		miscKernel                    = 1
		featureBuildID                = 2
	)
	type section struct{ Offset, Size uint64 }
	var data bytes.Buffer
	put := func(to *bytes.Buffer, values ...any) {
		for _, value := range values {
			if err := binary.Write(to, binary.LittleEndian, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	record := func(to *bytes.Buffer, kind uint32, misc uint16, body []byte) {
		put(to, kind, misc, uint16(8+len(body)), body)
	}
	name := func(text string) []byte { return append([]byte(text), make([]byte, 8-len(text)%8)...) }

	var mmap bytes.Buffer
	put(&mmap, int32(-1), uint32(0), uint64(0xffffffff81000000), uint64(0x1000000), uint64(0xffffffff81000000), name("[kernel.kallsyms]_text"))
	record(&data, recordMmap, miscKernel, mmap.Bytes())
	for range samples {
		var sample bytes.Buffer
		put(&sample, loop.from, uint32(1), uint32(1), uint64(2), loop.from, loop.to, uint64(0), loop.from, loop.to, uint64(0))
		record(&data, recordSample, miscKernel, sample.Bytes())
	}
	id, err := hex.DecodeString(buildID)
	if err != nil {
		t.Fatal(err)
	}
	var ids, body bytes.Buffer
	put(&body, int32(-1), append(id, make([]byte, 24-len(id))...), name("[kernel.kallsyms]"))
	record(&ids, recordBuildID, miscKernel, body.Bytes())

	attr := make([]byte, attrSize)
	for at, value := range map[int]uint32{4: attrSize, 16: 1, 24: sampleIP | sampleTID | sampleBranches, 72: branchKernel | branchAny} {
		binary.LittleEndian.PutUint32(attr[at:], value)
	}
	var file bytes.Buffer
	begin := uint64(headerSize + attrSize + idsSize)
	put(&file, []byte("PERFILE2"), uint64(headerSize), uint64(attrSize+idsSize), section{headerSize, attrSize + idsSize},
		section{begin, uint64(data.Len())}, section{}, [4]uint64{1 << featureBuildID}, attr, section{})
	end := begin + uint64(data.Len())
	put(&file, data.Bytes(), section{end + 16, uint64(ids.Len())}, ids.Bytes())
	path := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
