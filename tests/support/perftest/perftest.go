// SPDX-License-Identifier: Apache-2.0

// Package perftest writes perf's data, which takes a processor with a branch record otherwise.
package perftest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

// Recording is what perf recorded of a kernel.
type Recording struct {
	// BuildID of the kernel; empty as with -B.
	BuildID string
	// From and To are a loop's last branch, which each sample has twice.
	From, To uint64
	// Stack takes its place: the last branches of each sample, from and to, the newest first.
	Stack   [][2]uint64
	Samples int
	// Moved is how far from its place KASLR put the kernel. Branches are where they were recorded.
	Moved uint64
	// Branchless: recorded without -b.
	Branchless bool
}

// Data writes what "perf record -b" leaves of a kernel: where it lay, its build
// id, and samples of which each has the last branches.
func Data(t *testing.T, r Recording) string {
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
	text := uint64(0xffffffff81000000) + r.Moved
	put(&mmap, int32(-1), uint32(0), text, uint64(0x1000000), text, name("[kernel.kallsyms]_text"))
	record(&data, recordMmap, miscKernel, mmap.Bytes())
	stack := r.Stack
	if stack == nil {
		stack = [][2]uint64{{r.From, r.To}, {r.From, r.To}}
	}
	for range r.Samples {
		var sample bytes.Buffer
		put(&sample, r.From, uint32(1), uint32(1))
		if !r.Branchless {
			put(&sample, uint64(len(stack)))
			for _, branch := range stack {
				put(&sample, branch[0], branch[1], uint64(0))
			}
		}
		record(&data, recordSample, miscKernel, sample.Bytes())
	}
	id, err := hex.DecodeString(r.BuildID)
	if err != nil {
		t.Fatal(err)
	}
	var ids, body bytes.Buffer
	put(&body, int32(-1), append(id, make([]byte, 24-len(id))...), name("[kernel.kallsyms]"))
	record(&ids, recordBuildID, miscKernel, body.Bytes())

	kind, branches, features := uint32(sampleIP|sampleTID|sampleBranches), uint32(branchKernel|branchAny), uint64(1<<featureBuildID)
	if r.Branchless {
		kind, branches = sampleIP|sampleTID, 0
	}
	if r.BuildID == "" {
		features = 0
	}
	attr := make([]byte, attrSize)
	for at, value := range map[int]uint32{4: attrSize, 16: 1, 24: kind, 72: branches} {
		binary.LittleEndian.PutUint32(attr[at:], value)
	}
	var file bytes.Buffer
	begin := uint64(headerSize + attrSize + idsSize)
	put(&file, []byte("PERFILE2"), uint64(headerSize), uint64(attrSize+idsSize), section{headerSize, attrSize + idsSize},
		section{begin, uint64(data.Len())}, section{}, [4]uint64{features}, attr, section{})
	end := begin + uint64(data.Len())
	put(&file, data.Bytes())
	if r.BuildID != "" {
		put(&file, section{end + 16, uint64(ids.Len())}, ids.Bytes())
	}
	path := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
