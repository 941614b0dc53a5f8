// SPDX-License-Identifier: Apache-2.0

package files

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/support/bpftest"
)

func TestLayouts(t *testing.T) {
	bpftest.Check(t, wanted, map[string]bpftest.Layout{
		"places":    {Key: fileKey{}, Value: uint32(0)},
		"files":     {Value: fileRecord{}},
		"vacant":    {Value: uint32(0)},
		"cpus":      {Value: cpuState{}},
		"types":     {Value: typeRecord{}},
		"overflows": {Value: overflow{}},
	})
}

func TestFileOfRecord(t *testing.T) {
	record := fileRecord{Opens: 2, Size: 4096, Magic: 0xef53, WholePath: 1}
	copy(record.Path[:], "/data/a\xff")
	record.Traffic[writing] = traffic{Calls: 3, Bytes: 30, Least: 10, Most: 10}
	record.Traffic[writing].Sizes[3] = 3
	f := record.file(fileKey{Inode: 5, Device: 8<<20 | 17}, "n1")
	if f.Path != "/data/a?" || f.Device != "8:17" || f.FileSystem != "ext4" || f.Inode != 5 || !f.WholePath || f.Node != "n1" {
		t.Errorf("file is %+v", f)
	}
	if f.Write.Calls != 3 || f.Write.Sizes.Count() != 3 || len(f.Write.Sizes) != 4 || f.Read.Calls != 0 {
		t.Errorf("traffic is %+v and %+v", f.Read, f.Write)
	}
	if got := fileSystem(0x1234); got != "0x1234" {
		t.Errorf("unknown file system is %q", got)
	}
}

func written(bytes uint64) profiling.File {
	return profiling.File{Path: "/a", WholePath: true, Opens: 1, Write: profiling.Traffic{Calls: 1, Bytes: bytes, Small: 1}}
}

func TestStoreLosesNothing(t *testing.T) {
	s := newStore()
	s.most = 10
	const files = 25
	for i := range uint64(files) {
		s.add(fileKey{Inode: i}, written(100))
	}
	// A known file returns without its path.
	again := written(1)
	again.Path, again.WholePath = "a", false
	s.add(fileKey{Inode: 3}, again)
	before := s.result()
	twin := s.copy()
	twin.add(fileKey{Inode: 99}, written(7))
	io := s.result()
	if io.Total(profiling.RegularFiles).Write.Bytes != before.Total(profiling.RegularFiles).Write.Bytes {
		t.Error("the store shares a copied file")
	}
	if len(io.Files) != 10 || io.FilesLeftOut != files-10 {
		t.Errorf("%d files, %d left out", len(io.Files), io.FilesLeftOut)
	}
	if got := io.Total(profiling.RegularFiles).Write; got.Bytes != files*100+1 || got.Calls != files+1 {
		t.Errorf("total is %+v", got)
	}
	var inPatterns, calls uint64
	for _, p := range io.Patterns {
		inPatterns += p.Files
		calls += p.Calls
	}
	if inPatterns != files || calls != files+1 {
		t.Errorf("%d files and %d calls in patterns %+v", inPatterns, calls, io.Patterns)
	}
	for _, f := range io.Files {
		if f.Path != "/a" || !f.WholePath {
			t.Errorf("file %+v lost its path", f)
		}
	}
}
