// SPDX-License-Identifier: Apache-2.0

package files

import (
	"maps"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// store has the files that left the kernel's table: the first ones by name,
// the rest as sums.
type store struct {
	most int
	kept map[fileKey]profiling.File
	rest patterns.Accumulator
	// more files and their traffic are in rest.
	more        uint64
	read, write profiling.Traffic
}

func newStore() *store {
	return &store{most: profiling.MostFiles, kept: map[fileKey]profiling.File{}}
}

func (s *store) add(key fileKey, f profiling.File) {
	before, known := s.kept[key]
	switch {
	case known:
		s.kept[key] = again(before, f)
	case len(s.kept) < s.most:
		s.kept[key] = f
	default:
		s.rest.Add(f)
		s.more++
		s.read, s.write = s.read.Plus(f.Read), s.write.Plus(f.Write)
	}
}

// again merges a file that left the table and returned.
func again(before, f profiling.File) profiling.File {
	if before.WholePath && !f.WholePath {
		f.Path, f.WholePath = before.Path, true
	}
	// What is no figure is the newer one's.
	return addup.Plus(f, before)
}

func (s *store) copy() *store {
	twin := *s
	twin.kept = maps.Clone(s.kept)
	twin.rest = s.rest.Clone()
	return &twin
}

// result of all files.
func (s *store) result() *profiling.IO {
	found := &profiling.IO{FilesLeftOut: s.more}
	all := s.rest.Clone()
	total := profiling.Total{Kind: profiling.RegularFiles, Read: s.read, Write: s.write}
	for _, f := range s.kept {
		found.Files = append(found.Files, f)
		all.Add(f)
		total.Read, total.Write = total.Read.Plus(f.Read), total.Write.Plus(f.Write)
	}
	found.Patterns = all.Patterns()
	found.AddTotal(total)
	return found
}
